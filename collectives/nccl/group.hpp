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
  device::Answer enqueue(const device::Plan& plan, void* stream) override;
  device::Answer mark(void* stream, std::unique_ptr<device::Event>& made) override;
  device::Answer split(int color, int key, std::unique_ptr<device::Group>& made) override;
  void abort() noexcept override;

 private:
  // With the mutex held.
  device::Answer answer_of(NcclResult result, const char* function);
  device::Answer copy(const device::Plan& plan, void* stream);
  device::Answer launch(const device::Plan& plan, void* stream);
  NcclResult launch(const device::Step& step, NcclDType dtype, NcclRedOp op, void* stream);
  device::Answer make_op(const device::Plan& plan, NcclRedOp& op);

  const NcclApi& nccl_;
  const Devices& devices_;
  const CuContext context_;
  std::mutex mutex_;
  NcclComm comm_ = nullptr;
  bool aborted_ = false;
  std::vector<NcclRedOp> ops_;  ///< Of calls that may not be on their stream yet.
};

}  // namespace dlaunch::nccl
