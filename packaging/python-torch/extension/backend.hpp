#pragma once

#include "packaging/python-torch/extension/group.hpp"
#include "packaging/python-torch/extension/meeting.hpp"
#include "packaging/python-torch/extension/work.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 7
#define DLAUNCH_TORCH_HAS_ERROR_TYPE
#endif

namespace dlaunch::torch_backend {

/// The collectives of a torch process group by a communicator of ours. Calls are started, in the
/// order in which they are made, and any thread may make them. A wrong argument is a ValueError of
/// the call; what goes wrong later is thrown by its Work. After a failed collective the group is
/// broken, and each later call throws the same.
class DlaunchBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Milliseconds = std::chrono::milliseconds;

  /// A group of the ranks that meet in the store.
  static c10::intrusive_ptr<DlaunchBackend> meet(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const Place& place);
  /// A group of some of this one's ranks, which alone call it.
  c10::intrusive_ptr<DlaunchBackend> of_members(const std::vector<int>& ranks,
                                                Milliseconds timeout);

  DlaunchBackend(std::shared_ptr<Group> group, int rank, int size, Milliseconds timeout);
  ~DlaunchBackend() override;

  // Backend's own. What it says of each holds.
  const std::string getBackendName() const override { return "dlaunch"; }
  bool supportsSplitting() const override { return true; }
  // For blocks of the program's own: batch_isend_irecv asks supportsCoalescing().
  void startCoalescing() override;
  WorkPointer endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  // These override what newer torch has, and are nobody's before: since torch 2.7
  /// Torch's block around a batch forgets to end where a call in it throws, and then the group's
  /// all_reduce only takes notes. Without it each call of the batch is made as any other.
  virtual bool supportsCoalescing() const { return false; }
  virtual void abort();
  virtual void shutdown();
  /// At the end of a process that is lost to the others, while an exception unwinds.
  void abandon() { group_->abandon(); }
#ifdef DLAUNCH_TORCH_HAS_ERROR_TYPE
  virtual c10d::ErrorType getError();
#endif
  // since 2.9
  virtual c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  virtual void setTimeout(Milliseconds timeout);
  virtual c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Options>& options);
  virtual c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                            const c10::intrusive_ptr<Options>& options,
                                            const int& rank, const int& size);
  // and since 2.10.
  virtual bool supportsShrinking() const { return true; }
  virtual c10::intrusive_ptr<Backend> shrink(const std::vector<std::int64_t>& ranks_to_exclude,
                                             int flags, const c10::intrusive_ptr<Options>& options);

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(Lists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(Lists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, Lists& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, Lists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Torch asks this of all backends of a group, and NCCL's alone has something to do.
  virtual void enableCollectivesTiming() {}

  // What torch has no name for.
  /// Has all living ranks leave their calls, and agree on who lives: the ranks that are lost. The
  /// next shrink() takes the group that they have made. Every living rank calls it.
  std::vector<std::int64_t> find_lost(Milliseconds timeout);

 private:
  using What = StartedWork::What;
  using Works = std::vector<dlaunch::Work>;
  WorkPointer collective(
      What what,
      const std::function<void(Communicator&, const dlaunch::ReduceOptions&, Works&)>& begin);
  WorkPointer message(
      What what, Started::Kind kind, int tag,
      const std::function<dlaunch::Work(Communicator&, const MessageOptions&)>& begin);
  WorkPointer start(What what, Started::Kind kind, const Group::Begin& begin);
  Milliseconds timeout_of(Milliseconds asked) const;
  int root_of(const char* call, std::int64_t root) const;

  const std::shared_ptr<Group> group_;
  const c10::intrusive_ptr<Options> options_;
  std::atomic<Milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};  ///< Of collectives: the same on all ranks.
  std::atomic<std::uint64_t> messages_{0};
  std::mutex coalescing_mutex_;
  bool is_coalescing_ = false;
  std::vector<WorkPointer> coalesced_;
  std::mutex shrunk_mutex_;
  std::optional<Communicator> shrunk_;  ///< What find_lost has made.
  std::vector<std::int64_t> lost_;
};

}  // namespace dlaunch::torch_backend
