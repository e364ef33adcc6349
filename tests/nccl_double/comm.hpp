#pragma once

#include "collectives/nccl/nccl_api.hpp"
#include "tests/nccl_double/meeting.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

/// One rank's communicator in the double of NCCL, what it shares with the others, and what it puts
/// on streams.
namespace dlaunch::nccl_double {

struct Message {
  Operation operation;
  std::vector<char> data;  ///< A sender's, whose stream goes on when it has handed it over.
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
  int connecting = 0;  ///< Ranks that have come to their first call; if the communicator blocks.
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
  bool blocks = false;
  bool connected = false;
  std::atomic<bool> aborted{false}, revoked{false};
  bool finalized = false;
  std::uint64_t collectives = 0, splits = 0;
  int shrinks = 0;
  std::map<int, std::uint64_t> sends, receives;
  std::map<nccl::NcclRedOp, double> factors;
  nccl::NcclRedOp next_op = 100;
  // Under the ranks' mutex.
  std::set<void*> memory;  ///< Registered.
  int graphs = 0;          ///< Calls that graphs have.
  int launches = 0;        ///< What streams are about, with buffers of the program.
  // Its work in the background.
  std::thread job;
  std::atomic<bool> job_done{false}, cancelled{false};
  nccl::NcclResult state = nccl::nccl_success;
  std::atomic<bool> used{false};  ///< A thread is inside.

  bool has_ended() const { return aborted || revoked; }
  /// One that blocks connects its ranks in their first collective: waits for them all. False where
  /// it was ended meanwhile.
  bool connect();
  /// Until no graph has calls of it, which nothing ends; and where it is not aborted until the
  /// others have got what it sent.
  void drain();
  /// An ended one's: until no stream is about its calls, so that their buffers may go.
  void settle();
  void wake() {
    const std::lock_guard lock(ranks->mutex);
    ranks->changed.notify_all();
  }
  /// With nothing else going on, as ncclCommEnsureReady.
  void begin(std::function<nccl::NcclResult()> work);
  bool is_busy() const { return job.joinable() && !job_done; }
  void join() {
    if (job.joinable()) job.join();
  }
};

/// A call that a graph has, as long as it has it.
class GraphsCall {
 public:
  explicit GraphsCall(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) { add(1); }
  GraphsCall(const GraphsCall&) = delete;
  GraphsCall& operator=(const GraphsCall&) = delete;
  ~GraphsCall() { add(-1); }

 private:
  void add(int count) {
    const std::lock_guard lock(comm_->ranks->mutex);
    comm_->graphs += count;
    comm_->ranks->changed.notify_all();
  }
  std::shared_ptr<Comm> comm_;
};

/// The operations that one rank put on a stream at once: it comes to all of them, then waits for
/// all of them. Counted when it runs: a captured one runs again and again.
struct Launch {
  std::shared_ptr<Comm> comm;
  std::vector<Operation> operations;
  std::shared_ptr<GraphsCall> graph;

  void operator()() const;
};

}  // namespace dlaunch::nccl_double
