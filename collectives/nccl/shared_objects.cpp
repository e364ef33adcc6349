#include "collectives/nccl/shared_objects.hpp"

#include <cstdlib>

#include <dlfcn.h>

namespace dlaunch::nccl {
namespace {

/// The first version with ncclCommSplit, and with a configuration that begins as today's.
constexpr int version_min = 21800;

/// One loaded library, and how its functions are found.
class SharedObject {
 public:
  SharedObject(const char* what, const char* file, const char* variable, const char* advice)
      : what_(what) {
    const char* named = std::getenv(variable);
    file_ = named != nullptr && *named != '\0' ? named : file;
    handle_ = ::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    throw Lacking{"CUDA buffers need " + what_ + ", and " + file_ + " cannot be loaded: " +
                  reason() + "; " + advice + ", or name the file in " + variable};
  }

  template <class Function>
  void find(const char* name, Function*& function) const {
    find_optional(name, function);
    if (function == nullptr) {
      throw Lacking{what_ + " is too old, or is something else: " + file_ + " has no " + name};
    }
  }
  template <class Function>
  void find_optional(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  const std::string& file() const { return file_; }

 private:
  static std::string reason() {
    const char* text = ::dlerror();
    return text == nullptr ? "no reason given" : text;
  }

  std::string what_;
  std::string file_;
  void* handle_ = nullptr;
};

/// The file a function lies in; `otherwise` if it is not known.
template <class Function>
std::string file_of(Function* function, const std::string& otherwise) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr) {
    return otherwise;
  }
  return info.dli_fname;
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

CudaApi load_cuda() {
  const SharedObject cuda("the NVIDIA driver", "libcuda.so.1", "DLAUNCH_CUDA_LIBRARY",
                          "install the driver, or give the container its GPUs");
  CudaApi api{};
  cuda.find("cuInit", api.init);
  cuda.find("cuGetErrorString", api.get_error_string);
  cuda.find("cuDeviceGetCount", api.device_get_count);
  cuda.find("cuDeviceGet", api.device_get);
  cuda.find("cuDevicePrimaryCtxRetain", api.primary_retain);
  cuda.find("cuCtxPushCurrent_v2", api.push_current);
  cuda.find("cuCtxPopCurrent_v2", api.pop_current);
  cuda.find("cuEventCreate", api.event_create);
  cuda.find("cuEventRecord", api.event_record);
  cuda.find("cuEventQuery", api.event_query);
  cuda.find("cuEventDestroy_v2", api.event_destroy);
  cuda.find("cuStreamWaitEvent", api.stream_wait_event);
  cuda.find("cuStreamIsCapturing", api.stream_is_capturing);
  cuda.find("cuThreadExchangeStreamCaptureMode", api.exchange_capture_mode);
  cuda.find("cuMemcpyDtoDAsync_v2", api.copy_async);
  cuda.find("cuMemcpy", api.copy);
  cuda.find("cuMemsetD8Async", api.fill_async);
  cuda.find("cuStreamCreate", api.stream_create);
  cuda.find("cuStreamDestroy_v2", api.stream_destroy);
  cuda.find("cuStreamSynchronize", api.stream_synchronize);
  cuda.find("cuMemAlloc_v2", api.mem_alloc);
  cuda.find("cuMemFree_v2", api.mem_free);
  return api;
}

NcclApi load_nccl(std::string& file, int& version) {
  const SharedObject nccl("NCCL", "libnccl.so.2", "DLAUNCH_NCCL_LIBRARY",
                          "install libnccl2 or pip's nvidia-nccl-cu12, put it on LD_LIBRARY_PATH");
  NcclApi api{};
  nccl.find("ncclGetVersion", api.get_version);
  file = file_of(api.get_version, nccl.file());
  const bool known = api.get_version(&version) == nccl_success;
  // 2.8 and before counted otherwise: 2804.
  if (!known || version < version_min) {
    const std::string which = !known            ? "does not tell its version"
                              : version < 10000 ? "is older than 2.9"
                                                : "is " + version_text(version);
    throw Lacking{"CUDA buffers need NCCL " + version_text(version_min) + " or later, and " + file +
                  " " + which + "; name another file in DLAUNCH_NCCL_LIBRARY"};
  }
  nccl.find("ncclGetErrorString", api.get_error_string);
  nccl.find("ncclGetLastError", api.get_last_error);
  nccl.find("ncclGetUniqueId", api.get_unique_id);
  nccl.find("ncclCommInitRankConfig", api.comm_init);
  nccl.find("ncclCommSplit", api.comm_split);
  nccl.find("ncclCommAbort", api.comm_abort);
  nccl.find("ncclCommFinalize", api.comm_finalize);
  nccl.find("ncclCommDestroy", api.comm_destroy);
  nccl.find("ncclCommGetAsyncError", api.get_async_error);
  nccl.find("ncclGroupStart", api.group_start);
  nccl.find("ncclGroupEnd", api.group_end);
  nccl.find("ncclAllReduce", api.all_reduce);
  nccl.find("ncclReduce", api.reduce);
  nccl.find("ncclBroadcast", api.broadcast);
  nccl.find("ncclAllGather", api.all_gather);
  nccl.find("ncclReduceScatter", api.reduce_scatter);
  nccl.find("ncclSend", api.send);
  nccl.find("ncclRecv", api.recv);
  nccl.find("ncclRedOpCreatePreMulSum", api.make_premul_sum);
  nccl.find("ncclRedOpDestroy", api.destroy_op);
  const auto find_since = [&](int since, const char* name, auto& function) {
    if (version >= since) nccl.find_optional(name, function);
  };
  find_since(21900, "ncclMemAlloc", api.mem_alloc);
  find_since(21900, "ncclMemFree", api.mem_free);
  find_since(21900, "ncclCommRegister", api.comm_register);
  find_since(21900, "ncclCommDeregister", api.comm_deregister);
  find_since(22700, "ncclCommShrink", api.comm_shrink);
  find_since(22807, "ncclCommRevoke", api.comm_revoke);
  return api;
}

}  // namespace dlaunch::nccl
