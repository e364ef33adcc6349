#pragma once

#include "collectives/device/library.hpp"
#include "collectives/nccl/device.hpp"
#include "collectives/nccl/handle.hpp"
#include "collectives/nccl/nccl_api.hpp"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace dlaunch::nccl {

/// A group as an ncclComm, which never blocks: progress() shows NCCL's work. NCCL makes a thread
/// for each call of such a communicator, which costs more than the call; so calls have one of their
/// own that blocks, if NCCL can revoke it (docs/decisions/0060).
class NcclGroup final : public device::Group {
 public:
  explicit NcclGroup(const Uses& uses) : uses_(uses) {}
  /// A group whose communicator comes later, when NCCL has written it.
  NcclGroup(const Uses& uses, std::shared_ptr<Slot> slot) : uses_(uses), slot_(std::move(slot)) {}
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override { NcclGroup::abort(); }

  device::Answer join(const device::Id& id, int rank, int size);
  device::Answer progress() override;
  device::Answer check() override;
  device::Answer enqueue(const device::Plan& plan, void* stream, device::Mark& mark) override;
  device::Answer make_mark(void* stream, device::Mark& mark) override;
  device::Answer split(int color, int key, std::unique_ptr<device::Group>& made) override;
  void abort() noexcept override;
  bool end(bool in_order, std::chrono::steady_clock::duration limit) noexcept override;
  bool can_shrink() override;
  bool can_revoke() override;
  device::Answer shrink(std::span<const int> gone, bool is_quiet,
                        std::unique_ptr<device::Group>& made) override;
  device::Answer revoke() override;
  void* add_memory(void* memory, std::size_t bytes) noexcept override;
  void remove_memory(void* handle) noexcept override;

 private:
  using Inside = CommHandle::Inside;

  device::Answer answer_of(NcclResult result, const char* function, NcclComm comm) const;
  template <class Make>
  device::Answer make(const char* function, std::unique_ptr<device::Group>& made,
                      const Make& function_of);
  // On the stream, with the context current.
  device::Answer record(void* stream, device::Mark& mark);
  device::Answer copy(const device::Plan& plan, void* stream);
  /// The communicator for calls.
  CommHandle& calling() const { return calls_ ? *calls_ : *handle_; }
  /// Goes on making it; pending until it is there.
  device::Answer make_calls(const Inside& inside);
  // Inside NCCL.
  device::Answer state_of(const Inside& inside) const;
  device::Answer follow(const Inside& inside);
  void destroy_ops(const Inside& inside);
  // The same, with the context current.
  device::Answer launch(const Inside& inside, const device::Plan& plan, void* stream);
  NcclResult launch(NcclComm comm, const device::Step& step, NcclDType dtype, NcclRedOp op,
                    void* stream);
  device::Answer make_op(const Inside& inside, const device::Plan& plan, NcclRedOp& op);

  const Uses uses_;
  const std::shared_ptr<CommHandle> handle_ = std::make_shared<CommHandle>(uses_);
  std::shared_ptr<Slot> slot_;  ///< Where the communicator will come from; null once it is there.
  std::shared_ptr<CommHandle> calls_;  ///< Null: calls use the other one.
  std::shared_ptr<Slot> calls_slot_;   ///< Where that one will come from.
  std::vector<NcclRedOp>
      ops_;  ///< Used inside NCCL: operations of calls that may not be on their stream yet.
};

}  // namespace dlaunch::nccl
