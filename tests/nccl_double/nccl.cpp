#include "tests/nccl_double/nccl.hpp"

#include "collectives/nccl/nccl_api.hpp"
#include "tests/nccl_double/comm.hpp"
#include "tests/nccl_double/cuda.hpp"

#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace dlaunch::nccl_double {
namespace {

using namespace nccl;

constexpr NcclResult internal_error = 3, invalid_argument = 4, invalid_usage = 5;

std::mutex table_mutex;
std::map<std::vector<char>, std::weak_ptr<Ranks>>& table() {
  static auto* const all = new std::map<std::vector<char>, std::weak_ptr<Ranks>>;
  return *all;
}
std::atomic<int> async_error{0};
std::atomic<bool> joins_never{false}, shrinks_never{false}, making_held{false};
std::atomic<std::uint64_t> made{0}, splits{0}, shrunk{0}, revoked{0}, aborted{0}, destroyed{0},
    calls{0}, ids{0};
std::atomic<std::int64_t> registered{0}, living{0};

bool launches_at_once() {
  static const char* const set = std::getenv("DLAUNCH_DOUBLE_NCCL_AT_ONCE");
  return set != nullptr && std::string_view(set) == "1";
}

std::shared_ptr<Comm>& comm_of(NcclComm comm) { return *static_cast<std::shared_ptr<Comm>*>(comm); }

NcclComm handle_of(std::shared_ptr<Comm> comm) {
  ++living;
  return new std::shared_ptr<Comm>(std::move(comm));
}

/// The one thread in a communicator; one that blocks may be revoked by a second one.
class Use {
 public:
  explicit Use(NcclComm handle, bool revokes = false)
      : comm_(comm_of(handle)), is_second_(revokes && comm_->blocks) {
    if (is_second_ || !comm_->used.exchange(true)) return;
    std::fprintf(stderr, "two threads use one NCCL communicator at once\n");
    std::abort();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (!is_second_) comm_->used = false;
  }
  Comm* operator->() const { return comm_.get(); }
  Comm& operator*() const { return *comm_; }
  const std::shared_ptr<Comm>& comm() const { return comm_; }
  bool is_ready() const { return !comm_->is_busy() && !comm_->has_ended(); }

 private:
  const std::shared_ptr<Comm> comm_;
  const bool is_second_;
};

/// Waits where all ranks have to come, and an abort ends it.
template <class Ready>
NcclResult wait_for(Ranks& ranks, const Comm& comm, const Ready& ready) {
  std::unique_lock lock(ranks.mutex);
  ranks.changed.wait(lock, [&] { return comm.cancelled || ready(); });
  return comm.cancelled ? internal_error : nccl_success;
}

/// In the background: writes the communicator last, be it that it failed.
NcclResult make(const std::shared_ptr<Comm>& parent, std::shared_ptr<Comm> child,
                std::function<bool()> ready, NcclComm* target) {
  *target = nullptr;
  parent->begin([&parent = *parent, child = std::move(child), ready = std::move(ready), target] {
    const NcclResult result =
        wait_for(*parent.ranks, parent, [&] { return ready() && !making_held; });
    NcclComm const written = child ? handle_of(child) : nullptr;
    __atomic_store_n(target, written, __ATOMIC_RELEASE);
    return result;
  });
  return nccl_in_progress;
}

struct Pending {
  std::shared_ptr<Comm> comm;
  cuda_double::Stream* stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

NcclResult launch_pending() {
  if (pending.empty()) return nccl_success;
  cuda_double::Stream* const stream = pending.front().stream;
  const auto comm = pending.front().comm;
  Launch launch{comm, {}, nullptr};
  for (const Pending& one : std::exchange(pending, {})) launch.operations.push_back(one.operation);
  const auto put = [stream, launch = std::move(launch)]() mutable {
    if (cuda_double::swallows()) return nccl_success;
    if (cuda_double::is_capturing(stream)) launch.graph = std::make_shared<GraphsCall>(launch.comm);
    cuda_double::put(stream, std::move(launch));
    return nccl_success;
  };
  if (comm->blocks) {
    return comm->connect() ? std::function<NcclResult()>(put)() : internal_error;
  }
  if (launches_at_once()) return std::function<NcclResult()>(put)();
  comm->begin(put);
  return nccl_in_progress;
}

NcclResult put(NcclComm handle, void* stream, Operation operation) {
  const Use comm(handle);
  if (comm->has_ended()) return invalid_usage;
  if (comm->is_busy() && pending.empty()) return invalid_argument;
  operation.in = cuda_double::host_address(operation.in);
  operation.out = cuda_double::host_address(operation.out);
  if (operation.op >= 100) operation.factor = comm->factors.at(operation.op);
  ++calls;
  pending.push_back({comm.comm(), cuda_double::find_stream(stream), operation});
  return depth == 0 ? launch_pending() : nccl_success;
}

bool is_config(const NcclConfig* config) {
  return config->magic == 0xcafebeef && (config->blocking == 0 || config->blocking == 1);
}

}  // namespace

void fail_with(int result) { async_error = result; }
void never_join(bool never) { joins_never = never; }
void never_shrink(bool never) { shrinks_never = never; }
void hold_making(bool hold) { making_held = hold; }
Counts counts() {
  return {made, splits, shrunk, revoked, aborted, destroyed, calls, registered, living};
}

}  // namespace dlaunch::nccl_double

