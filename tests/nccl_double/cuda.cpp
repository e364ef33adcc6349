#include "tests/nccl_double/cuda.hpp"

#include "collectives/nccl/cuda_api.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using dlaunch::nccl::CuDevicePtr;
using dlaunch::nccl::CuResult;

namespace dlaunch::cuda_double {
struct Stream;

namespace {

constexpr CuResult invalid_value = 1;
constexpr CuResult invalid_device = 101;
constexpr CuResult capture_unsupported = 900;
constexpr CuResult capture_invalidated = 901;
constexpr int device_ordinal_attribute = 9;

std::atomic<bool> swallows_all{false};

/// A capture that goes on.
struct Capture {
  std::thread::id thread;
  CaptureMode mode{};
  bool spoiled = false;
};
std::mutex captures_mutex;
std::map<Stream*, Capture>& captures() {
  static auto* const all = new std::map<Stream*, Capture>;
  return *all;
}
thread_local CaptureMode own_mode = CaptureMode::global;

std::mutex hold_mutex;
std::condition_variable hold_changed;
bool held = false;

void wait_while_held() {
  std::unique_lock lock(hold_mutex);
  hold_changed.wait(lock, [] { return !held; });
}

}  // namespace

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::vector<std::function<void()>> captured;
  bool busy = false;
  bool capturing = false;

  void put_now(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex);
        busy = false;
        changed.notify_all();
        changed.wait(lock, [&] { return !queue.empty(); });
        busy = true;
        work = std::move(queue.front());
        queue.pop_front();
      }
      wait_while_held();
      work();
    }
  }
};

namespace {

/// Streams last as long as the process, as their threads do.
Stream* new_stream() {
  auto* const stream = new Stream;
  std::thread([stream] { stream->run(); }).detach();
  return stream;
}

struct Device {
  std::once_flag once;
  Stream* default_stream = nullptr;
};
Device& device_at(std::size_t ordinal) {
  static auto* const all = new std::array<Device, devices>;
  return (*all)[ordinal];
}

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

thread_local std::vector<Device*> current;

/// The default one of the current device for null, and for CU_STREAM_LEGACY.
Stream* stream_of(void* handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) > 1) return static_cast<Stream*>(handle);
  Device& device = *current.back();
  std::call_once(device.once, [&] { device.default_stream = new_stream(); });
  return device.default_stream;
}

}  // namespace

void* device_address(const void* host) {
  const auto address = reinterpret_cast<std::uintptr_t>(host);
  return reinterpret_cast<void*>(host == nullptr ? address : address | device_bit);
}

void* host_address(const void* device) {
  const auto address = reinterpret_cast<std::uintptr_t>(device);
  if (device != nullptr && !is_device_address(device)) {
    std::fprintf(stderr, "the device was given %p, which is an address of the host\n", device);
    std::abort();
  }
  return reinterpret_cast<void*>(address & ~device_bit);
}

Stream* make_stream(int /*device*/) { return new_stream(); }

void begin_capture(Stream* stream, CaptureMode mode) {
  destroy_graph(stream);
  {
    const std::lock_guard lock(captures_mutex);
    captures()[stream] = {std::this_thread::get_id(), mode};
  }
  const std::lock_guard lock(stream->mutex);
  stream->capturing = true;
}

bool end_capture(Stream* stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->capturing = false;
  }
  bool spoiled = false;
  {
    const std::lock_guard lock(captures_mutex);
    spoiled = captures().at(stream).spoiled;
    captures().erase(stream);
  }
  if (spoiled) destroy_graph(stream);
  return !spoiled;
}

void destroy_graph(Stream* stream) {
  std::vector<std::function<void()>> graph;
  const std::lock_guard lock(stream->mutex);
  graph.swap(stream->captured);
}

bool is_capturing(Stream* stream) {
  const std::lock_guard lock(stream->mutex);
  return stream->capturing;
}

bool is_forbidden() {
  if (own_mode == CaptureMode::relaxed) return false;
  bool forbidden = false;
  const std::lock_guard lock(captures_mutex);
  for (auto& [stream, capture] : captures()) {
    const bool own = capture.thread == std::this_thread::get_id();
    const bool counts =
        own ? capture.mode != CaptureMode::relaxed
            : capture.mode == CaptureMode::global && own_mode == CaptureMode::global;
    if (counts) forbidden = capture.spoiled = true;
  }
  return forbidden;
}

void replay(Stream* stream) {
  const std::lock_guard lock(stream->mutex);
  for (const auto& work : stream->captured) stream->queue.push_back(work);
  stream->changed.notify_all();
}

void synchronize(Stream* stream) {
  std::unique_lock lock(stream->mutex);
  stream->changed.wait(lock, [&] { return stream->queue.empty() && !stream->busy; });
}

void hold_streams(bool hold) {
  const std::lock_guard lock(hold_mutex);
  held = hold;
  hold_changed.notify_all();
}

void swallow(bool swallows) { swallows_all = swallows; }
bool swallows() { return swallows_all; }

Stream* find_stream(void* handle) { return stream_of(handle); }

void put(void* handle, std::function<void()> work) {
  Stream* const stream = stream_of(handle);
  {
    const std::lock_guard lock(stream->mutex);
    if (stream->capturing) {
      stream->captured.push_back(std::move(work));
      return;
    }
  }
  stream->put_now(std::move(work));
}

}  // namespace dlaunch::cuda_double

namespace {

using namespace dlaunch::cuda_double;
using SharedEvent = std::shared_ptr<dlaunch::cuda_double::Event>;

SharedEvent& event_at(void* handle) { return *static_cast<SharedEvent*>(handle); }

void* device_memory(CuDevicePtr address) { return host_address(reinterpret_cast<void*>(address)); }

/// cuMemcpy takes addresses of both kinds.
void* any_memory(CuDevicePtr address) {
  void* const memory = reinterpret_cast<void*>(address);
  return is_device_address(memory) ? host_address(memory) : memory;
}

}  // namespace

