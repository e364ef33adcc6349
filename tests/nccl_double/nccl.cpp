#include "tests/nccl_double/nccl.hpp"

#include "collectives/nccl/nccl_api.hpp"
#include "tests/nccl_double/cuda.hpp"
#include "tests/nccl_double/meeting.hpp"

#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace dlaunch::nccl_double {
namespace {

using namespace nccl;

struct Message {
  Operation operation;
  bool done = false;
};

struct Choice {
  int rank, color, key;
};

struct Ranks {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int joined = 0;
  bool never = false;
  std::map<std::uint64_t, Meeting> meetings;
  std::map<std::tuple<int, int, std::uint64_t>, Message> sent, received;
  std::map<std::uint64_t, std::vector<Choice>> splits;
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Ranks>> children;
  std::map<std::vector<int>, std::shared_ptr<Ranks>> shrunk;  ///< By number, then who is gone.
};

struct Comm {
  std::shared_ptr<Ranks> ranks;
  int rank = 0;
  std::atomic<bool> aborted{false};
  std::uint64_t collectives = 0, splits = 0;
  int shrinks = 0;
  std::atomic<bool> revoked{false};
  std::set<void*> memory;  ///< Registered; under the ranks' mutex.
  std::map<int, std::uint64_t> sends, receives;
  std::map<NcclRedOp, double> factors;
  NcclRedOp next_op = 100;
  bool has_ended() const { return aborted || revoked; }
  /// A split that not all have come to yet, of which this one comes.
  std::shared_ptr<Ranks> parent;
  std::uint64_t split = 0;
};

std::mutex table_mutex;
std::map<std::vector<char>, std::weak_ptr<Ranks>>& table() {
  static auto* const all = new std::map<std::vector<char>, std::weak_ptr<Ranks>>;
  return *all;
}
std::atomic<int> async_error{0};
std::atomic<bool> joins_never{false}, shrinks_never{false};
std::atomic<std::uint64_t> made{0}, splits{0}, shrunk{0}, revoked{0}, aborted{0}, calls{0}, ids{0};
std::atomic<std::int64_t> registered{0};

/// What one rank put on a stream at once: it comes to all of it, then waits for all of it. Counted
/// when it runs: a captured one runs again and again.
struct Launch {
  std::shared_ptr<Comm> comm;
  std::vector<Operation> operations;

  void operator()() const {
    Ranks& ranks = *comm->ranks;
    std::unique_lock lock(ranks.mutex);
    std::vector<std::pair<Operation, std::uint64_t>> steps;
    for (const Operation& operation : operations) steps.emplace_back(operation, count(operation));
    for (const auto& [operation, number] : steps) come(ranks, operation, number);
    ranks.changed.notify_all();
    for (const auto& step : steps) {
      ranks.changed.wait(
          lock, [&] { return comm->has_ended() || is_done(ranks, step.first, step.second); });
      if (!comm->has_ended()) leave(ranks, step.first, step.second);
    }
  }

 private:
  static void leave(Ranks& ranks, const Operation& operation, std::uint64_t number) {
    if (operation.what == What::send || operation.what == What::recv) return;
    const auto meeting = ranks.meetings.find(number);
    if (++meeting->second.left == ranks.size) ranks.meetings.erase(meeting);
  }
  std::uint64_t count(const Operation& operation) const {
    if (operation.what == What::send) return comm->sends[operation.peer]++;
    if (operation.what == What::recv) return comm->receives[operation.peer]++;
    return comm->collectives++;
  }
  void come(Ranks& ranks, const Operation& operation, std::uint64_t number) const {
    const int me = comm->rank;
    if (operation.what == What::send || operation.what == What::recv) {
      const bool sends = operation.what == What::send;
      const auto key =
          sends ? std::tuple(me, operation.peer, number) : std::tuple(operation.peer, me, number);
      (sends ? ranks.sent : ranks.received)[key] = {operation, false};
      const auto out = ranks.sent.find(key);
      const auto in = ranks.received.find(key);
      if (out == ranks.sent.end() || in == ranks.received.end()) return;
      if (out->second.operation.count != in->second.operation.count) return;
      std::memcpy(in->second.operation.out, out->second.operation.in,
                  in->second.operation.count * bytes_of(operation.dtype));
      out->second.done = in->second.done = true;
      return;
    }
    Meeting& meeting = ranks.meetings[number];
    meeting.come.emplace_back(me, operation);
    if (static_cast<int>(meeting.come.size()) != ranks.size) return;
    const bool agreed = std::all_of(meeting.come.begin(), meeting.come.end(), [&](auto& one) {
      return one.second.fits(meeting.come.front().second);
    });
    if (agreed) finish(meeting);
  }
  bool is_done(Ranks& ranks, const Operation& operation, std::uint64_t number) const {
    const int me = comm->rank;
    if (operation.what == What::send) return ranks.sent[{me, operation.peer, number}].done;
    if (operation.what == What::recv) return ranks.received[{operation.peer, me, number}].done;
    return ranks.meetings[number].done;
  }
};

std::shared_ptr<Comm>& comm_of(NcclComm comm) { return *static_cast<std::shared_ptr<Comm>*>(comm); }

struct Pending {
  std::shared_ptr<Comm> comm;
  void* stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

void launch_pending() {
  if (pending.empty()) return;
  void* const stream = pending.front().stream;
  Launch launch{pending.front().comm, {}};
  for (const Pending& one : std::exchange(pending, {})) launch.operations.push_back(one.operation);
  cuda_double::put(stream, std::move(launch));
}

NcclResult put(NcclComm handle, void* stream, Operation operation) {
  const auto& comm = comm_of(handle);
  if (comm->has_ended()) return 5;
  if (cuda_double::swallows()) return nccl_success;
  if (operation.op >= 100) operation.factor = comm->factors.at(operation.op);
  ++calls;
  pending.push_back({comm, stream, operation});
  if (depth == 0) launch_pending();
  return nccl_success;
}

bool is_up(const Comm& comm) {
  if (comm.parent) {
    const std::lock_guard lock(comm.parent->mutex);
    if (static_cast<int>(comm.parent->splits[comm.split].size()) < comm.parent->size) return false;
  }
  const std::lock_guard lock(comm.ranks->mutex);
  return !comm.ranks->never && (comm.parent || comm.ranks->joined >= comm.ranks->size);
}

}  // namespace

void fail_with(int result) { async_error = result; }
void never_join(bool never) { joins_never = never; }
void never_shrink(bool never) { shrinks_never = never; }
Counts counts() { return {made, splits, shrunk, revoked, aborted, calls, registered}; }

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

NcclResult ncclCommInitRankConfig(NcclComm* made_comm, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return 4;
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
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
  }
  ++made;
  *made_comm = new std::shared_ptr<Comm>(std::move(comm));
  return nccl_in_progress;
}

