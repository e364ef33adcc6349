#pragma once

#include "rendezvous/lag/lag.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "rendezvous/service/histogram.hpp"
#include "rendezvous/service/job_journal.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/server/server.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// The limits of a service.
struct ServiceRules {
  /// The only job of this endpoint, for agents that name none. Empty: there are many jobs, and
  /// every agent has to name its own.
  std::string only_job;
  /// Set if the only job was hosted by another node, which is lost, and goes on here.
  std::optional<Takeover> taken_over = std::nullopt;
  std::size_t jobs_max = 1024;
  int nodes_per_job_max = 20'000;
  store::Limits limits;  ///< The limits of each job's namespace.
  store::ConnectionLimits connections;
  std::size_t connections_per_job_max = ~std::size_t{0};
  /// The longest lease, join timeout and the like that a node may ask for.
  Clock::duration asked_time_max = Clock::duration::max();
  /// If there are jobs_max jobs, one to which nobody has been connected for so long gives its place
  /// to another.
  Clock::duration deserted_max = std::chrono::seconds(30);
  /// How long a finished job is remembered, for nodes that come late and for the status page.
  Clock::duration remember = std::chrono::minutes(10);
};

/// A line for the log: a sentence about an event of a job.
struct LogLine {
  enum class Level { debug, info, warning, error };
  /// The kind of step in a job's life; `other` is none. `action` stands for an operator's action.
  enum class Event { other, standing, epoch, stopping, lost, evicted, refused, finished, action };
  Level level = Level::info;
  std::string job;
  std::string sentence;
  bool told = false;  ///< Whether the job's nodes hear of it, too.
  Event event = Event::other;
  std::uint64_t epoch = 0;  ///< The job's at that time; 0: none yet, or the line concerns no job.
  int attempt = 0;          ///< Likewise.
};

struct NamedJobStatus {
  std::string job;
  std::uint64_t incarnation = 0;
  JobStatus status;
  std::size_t keys = 0;
  std::size_t bytes = 0;
  std::optional<Finish> finish = std::nullopt;  ///< Set once the job is over.
  /// The reports of the epoch's nodes about their ranks' calls, in no order.
  std::vector<NodeCalls> calls = {};
};

/// Counts of what has happened since the service began.
struct Totals {
  std::size_t connections = 0;  ///< Agents and tools that are connected now.
  std::uint64_t jobs_opened = 0;
  std::uint64_t rounds_closed = 0;
  std::uint64_t restarts = 0;      ///< Attempts after a job's first.
  std::uint64_t evictions = 0;     ///< Nodes that were given up while they were silent.
  std::uint64_t refusals = 0;      ///< Nodes that were turned away.
  std::uint64_t never_joined = 0;  ///< Connections that were closed because they joined nothing.
  /// The bytes that count against the memory budget, and the budget; 0: there is none.
  std::size_t memory_used = 0, memory_max = 0;
  std::uint64_t memory_refusals = 0;  ///< Requests for which there was no room.
  std::uint64_t actions_done = 0;     ///< Operators' actions that were carried out.
  std::uint64_t actions_refused = 0;  ///< Those that could not be, as the jobs were.
  /// Connections that were sent away before they were let in, by store::RefusalKind.
  std::array<std::uint64_t, store::refusal_kinds> refused{};
};

struct Action;
struct ActionOutcome;

/// The rendezvous as a service: for each job its rounds and its native key-value namespace, a fresh
/// one for each epoch, over one store::Server. The daemon runs one, and so does an agent that hosts
/// its own job. One thread: that of `io`.
class Service {
 public:
  using Log = std::function<void(const LogLine&)>;

  /// `journal` outlives the service; without one nothing is kept.
  Service(boost::asio::io_context& io, ServiceRules rules, Log log, JobJournal* journal = nullptr);
  ~Service();

  /// Accepts agents (and tools) on a bound and listening socket.
  void listen(unique_fd listener, store::Protocols protocols = {.native = true, .c10d = false},
              std::optional<SocketAccess> access = std::nullopt);
  /// Serves a connected socket: that of the hosting agent itself.
  void adopt(unique_fd connected);
  /// The server, for PyTorch's store, which shares its port in static mode.
  store::Server& server();

  std::vector<NamedJobStatus> jobs() const;
  /// The first job whose name sorts after `name`; nullopt: there is none. To read all of
  /// them without holding up the loop, ask for one at a time.
  std::optional<NamedJobStatus> job_after(std::string_view name) const;
  /// How long the service took with each message of an agent.
  const Histogram& message_times() const;
  store::Counters counters() const;
  Totals totals() const;
  /// From now on these hold: jobs_max, nodes_per_job_max, connections_per_job_max, asked_time_max
  /// and remember, the latter for jobs that finish from now on. The other rules stay as they are.
  void change(const ServiceRules& rules);
  /// Carries out what an operator asks, and logs it: one line.
  ActionOutcome act(const Action& action);
  /// Whether no new job is taken.
  bool draining() const;
  /// The operator and reason, if that is so since an earlier service; nullopt: it is not.
  const std::optional<std::string>& drained_before() const;
  /// Whether there is no unfinished job and no agent is connected.
  bool idle() const;
  /// Takes no new job and calls `when_idle` when none is left; its agents then have `farewell` to
  /// hear of it, and to go.
  void drain(std::function<void()> when_idle, Clock::duration farewell);
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