using namespace dlaunch::nccl_double;
using namespace dlaunch::nccl;

extern "C" {

NcclResult ncclGetVersion(int* version) {
  const char* other = std::getenv("DLAUNCH_DOUBLE_NCCL_VERSION");
  *version = other != nullptr ? std::atoi(other) : 22907;
  return nccl_success;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == nccl_remote_error ? "remote process exited or there was a network error"
                                     : "an error of the double";
}
const char* ncclGetLastError(NcclComm /*comm*/) { return ""; }
NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  *id = {};
  const std::uint64_t number = ++ids;
  std::memcpy(id->internal, &number, sizeof number);
  return nccl_success;
}

NcclResult ncclCommInitRankConfig(NcclComm* target, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  if (!is_config(config)) return invalid_argument;
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->blocks = config->blocking == 1;
  {
    const std::lock_guard lock(table_mutex);
    auto& found = table()[{id.internal, id.internal + sizeof id.internal}];
    comm->ranks = found.lock();
    if (!comm->ranks) found = comm->ranks = std::make_shared<Ranks>();
  }
  {
    const std::lock_guard lock(comm->ranks->mutex);
    comm->ranks->size = ranks;
    ++comm->ranks->joined;
    comm->ranks->never = joins_never;
    comm->ranks->changed.notify_all();
  }
  ++made;
  *target = handle_of(comm);
  comm->begin([&comm = *comm] {
    const Ranks& all = *comm.ranks;
    return wait_for(*comm.ranks, comm, [&] { return !all.never && all.joined >= all.size; });
  });
  if (!comm->blocks) return nccl_in_progress;
  comm->join();
  return comm->state;
}

NcclResult ncclCommSplit(NcclComm handle, int color, int key, NcclComm* target,
                         NcclConfig* config) {
  if (!is_config(config)) return invalid_argument;
  const Use parent(handle);
  if (parent->is_busy()) return invalid_argument;
  ++splits;
  const std::uint64_t number = parent->splits++;
  std::shared_ptr<Comm> child;
  {
    const std::lock_guard lock(parent->ranks->mutex);
    parent->ranks->splits[number].push_back({parent->rank, color, key});
    parent->ranks->changed.notify_all();
    if (color >= 0) {
      auto& ranks = parent->ranks->children[{number, color}];
      if (!ranks) ranks = std::make_shared<Ranks>();
      child = std::make_shared<Comm>();
      child->ranks = ranks;
      child->blocks = config->blocking == 1;
      const std::lock_guard child_lock(ranks->mutex);
      ++ranks->size;
    }
  }
  const Choice mine{parent->rank, color, key};
  return make(
      parent.comm(), child,
      [&ranks = *parent->ranks, number, child, mine] {
        const auto& choices = ranks.splits[number];
        if (static_cast<int>(choices.size()) != ranks.size) return false;
        const auto is_before_us = [&](const Choice& other) {
          return other.color == mine.color &&
                 std::tie(other.key, other.rank) < std::tie(mine.key, mine.rank);
        };
        if (child) {
          child->rank = static_cast<int>(std::ranges::count_if(choices, is_before_us));
        }
        return true;
      },
      target);
}

