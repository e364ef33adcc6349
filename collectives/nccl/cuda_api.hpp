#pragma once

#include <cstddef>

/// The part of the CUDA driver's interface (libcuda.so.1) that is used, declared here so that
/// nothing of CUDA is needed to build. check_declarations.cpp compares it with the real header
/// where that is found.
namespace dlaunch::nccl {

using CuResult = int;
using CuDevice = int;
using CuContext = void*;
using CuStream = void*;
using CuEvent = void*;
using CuDevicePtr = unsigned long long;

constexpr CuResult cu_success = 0;
constexpr CuResult cu_not_ready = 600;
constexpr unsigned cu_event_disable_timing = 2;
constexpr int cu_capture_none = 0;
constexpr int cu_capture_mode_relaxed = 2;
constexpr unsigned cu_stream_non_blocking = 1;

struct CudaApi {
  CuResult (*init)(unsigned flags);
  CuResult (*get_error_string)(CuResult error, const char** text);
  CuResult (*device_get_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*primary_retain)(CuContext* context, CuDevice device);
  CuResult (*push_current)(CuContext context);
  CuResult (*pop_current)(CuContext* context);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_query)(CuEvent event);
  CuResult (*event_destroy)(CuEvent event);
  CuResult (*stream_wait_event)(CuStream stream, CuEvent event, unsigned flags);
  CuResult (*stream_is_capturing)(CuStream stream, int* status);
  CuResult (*exchange_capture_mode)(int* mode);
  CuResult (*copy_async)(CuDevicePtr to, CuDevicePtr from, std::size_t bytes, CuStream stream);
  CuResult (*copy)(CuDevicePtr to, CuDevicePtr from, std::size_t bytes);
  CuResult (*fill_async)(CuDevicePtr to, unsigned char value, std::size_t bytes, CuStream stream);
  CuResult (*stream_create)(CuStream* stream, unsigned flags);
  CuResult (*stream_destroy)(CuStream stream);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*mem_alloc)(CuDevicePtr* memory, std::size_t bytes);
  CuResult (*mem_free)(CuDevicePtr memory);
};

}  // namespace dlaunch::nccl