extern "C" {

CuResult cuInit(unsigned /*flags*/) { return 0; }
CuResult cuGetErrorString(CuResult error, const char** text) {
  *text = error == invalid_device ? "invalid device ordinal" : "an error of the double";
  return 0;
}
CuResult cuDeviceGetCount(int* count) {
  *count = devices;
  return 0;
}
CuResult cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= devices) return invalid_device;
  *device = ordinal;
  return 0;
}
CuResult cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &device_at(static_cast<std::size_t>(device));
  return 0;
}
CuResult cuCtxPushCurrent_v2(void* context) {
  current.push_back(static_cast<Device*>(context));
  return 0;
}
CuResult cuCtxSetCurrent(void* context) {
  current.assign(1, static_cast<Device*>(context));
  return 0;
}
CuResult cuCtxPopCurrent_v2(void** context) {
  if (current.empty()) return invalid_value;
  *context = current.back();
  current.pop_back();
  return 0;
}
CuResult cuEventCreate(void** event, unsigned /*flags*/) {
  *event = new SharedEvent(std::make_shared<dlaunch::cuda_double::Event>());
  return 0;
}
CuResult cuEventRecord(void* event, void* stream) {
  // Waits for it as it was recorded before go on.
  if (swallows()) {
    event_at(event)->done = true;
    return 0;
  }
  event_at(event) = std::make_shared<dlaunch::cuda_double::Event>();
  put(stream, [state = event_at(event)] {
    const std::lock_guard lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  });
  return 0;
}
CuResult cuEventQuery(void* event) {
  if (is_forbidden()) return capture_unsupported;
  const std::lock_guard lock(event_at(event)->mutex);
  return event_at(event)->done ? 0 : dlaunch::nccl::cu_not_ready;
}
CuResult cuEventDestroy_v2(void* event) {
  delete &event_at(event);
  return 0;
}
CuResult cuStreamWaitEvent(void* stream, void* event, unsigned /*flags*/) {
  put(stream, [state = event_at(event)] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->done; });
  });
  return 0;
}
CuResult cuStreamIsCapturing(void* stream, int* status) {
  Stream* const asked = stream_of(stream);
  const std::lock_guard lock(asked->mutex);
  *status = asked->capturing ? 1 : 0;
  return 0;
}
CuResult cuStreamBeginCapture_v2(void* stream, int mode) {
  begin_capture(static_cast<Stream*>(stream), static_cast<CaptureMode>(mode));
  return 0;
}
CuResult cuStreamEndCapture(void* stream, void** graph) {
  const bool valid = end_capture(static_cast<Stream*>(stream));
  *graph = valid ? stream : nullptr;
  return valid ? 0 : capture_invalidated;
}
CuResult cuThreadExchangeStreamCaptureMode(int* mode) {
  *mode = static_cast<int>(std::exchange(own_mode, static_cast<CaptureMode>(*mode)));
  return 0;
}
CuResult cuGraphDestroy(void* /*graph*/) { return 0; }
CuResult cuGraphExecDestroy(void* ready) {
  destroy_graph(static_cast<Stream*>(ready));
  return 0;
}
CuResult cuGraphInstantiateWithFlags(void** ready, void* graph, unsigned long long /*flags*/) {
  *ready = graph;
  return 0;
}
CuResult cuGraphLaunch(void* ready, void* stream) {
  if (ready != stream) return invalid_value;  // Is kept by the stream that it was captured from.
  replay(static_cast<Stream*>(stream));
  return 0;
}
CuResult cuMemcpyDtoDAsync_v2(CuDevicePtr to, CuDevicePtr from, std::size_t bytes, void* stream) {
  put(stream, [to = device_memory(to), from = device_memory(from), bytes] {
    std::memcpy(to, from, bytes);
  });
  return 0;
}
CuResult cuMemcpy(CuDevicePtr to, CuDevicePtr from, std::size_t bytes) {
  if (is_forbidden()) return capture_unsupported;
  std::memcpy(any_memory(to), any_memory(from), bytes);
  return 0;
}
CuResult cuMemsetD8Async(CuDevicePtr to, unsigned char value, std::size_t bytes, void* stream) {
  put(stream, [to = device_memory(to), value, bytes] { std::memset(to, value, bytes); });
  return 0;
}
CuResult cuStreamCreate(void** stream, unsigned flags) {
  if (flags != dlaunch::nccl::cu_stream_non_blocking) return invalid_value;
  *stream = make_stream(0);
  return 0;
}
CuResult cuStreamDestroy_v2(void* /*stream*/) { return 0; }
CuResult cuStreamSynchronize(void* stream) {
  synchronize(stream_of(stream));
  return 0;
}
CuResult cuMemAlloc_v2(CuDevicePtr* memory, std::size_t bytes) {
  if (is_forbidden()) return capture_unsupported;
  *memory = reinterpret_cast<CuDevicePtr>(device_address(::operator new(bytes)));
  return 0;
}
CuResult cuPointerGetAttribute(void* value, int attribute, CuDevicePtr address) {
  if (attribute != device_ordinal_attribute ||
      !is_device_address(reinterpret_cast<void*>(address))) {
    return invalid_value;
  }
  *static_cast<int*>(value) = 0;
  return 0;
}
CuResult cuMemFree_v2(CuDevicePtr memory) {
  if (is_forbidden()) return capture_unsupported;
  ::operator delete(device_memory(memory));
  return 0;
}

}  // extern "C"