NcclResult ncclCommShrink(NcclComm handle, int* excluded, int count, NcclComm* target,
                          NcclConfig* config, int flags) {
  if (!is_config(config) || count < 1) return invalid_argument;
  if (shrinks_never) return internal_error;
  const Use parent(handle);
  if (parent->is_busy()) return invalid_argument;
  const std::vector<int> gone(excluded, excluded + count);
  std::vector<int> key{parent->shrinks++};
  key.insert(key.end(), gone.begin(), gone.end());
  auto child = std::make_shared<Comm>();
  const auto before = [&](int rank) { return rank < parent->rank; };
  child->rank = parent->rank - static_cast<int>(std::count_if(gone.begin(), gone.end(), before));
  {
    const std::lock_guard lock(parent->ranks->mutex);
    auto& ranks = parent->ranks->shrunk[key];
    if (!ranks) ranks = std::make_shared<Ranks>();
    child->ranks = ranks;
    const std::lock_guard child_lock(ranks->mutex);
    ranks->size = parent->ranks->size - count;
    ++ranks->joined;
    parent->ranks->changed.notify_all();
  }
  // Ends what is under way, and nothing else.
  if (flags == nccl_shrink_abort) parent->revoked = true;
  parent->wake();
  ++shrunk;
  const auto ranks = child->ranks;
  return make(
      parent.comm(), std::move(child),
      [ranks, &parent = *parent, aborts = flags == nccl_shrink_abort] {
        if (aborts && parent.launches > 0) return false;
        const std::lock_guard lock(ranks->mutex);
        return ranks->joined == ranks->size;
      },
      target);
}

NcclResult ncclCommRevoke(NcclComm handle, int flags) {
  const Use comm(handle, true);
  if (flags != nccl_revoke_default || comm->revoked || comm->finalized) return invalid_argument;
  comm->revoked = comm->cancelled = true;
  comm->wake();
  if (comm->blocks) {
    comm->settle();
    ++revoked;
    return nccl_success;
  }
  comm->begin([&comm = *comm] {
    comm.settle();
    return nccl_success;
  });
  ++revoked;
  return nccl_in_progress;
}

NcclResult ncclCommRegister(NcclComm handle, void* memory, std::size_t bytes, void** known) {
  const Use comm(handle);
  const std::lock_guard lock(comm->ranks->mutex);
  if (comm->is_busy() || bytes == 0 || !comm->memory.insert(memory).second) return invalid_argument;
  ++registered;
  *known = memory;
  return nccl_success;
}

NcclResult ncclCommDeregister(NcclComm handle, void* known) {
  const Use comm(handle);
  const std::lock_guard lock(comm->ranks->mutex);
  if (comm->memory.erase(known) != 1) return invalid_argument;
  --registered;
  return nccl_success;
}

NcclResult ncclCommFinalize(NcclComm handle) {
  const Use comm(handle);
  if (!comm.is_ready() || comm->finalized) return invalid_argument;
  comm->finalized = true;
  if (comm->blocks) {
    comm->drain();
    return nccl_success;
  }
  comm->begin([&comm = *comm] {
    comm.drain();
    return nccl_success;
  });
  return nccl_in_progress;
}

static void end_comm(NcclComm handle, bool aborts) {
  {
    const Use comm(handle);
    if (aborts) comm->aborted = comm->cancelled = true;
    comm->wake();
    comm->join();
    if (aborts) comm->settle();
    if (!comm->finalized || aborts) comm->drain();
    const std::lock_guard lock(comm->ranks->mutex);
    registered -= static_cast<std::int64_t>(comm->memory.size());
  }
  delete &comm_of(handle);
  --living;
}

