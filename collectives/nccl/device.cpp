#include "collectives/nccl/device.hpp"

namespace dlaunch::nccl {

using device::Answer;

Answer Devices::answer_of(CuResult result, const char* function) const {
  if (result == cu_success) return {};
  const char* text = nullptr;
  cuda.get_error_string(result, &text);
  return Answer::failed(Errc::internal, std::string(function) + " failed: " +
                                            (text != nullptr ? text : std::to_string(result)));
}

/// The default stream cannot be captured. It is not asked, since that would spoil the capture of
/// another stream of the device.
Answer Devices::is_capturing(CuStream stream, bool& capturing) const {
  capturing = false;
  if (stream == nullptr) return {};
  int status = cu_capture_none;
  Answer answer = answer_of(cuda.stream_is_capturing(stream, &status), "cuStreamIsCapturing");
  capturing = status != cu_capture_none;
  return answer;
}

bool Devices::make_ready(Answer& answer) {
  if (ready_) return true;
  answer = answer_of(cuda.init(0), "cuInit");
  if (answer.has_failed()) answer.code = Errc::unsupported;
  return ready_ = answer.is_done();
}

int Devices::count(Answer& answer) {
  const std::lock_guard lock(mutex_);
  int count = 0;
  if (!make_ready(answer)) return 0;
  answer = answer_of(cuda.device_get_count(&count), "cuDeviceGetCount");
  return answer.is_done() ? count : 0;
}

CuContext Devices::context_of(int device, Answer& answer) {
  const std::lock_guard lock(mutex_);
  if (const auto known = contexts_.find(device); known != contexts_.end()) return known->second;
  if (!make_ready(answer)) return nullptr;
  int count = 0;
  answer = answer_of(cuda.device_get_count(&count), "cuDeviceGetCount");
  if (answer.has_failed()) return nullptr;
  if (device < 0 || device >= count) {
    answer = Answer::failed(Errc::misuse, "there is no CUDA device " + std::to_string(device) +
                                              ", this process has " + std::to_string(count) +
                                              " (see CUDA_VISIBLE_DEVICES)");
    return nullptr;
  }
  CuDevice handle = 0;
  answer = answer_of(cuda.device_get(&handle, device), "cuDeviceGet");
  if (answer.has_failed()) return nullptr;
  CuContext context = nullptr;
  answer = answer_of(cuda.primary_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  if (answer.has_failed()) return nullptr;
  contexts_.emplace(device, context);
  return context;
}

StreamEvent::~StreamEvent() {
  if (event_ == nullptr) return;
  const Current current(devices_.cuda, context_);
  devices_.cuda.event_destroy(event_);
}

Answer StreamEvent::record(CuStream stream) {
  if (event_ == nullptr) {
    const auto made = devices_.answer_of(
        devices_.cuda.event_create(&event_, cu_event_disable_timing), "cuEventCreate");
    if (made.has_failed()) return made;
  }
  return devices_.answer_of(devices_.cuda.event_record(event_, stream), "cuEventRecord");
}

Answer StreamEvent::query() {
  const Current current(devices_.cuda, context_);
  const CuResult result = devices_.cuda.event_query(event_);
  if (result == cu_not_ready) return Answer::pending();
  return devices_.answer_of(result, "a call on the device");
}

Answer StreamEvent::order_before(void* stream) {
  const Current current(devices_.cuda, context_);
  return devices_.answer_of(devices_.cuda.stream_wait_event(stream, event_, 0),
                            "cuStreamWaitEvent");
}

}  // namespace dlaunch::nccl
