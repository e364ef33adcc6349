#pragma once

#include <cstdint>
#include <functional>

/// A test double of the CUDA driver, libcuda.so.1, for tests of what dlaunch does with it where
/// there is no GPU. "Device memory" is host memory; a stream is a thread that does what was put on
/// it, in order. It shows nothing about CUDA itself.
namespace dlaunch::cuda_double {

constexpr int devices = 9;

struct Stream;
Stream* make_stream(int device);
/// What is put on it from now on is kept, and not done; replay() does it once more each time.
void begin_capture(Stream* stream);
void end_capture(Stream* stream);
void replay(Stream* stream);
/// Until everything that is on it is done. Nothing of dlaunch calls it.
void synchronize(Stream* stream);

/// Streams begin nothing while they are held.
void hold_streams(bool hold);
/// Streams do nothing of what is put on them, and are done with it at once: for measuring what it
/// costs to put it there.
void swallow(bool swallows);
bool swallows();
/// Events that were asked for while a stream was captured: CUDA would end the capture.
std::uint64_t forbidden_queries();

/// For the double of NCCL: puts work on a stream; null is the default one of the current device.
void put(void* stream, std::function<void()> work);

}  // namespace dlaunch::cuda_double
