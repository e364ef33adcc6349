#pragma once

#include "collectives/device/library.hpp"
#include "collectives/nccl/device.hpp"
#include "collectives/nccl/nccl_api.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace dlaunch::nccl {

/// An ncclComm. It never blocks: what NCCL does behind a call is asked for by progress().
class NcclGroup final : public device::Group {
 public:
  NcclGroup(const NcclApi& nccl, const Devices& devices, CuContext context)
      : nccl_(nccl), devices_(devices), context_(context) {}
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override { abort(); }

  device::Answer join(const device::Id& id, int rank, int size);
  device::Answer progress() override;
  device::Answer enqueue(const device::Plan& plan, void* stream, device::Mark& mark) override;
  device::Answer make_mark(void* stream, device::Mark& mark) override;
  device::Answer split(int color, int key, std::unique_ptr<device::Group>& made) override;
  void abort() noexcept override;
  bool can_shrink() override;
  bool can_revoke() override;
  device::Answer shrink(std::span<const int> gone, bool is_quiet,
                        std::unique_ptr<device::Group>& made) override;
  device::Answer revoke() override;
  void* add_memory(void* memory, std::size_t bytes) noexcept override;
  void remove_memory(void* handle) noexcept override;

 private:
  // With the mutex held, and the context current.
  device::Answer answer_of(NcclResult result, const char* function);
  device::Answer follow();
  device::Answer record(void* stream, device::Mark& mark);
  device::Answer copy(const device::Plan& plan, void* stream);
  device::Answer launch(const device::Plan& plan, void* stream);
  NcclResult launch(const device::Step& step, NcclDType dtype, NcclRedOp op, void* stream);
  device::Answer make_op(const device::Plan& plan, NcclRedOp& op);

  const NcclApi& nccl_;
  const Devices& devices_;
  const CuContext context_;
  std::mutex mutex_;
  NcclComm comm_ = nullptr;     ///< Null once it was aborted.
  bool ended_ = false;          ///< Revoked, or aborted: nothing can be put on a stream.
  std::vector<NcclRedOp> ops_;  ///< Of calls that may not be on their stream yet.
};

}  // namespace dlaunch::nccl
