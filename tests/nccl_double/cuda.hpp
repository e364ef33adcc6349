#pragma once

#include <cstdint>
#include <functional>

/// A test double of the CUDA driver, libcuda.so.1, for tests of what dlaunch does with it where
/// there is no GPU. Device memory is host memory under other addresses, at which the host faults; a
/// stream is a thread that does what was put on it, in order. It shows nothing about CUDA itself.
namespace dlaunch::cuda_double {

constexpr int devices = 9;

/// An address with this bit is one that no processor lets a process read or write: what of dlaunch
/// touches a device's memory by itself ends with SIGSEGV here, as it does on a GPU.
constexpr std::uintptr_t device_bit = std::uintptr_t{1} << 55;
inline bool is_device_address(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & device_bit) != 0;
}
/// The device's address of what lies there; null for null.
void* device_address(const void* host);
/// The other way, for what streams do. Aborts for an address of the host, which a GPU cannot use.
void* host_address(const void* device);

struct Stream;
Stream* make_stream(int device);
/// As CUDA numbers them.
enum class CaptureMode { global, thread_local_, relaxed };
/// Work that is put on it from now on is kept, and not done; replay() does it once more each time,
/// until destroy_graph() or the next capture. As in CUDA some functions are forbidden meanwhile: to
/// all threads, or to the one that began, unless they exchanged their mode.
void begin_capture(Stream* stream, CaptureMode mode = CaptureMode::global);
/// False where a forbidden function was called: there is no graph.
bool end_capture(Stream* stream);
void replay(Stream* stream);
void destroy_graph(Stream* stream);
/// Until everything that is on it is done. Nothing of dlaunch calls it.
void synchronize(Stream* stream);

/// Streams begin nothing while they are held.
void hold_streams(bool hold);
/// Streams do nothing of what is put on them, and are done with it at once: for measuring what it
/// costs to put it there.
void swallow(bool swallows);
bool swallows();

// For the double of NCCL.
/// The default one of the current device for null.
Stream* find_stream(void* handle);
/// Puts work on it; null as above.
void put(void* stream, std::function<void()> work);
bool is_capturing(Stream* stream);
/// Whether the function that asks may not be called now, which spoils what is being captured.
bool is_forbidden();

}  // namespace dlaunch::cuda_double
