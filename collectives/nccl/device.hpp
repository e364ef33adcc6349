#pragma once

#include "collectives/device/library.hpp"
#include "collectives/nccl/cuda_api.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace dlaunch::nccl {

/// The devices of this process from the driver, with their primary contexts, which the CUDA runtime
/// uses, too. For any number of threads.
class Devices {
 public:
  explicit Devices(const CudaApi& api) : cuda(api) {}
  /// The number of devices; 0: see `answer`.
  int count(device::Answer& answer);
  /// The device's context, which is kept; null: see `answer`.
  CuContext context_of(int device, device::Answer& answer);
  /// A failure if `result` is one: "cuEventRecord failed: invalid argument".
  device::Answer answer_of(CuResult result, const char* function) const;
  /// Whether this stream is being captured into a graph. The device's context is current.
  device::Answer is_capturing(CuStream stream, bool& capturing) const;

  const CudaApi cuda;

 private:
  bool make_ready(device::Answer& answer);

  std::mutex mutex_;
  bool ready_ = false;
  std::map<int, CuContext> contexts_;
};

/// While it lives, the thread works on that device, and its calls to CUDA do not spoil captures
/// elsewhere, which in other modes forbid such calls on this thread, or on all.
class Current {
 public:
  Current(const CudaApi& cuda, CuContext context) : cuda_(cuda) {
    cuda_.push_current(context);
    cuda_.exchange_capture_mode(&mode_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    cuda_.exchange_capture_mode(&mode_);
    CuContext popped = nullptr;
    cuda_.pop_current(&popped);
  }

 private:
  const CudaApi& cuda_;
  int mode_ = cu_capture_mode_relaxed;  ///< The thread's own mode, while exchanged.
};

inline CuDevicePtr address_of(const void* pointer) {
  return static_cast<CuDevicePtr>(reinterpret_cast<std::uintptr_t>(pointer));
}

class StreamEvent final : public device::Event {
 public:
  StreamEvent(const Devices& devices, CuContext context) : devices_(devices), context_(context) {}
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  ~StreamEvent() override;

  /// Records the event anew; its earlier place is forgotten. Its context is current.
  device::Answer record(CuStream stream);
  device::Answer query() override;
  device::Answer order_before(void* stream) override;

 private:
  const Devices& devices_;
  CuContext context_;
  CuEvent event_ = nullptr;
};

}  // namespace dlaunch::nccl