NcclResult ncclCommSplit(NcclComm handle, int color, int key, NcclComm* made_comm,
                         NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return 4;
  Comm& parent = *comm_of(handle);
  const std::uint64_t number = parent.splits++;
  const std::lock_guard lock(parent.ranks->mutex);
  parent.ranks->splits[number].push_back({parent.rank, color, key});
  ++splits;
  *made_comm = nullptr;
  if (color < 0) return nccl_in_progress;
  auto child = std::make_shared<Comm>();
  auto& ranks = parent.ranks->children[{number, color}];
  if (!ranks) ranks = std::make_shared<Ranks>();
  child->ranks = ranks;
  child->rank = key;  // dlaunch gives each rank its place as the key.
  child->parent = parent.ranks;
  child->split = number;
  {
    const std::lock_guard child_lock(ranks->mutex);
    ++ranks->size;
  }
  *made_comm = new std::shared_ptr<Comm>(std::move(child));
  return nccl_in_progress;
}

NcclResult ncclCommShrink(NcclComm handle, int* excluded, int count, NcclComm* made_comm,
                          NcclConfig* config, int flags) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || count < 1) return 4;
  if (shrinks_never) return 3;
  Comm& parent = *comm_of(handle);
  const std::vector<int> gone(excluded, excluded + count);
  std::vector<int> key{parent.shrinks++};
  key.insert(key.end(), gone.begin(), gone.end());
  const std::lock_guard lock(parent.ranks->mutex);
  if (flags == nccl_shrink_abort) {
    parent.revoked = true;
    parent.ranks->changed.notify_all();
  }
  auto& ranks = parent.ranks->shrunk[key];
  if (!ranks) ranks = std::make_shared<Ranks>();
  auto child = std::make_shared<Comm>();
  child->ranks = ranks;
  const auto before = [&](int rank) { return rank < parent.rank; };
  child->rank = parent.rank - static_cast<int>(std::count_if(gone.begin(), gone.end(), before));
  {
    const std::lock_guard child_lock(ranks->mutex);
    ranks->size = parent.ranks->size - count;
    ++ranks->joined;
  }
  ++shrunk;
  *made_comm = new std::shared_ptr<Comm>(std::move(child));
  return nccl_in_progress;
}

NcclResult ncclCommRevoke(NcclComm handle, int flags) {
  if (flags != nccl_revoke_default) return 4;
  Comm& comm = *comm_of(handle);
  const std::lock_guard lock(comm.ranks->mutex);
  comm.revoked = true;
  comm.ranks->changed.notify_all();
  ++revoked;
  return nccl_in_progress;
}

NcclResult ncclCommRegister(NcclComm handle, void* memory, std::size_t bytes, void** known) {
  Comm& comm = *comm_of(handle);
  const std::lock_guard lock(comm.ranks->mutex);
  if (bytes == 0 || !comm.memory.insert(memory).second) return 4;
  ++registered;
  *known = memory;
  return nccl_success;
}

NcclResult ncclCommDeregister(NcclComm handle, void* known) {
  Comm& comm = *comm_of(handle);
  const std::lock_guard lock(comm.ranks->mutex);
  if (comm.memory.erase(known) != 1) return 4;
  --registered;
  return nccl_success;
}

NcclResult ncclCommAbort(NcclComm handle) {
  auto& comm = comm_of(handle);
  {
    const std::lock_guard lock(comm->ranks->mutex);
    comm->aborted = true;
    registered -= static_cast<std::int64_t>(comm->memory.size());
    comm->ranks->changed.notify_all();
  }
  ++aborted;
  delete &comm;
  return nccl_success;
}

NcclResult ncclCommGetAsyncError(NcclComm handle, NcclResult* error) {
  const auto& comm = comm_of(handle);
  *error = async_error != 0 ? async_error.load() : is_up(*comm) ? nccl_success : nccl_in_progress;
  return nccl_success;
}

NcclResult ncclGroupStart() {
  ++depth;
  return nccl_success;
}
NcclResult ncclGroupEnd() {
  if (--depth == 0) launch_pending();
  return nccl_success;
}

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
  if (residence != nccl_scalar_host_immediate) return 4;
  Comm& comm = *comm_of(handle);
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
  *op = comm.next_op++;
  comm.factors[*op] = factor;
  return nccl_success;
}
NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm comm) {
  return comm_of(comm)->factors.erase(op) == 1 ? nccl_success : 4;
}

NcclResult ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return nccl_success;
}
NcclResult ncclMemFree(void* memory) {
  std::free(memory);
  return nccl_success;
}

}  // extern "C"