NcclResult ncclCommDestroy(NcclComm handle) {
  end_comm(handle, false);
  ++destroyed;
  return nccl_success;
}

NcclResult ncclCommAbort(NcclComm handle) {
  end_comm(handle, true);
  ++aborted;
  return nccl_success;
}

NcclResult ncclCommGetAsyncError(NcclComm handle, NcclResult* error) {
  const Use comm(handle);
  *error = nccl_in_progress;
  if (async_error != 0) {
    *error = async_error;
  } else if (!comm->is_busy()) {
    comm->join();
    *error = comm->state;
  }
  return nccl_success;
}

NcclResult ncclGroupStart() {
  ++depth;
  return nccl_success;
}
NcclResult ncclGroupEnd() { return --depth == 0 ? launch_pending() : nccl_success; }

NcclResult ncclAllReduce(const void* in, void* out, std::size_t count, NcclDType dtype,
                         NcclRedOp op, NcclComm comm, NcclStream stream) {
  return put(comm, stream, {What::all_reduce, in, out, count, dtype, op});
}
NcclResult ncclReduce(const void* in, void* out, std::size_t count, NcclDType dtype, NcclRedOp op,
                      int root, NcclComm comm, NcclStream stream) {
  return put(comm, stream, {What::reduce, in, out, count, dtype, op, root});
}
NcclResult ncclBroadcast(const void* in, void* out, std::size_t count, NcclDType dtype, int root,
                         NcclComm comm, NcclStream stream) {
  return put(comm, stream, {What::broadcast, in, out, count, dtype, 0, root});
}
NcclResult ncclAllGather(const void* in, void* out, std::size_t count, NcclDType dtype,
                         NcclComm comm, NcclStream stream) {
  return put(comm, stream, {What::all_gather, in, out, count, dtype});
}
NcclResult ncclReduceScatter(const void* in, void* out, std::size_t count, NcclDType dtype,
                             NcclRedOp op, NcclComm comm, NcclStream stream) {
  return put(comm, stream, {What::reduce_scatter, in, out, count, dtype, op});
}
NcclResult ncclSend(const void* in, std::size_t count, NcclDType dtype, int peer, NcclComm comm,
                    NcclStream stream) {
  return put(comm, stream, {What::send, in, nullptr, count, dtype, 0, peer});
}
NcclResult ncclRecv(void* out, std::size_t count, NcclDType dtype, int peer, NcclComm comm,
                    NcclStream stream) {
  return put(comm, stream, {What::recv, nullptr, out, count, dtype, 0, peer});
}

NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar, NcclDType dtype, int residence,
                                    NcclComm handle) {
  if (residence != nccl_scalar_host_immediate) return invalid_argument;
  const Use comm(handle);
  if (!comm.is_ready()) return invalid_argument;
  double factor = 0;
  const auto read = [&](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    factor = static_cast<double>(static_cast<float>(value));
  };
  if (dtype == nccl_f16) {
    read(dlaunch::float16());
  } else if (dtype == nccl_bf16) {
    read(dlaunch::bfloat16());
  } else if (dtype == nccl_f32) {
    read(float());
  } else {
    std::memcpy(&factor, scalar, sizeof factor);
  }
  *op = comm->next_op++;
  comm->factors[*op] = factor;
  return nccl_success;
}
NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm handle) {
  const Use comm(handle);
  return comm->factors.erase(op) == 1 ? nccl_success : invalid_argument;
}

NcclResult ncclMemAlloc(void** memory, std::size_t bytes) {
  if (dlaunch::cuda_double::is_forbidden()) return 1;
  *memory = dlaunch::cuda_double::device_address(std::malloc(bytes));
  return nccl_success;
}
NcclResult ncclMemFree(void* memory) {
  if (dlaunch::cuda_double::is_forbidden()) return 1;
  std::free(dlaunch::cuda_double::host_address(memory));
  return nccl_success;
}

}  // extern "C"
