#pragma once

#include <climits>
#include <cstddef>

/// The part of NCCL's interface (libnccl.so.2, from 2.18 on) that is used, declared here so that
/// nothing of NCCL is needed to build. check_declarations.cpp compares it with the real header
/// where that is found.
namespace dlaunch::nccl {

using NcclResult = int;
using NcclComm = void*;
using NcclStream = void*;

constexpr NcclResult nccl_success = 0;
constexpr NcclResult nccl_remote_error = 6;
constexpr NcclResult nccl_in_progress = 7;
constexpr int nccl_split_no_color = -1;
constexpr int nccl_shrink_default = 0;
constexpr int nccl_shrink_abort = 1;
constexpr int nccl_revoke_default = 0;

enum NcclDType : int {
  nccl_i8 = 0,
  nccl_u8 = 1,
  nccl_i32 = 2,
  nccl_u32 = 3,
  nccl_i64 = 4,
  nccl_u64 = 5,
  nccl_f16 = 6,
  nccl_f32 = 7,
  nccl_f64 = 8,
  nccl_bf16 = 9,
};

using NcclRedOp = int;
constexpr NcclRedOp nccl_sum = 0;
constexpr NcclRedOp nccl_prod = 1;
constexpr NcclRedOp nccl_max = 2;
constexpr NcclRedOp nccl_min = 3;
constexpr NcclRedOp nccl_avg = 4;
constexpr int nccl_scalar_host_immediate = 1;

struct NcclUniqueId {
  char internal[128];
};

/// As in 2.18: a later library takes fields beyond `size` as not given.
struct NcclConfig {
  static constexpr int undefined = INT_MIN;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21801;
  int blocking = undefined;
  int cga_cluster_size = undefined;
  int min_ctas = undefined;
  int max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
};

struct NcclApi {
  NcclResult (*get_version)(int* version);
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(NcclComm comm);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init)(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config);
  NcclResult (*comm_split)(NcclComm comm, int color, int key, NcclComm* made, NcclConfig* config);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*comm_finalize)(NcclComm comm);
  NcclResult (*comm_destroy)(NcclComm comm);
  NcclResult (*get_async_error)(NcclComm comm, NcclResult* error);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*all_reduce)(const void* in, void* out, std::size_t count, NcclDType dtype,
                           NcclRedOp op, NcclComm comm, NcclStream stream);
  NcclResult (*reduce)(const void* in, void* out, std::size_t count, NcclDType dtype, NcclRedOp op,
                       int root, NcclComm comm, NcclStream stream);
  NcclResult (*broadcast)(const void* in, void* out, std::size_t count, NcclDType dtype, int root,
                          NcclComm comm, NcclStream stream);
  NcclResult (*all_gather)(const void* in, void* out, std::size_t count, NcclDType dtype,
                           NcclComm comm, NcclStream stream);
  NcclResult (*reduce_scatter)(const void* in, void* out, std::size_t count, NcclDType dtype,
                               NcclRedOp op, NcclComm comm, NcclStream stream);
  NcclResult (*send)(const void* in, std::size_t count, NcclDType dtype, int peer, NcclComm comm,
                     NcclStream stream);
  NcclResult (*recv)(void* out, std::size_t count, NcclDType dtype, int peer, NcclComm comm,
                     NcclStream stream);
  NcclResult (*make_premul_sum)(NcclRedOp* op, void* scalar, NcclDType dtype, int residence,
                                NcclComm comm);
  NcclResult (*destroy_op)(NcclRedOp op, NcclComm comm);
  // From 2.19 on; null before.
  NcclResult (*mem_alloc)(void** memory, std::size_t bytes);
  NcclResult (*mem_free)(void* memory);
  NcclResult (*comm_register)(NcclComm comm, void* memory, std::size_t bytes, void** handle);
  NcclResult (*comm_deregister)(NcclComm comm, void* handle);
  // From 2.27 on; null before.
  NcclResult (*comm_shrink)(NcclComm comm, int* excluded, int excluded_count, NcclComm* made,
                            NcclConfig* config, int flags);
  // From 2.28.7 on; null before.
  NcclResult (*comm_revoke)(NcclComm comm, int flags);
};

}  // namespace dlaunch::nccl
