// Compiled where CUDA's or NCCL's real header is found, and linked into nothing: it compares what
// cuda_api.hpp and nccl_api.hpp declare with what the libraries do.
#include "collectives/nccl/cuda_api.hpp"
#include "collectives/nccl/nccl_api.hpp"

#include <cstddef>
#include <type_traits>

namespace dlaunch::nccl {
namespace {

/// Whether two types are equal in a call: both are pointers, numbers or enumerations of one size,
/// or structs of one size and alignment.
template <class Ours, class Theirs>
constexpr bool same_value = std::is_pointer_v<Ours> ==
                                std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
                                std::is_class_v<Theirs> &&
                            sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

template <class Ours, class Theirs>
struct same_call : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct same_call<R (*)(A...), S(B...)>
    : std::bool_constant<same_value<R, S> && (same_value<A, B> && ...)> {
};

template <class Ours, class Theirs>
consteval bool same(Ours CudaApi::*, Theirs&) {
  return same_call<Ours, Theirs>::value;
}
template <class Ours, class Theirs>
consteval bool same(Ours NcclApi::*, Theirs&) {
  return same_call<Ours, Theirs>::value;
}

}  // namespace
}  // namespace dlaunch::nccl

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace dlaunch::nccl {

static_assert(cu_success == CUDA_SUCCESS && cu_not_ready == CUDA_ERROR_NOT_READY);
static_assert(cu_event_disable_timing == CU_EVENT_DISABLE_TIMING);
static_assert(cu_capture_none == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(same(&CudaApi::init, ::cuInit));
static_assert(same(&CudaApi::get_error_string, ::cuGetErrorString));
static_assert(same(&CudaApi::device_get_count, ::cuDeviceGetCount));
static_assert(same(&CudaApi::device_get, ::cuDeviceGet));
static_assert(same(&CudaApi::primary_retain, ::cuDevicePrimaryCtxRetain));
static_assert(same(&CudaApi::push_current, ::cuCtxPushCurrent_v2));
static_assert(same(&CudaApi::pop_current, ::cuCtxPopCurrent_v2));
static_assert(same(&CudaApi::event_create, ::cuEventCreate));
static_assert(same(&CudaApi::event_record, ::cuEventRecord));
static_assert(same(&CudaApi::event_query, ::cuEventQuery));
static_assert(same(&CudaApi::event_destroy, ::cuEventDestroy_v2));
static_assert(same(&CudaApi::stream_wait_event, ::cuStreamWaitEvent));
static_assert(same(&CudaApi::stream_is_capturing, ::cuStreamIsCapturing));
static_assert(cu_capture_mode_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(same(&CudaApi::exchange_capture_mode, ::cuThreadExchangeStreamCaptureMode));
static_assert(same(&CudaApi::copy_async, ::cuMemcpyDtoDAsync_v2));
static_assert(cu_stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(same(&CudaApi::copy, ::cuMemcpy));
static_assert(same(&CudaApi::fill_async, ::cuMemsetD8Async));
static_assert(same(&CudaApi::stream_create, ::cuStreamCreate));
static_assert(same(&CudaApi::stream_destroy, ::cuStreamDestroy_v2));
static_assert(same(&CudaApi::stream_synchronize, ::cuStreamSynchronize));
static_assert(same(&CudaApi::mem_alloc, ::cuMemAlloc_v2));
static_assert(same(&CudaApi::mem_free, ::cuMemFree_v2));

}  // namespace dlaunch::nccl
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace dlaunch::nccl {

static_assert(nccl_success == ncclSuccess && nccl_remote_error == ncclRemoteError);
static_assert(nccl_in_progress == ncclInProgress && nccl_split_no_color == NCCL_SPLIT_NOCOLOR);
static_assert(nccl_i8 == int{ncclInt8} && nccl_u8 == int{ncclUint8});
static_assert(nccl_i32 == int{ncclInt32} && nccl_u32 == int{ncclUint32});
static_assert(nccl_i64 == int{ncclInt64} && nccl_u64 == int{ncclUint64});
static_assert(nccl_f16 == int{ncclFloat16} && nccl_bf16 == int{ncclBfloat16});
static_assert(nccl_f32 == int{ncclFloat32} && nccl_f64 == int{ncclFloat64});
static_assert(nccl_sum == ncclSum && nccl_prod == ncclProd && nccl_avg == ncclAvg);
static_assert(nccl_min == ncclMin && nccl_max == ncclMax);
static_assert(nccl_scalar_host_immediate == ncclScalarHostImmediate);
static_assert(same_value<NcclUniqueId, ncclUniqueId>);
constexpr ncclConfig_t their_config = NCCL_CONFIG_INITIALIZER;
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(NcclConfig{}.magic == their_config.magic);
static_assert(NcclConfig::undefined == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(same(&NcclApi::get_version, ::ncclGetVersion));
static_assert(same(&NcclApi::get_error_string, ::ncclGetErrorString));
static_assert(same(&NcclApi::get_last_error, ::ncclGetLastError));
static_assert(same(&NcclApi::get_unique_id, ::ncclGetUniqueId));
static_assert(same(&NcclApi::comm_init, ::ncclCommInitRankConfig));
static_assert(same(&NcclApi::comm_split, ::ncclCommSplit));
static_assert(same(&NcclApi::comm_abort, ::ncclCommAbort));
static_assert(same(&NcclApi::comm_finalize, ::ncclCommFinalize));
static_assert(same(&NcclApi::comm_destroy, ::ncclCommDestroy));
static_assert(same(&NcclApi::get_async_error, ::ncclCommGetAsyncError));
static_assert(same(&NcclApi::group_start, ::ncclGroupStart));
static_assert(same(&NcclApi::group_end, ::ncclGroupEnd));
static_assert(same(&NcclApi::all_reduce, ::ncclAllReduce));
static_assert(same(&NcclApi::reduce, ::ncclReduce));
static_assert(same(&NcclApi::broadcast, ::ncclBroadcast));
static_assert(same(&NcclApi::all_gather, ::ncclAllGather));
static_assert(same(&NcclApi::reduce_scatter, ::ncclReduceScatter));
static_assert(same(&NcclApi::send, ::ncclSend));
static_assert(same(&NcclApi::recv, ::ncclRecv));
static_assert(same(&NcclApi::make_premul_sum, ::ncclRedOpCreatePreMulSum));
static_assert(same(&NcclApi::destroy_op, ::ncclRedOpDestroy));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
static_assert(same(&NcclApi::mem_alloc, ::ncclMemAlloc));
static_assert(same(&NcclApi::mem_free, ::ncclMemFree));
static_assert(same(&NcclApi::comm_register, ::ncclCommRegister));
static_assert(same(&NcclApi::comm_deregister, ::ncclCommDeregister));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static_assert(nccl_shrink_default == NCCL_SHRINK_DEFAULT && nccl_shrink_abort == NCCL_SHRINK_ABORT);
static_assert(same(&NcclApi::comm_shrink, ::ncclCommShrink));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
static_assert(nccl_revoke_default == NCCL_REVOKE_DEFAULT);
static_assert(same(&NcclApi::comm_revoke, ::ncclCommRevoke));
#endif

}  // namespace dlaunch::nccl
#endif
