#include "tests/nccl_double/nccl.hpp"

#include "collectives/nccl/nccl_api.hpp"
#include "tests/nccl_double/cuda.hpp"

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
#include <tuple>
#include <utility>
#include <vector>

namespace dlaunch::nccl_double {
namespace {

using namespace nccl;

enum class What { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, recv };

struct Operation {
  What what{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  NcclDType dtype{};
  NcclRedOp op = 0;
  int peer = -1;
  double factor = 1;

  bool fits(const Operation& other) const {
    return std::tie(what, count, dtype, op, peer) ==
           std::tie(other.what, other.count, other.dtype, other.op, other.peer);
  }
};

/// One collective, for which all ranks come together.
struct Meeting {
  std::vector<std::pair<int, Operation>> come;
  bool done = false;
};

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
};

struct Comm {
  std::shared_ptr<Ranks> ranks;
  int rank = 0;
  std::atomic<bool> aborted{false};
  std::uint64_t collectives = 0, splits = 0;
  std::map<int, std::uint64_t> sends, receives;
  std::map<NcclRedOp, double> factors;
  NcclRedOp next_op = 100;
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
std::atomic<bool> joins_never{false};
std::atomic<std::uint64_t> made{0}, splits{0}, aborted{0}, calls{0}, ids{0};

template <class Element, class Sum>
void fold(const Meeting& meeting, std::size_t offset, std::size_t count, const Operation& how,
          void* out) {
  std::vector<Element> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum{};
    bool first = true;
    for (const auto& [rank, operation] : meeting.come) {
      auto element = static_cast<Sum>(static_cast<const Element*>(operation.in)[offset + i]);
      if (how.op >= 100) element = static_cast<Sum>(element * static_cast<Sum>(how.factor));
      if (first) {
        sum = element;
      } else if (how.op == nccl_prod) {
        sum = static_cast<Sum>(sum * element);
      } else if (how.op == nccl_min) {
        sum = std::min(sum, element);
      } else if (how.op == nccl_max) {
        sum = std::max(sum, element);
      } else {
        sum = static_cast<Sum>(sum + element);
      }
      first = false;
    }
    if (how.op == nccl_avg) sum = static_cast<Sum>(sum / static_cast<Sum>(meeting.come.size()));
    result[i] = static_cast<Element>(sum);
  }
  std::memcpy(out, result.data(), count * sizeof(Element));
}

/// By NcclDType.
constexpr std::array<std::size_t, 10> element_bytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
std::size_t bytes_of(NcclDType dtype) { return element_bytes.at(static_cast<std::size_t>(dtype)); }

void fold_any(const Meeting& meeting, std::size_t offset, std::size_t count, void* out) {
  const Operation& how = meeting.come.front().second;
  switch (how.dtype) {
    case nccl_i8:
      return fold<std::int8_t, std::int8_t>(meeting, offset, count, how, out);
    case nccl_u8:
      return fold<std::uint8_t, std::uint8_t>(meeting, offset, count, how, out);
    case nccl_i32:
      return fold<std::int32_t, std::int32_t>(meeting, offset, count, how, out);
    case nccl_u32:
      return fold<std::uint32_t, std::uint32_t>(meeting, offset, count, how, out);
    case nccl_i64:
      return fold<std::int64_t, std::int64_t>(meeting, offset, count, how, out);
    case nccl_u64:
      return fold<std::uint64_t, std::uint64_t>(meeting, offset, count, how, out);
    case nccl_f16:
      return fold<float16, float>(meeting, offset, count, how, out);
    case nccl_bf16:
      return fold<bfloat16, float>(meeting, offset, count, how, out);
    case nccl_f32:
      return fold<float, float>(meeting, offset, count, how, out);
    case nccl_f64:
      return fold<double, double>(meeting, offset, count, how, out);
  }
}

/// All have come, and agree. All results are made before any is written: buffers may be shared.
void finish(Meeting& meeting) {
  auto& come = meeting.come;
  std::sort(come.begin(), come.end(), [](auto& a, auto& b) { return a.first < b.first; });
  const Operation how = come.front().second;
  const std::size_t bytes = how.count * bytes_of(how.dtype);
  std::vector<std::vector<char>> results(come.size());
  for (std::size_t r = 0; r < come.size(); ++r) {
    auto& result = results[r];
    const bool is_root = come[r].first == how.peer;
    if (how.what == What::all_reduce || (how.what == What::reduce && is_root)) {
      result.resize(bytes);
      fold_any(meeting, 0, how.count, result.data());
    } else if (how.what == What::reduce_scatter) {
      result.resize(bytes);
      fold_any(meeting, r * how.count, how.count, result.data());
    } else if (how.what == What::broadcast) {
      const auto* from =
          static_cast<const char*>(come[static_cast<std::size_t>(how.peer)].second.in);
      result.assign(from, from + bytes);
    } else if (how.what == What::all_gather) {
      for (const auto& [rank, operation] : come) {
        const auto* from = static_cast<const char*>(operation.in);
        result.insert(result.end(), from, from + bytes);
      }
    }
  }
  for (std::size_t r = 0; r < come.size(); ++r) {
    if (!results[r].empty()) std::memcpy(come[r].second.out, results[r].data(), results[r].size());
  }
  meeting.done = true;
}

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
      ranks.changed.wait(lock,
                         [&] { return comm->aborted || is_done(ranks, step.first, step.second); });
    }
  }

 private:
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
  if (comm->aborted) return 5;
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
Counts counts() { return {made, splits, aborted, calls}; }

}  // namespace dlaunch::nccl_double

using namespace dlaunch::nccl_double;
using namespace dlaunch::nccl;

extern "C" {

NcclResult ncclGetVersion(int* version) {
  const char* other = std::getenv("DLAUNCH_DOUBLE_NCCL_VERSION");
  *version = other != nullptr ? std::atoi(other) : 22703;
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

NcclResult ncclCommAbort(NcclComm handle) {
  auto& comm = comm_of(handle);
  {
    const std::lock_guard lock(comm->ranks->mutex);
    comm->aborted = true;
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
