#pragma once

#include "rendezvous/daemon/process_figures.hpp"
#include "rendezvous/http/page.hpp"
#include "rendezvous/service/histogram.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/store/server/server.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::rendezvous {

/// The state of a daemon at one moment, from the serving loop.
struct DaemonStatus {
  Clock::time_point now;
  Clock::duration up{};
  std::vector<NamedJobStatus> jobs;
  Totals totals;
  store::Counters counters;
  Histogram message_times;                           ///< How long messages of agents took.
  Histogram loop_lag;                                ///< How late the loop came to what was due.
  std::optional<StateFigures> state = std::nullopt;  ///< Set if the state outlives the process.
  std::uint64_t log_lines_lost = 0;
  bool draining = false;
  std::size_t connections_max = 0;
  std::size_t jobs_max = 0, keys_max = 0, bytes_max = 0;  ///< The limits, the latter two a job's.
};

/// Figures of the thread that serves the pages.
struct ServingFigures {
  std::size_t connections = 0;
  std::size_t followers = 0;  ///< Those of them that follow /events.
  Histogram page_times;
  ProcessFigures process;
  std::uint64_t actions_denied = 0;  ///< Actions that were asked for without an operator's token.
};

/// The source of what pages show. Each is called at most once, and only by pages that need it.
struct StatusSource {
  /// Null: the serving loop does not answer.
  std::function<std::shared_ptr<const DaemonStatus>()> status;
  std::function<ServingFigures()> figures;
  /// Why the serving loop counts as dead; empty: it turns.
  std::function<std::string()> unhealthy;
  /// Why the daemon takes no new job; empty: it does.
  std::function<std::string()> unready;
  /// The last backup that was asked for.
  std::function<BackupStatus()> backup;
  /// The events behind the one that a Last-Event-ID names.
  std::function<std::shared_ptr<Feed>(std::string_view last_event_id)> events;
};

/// Pages that begin with this show jobs as they were at one moment.
constexpr std::string_view jobs_path = "/api/v1/jobs";

/// The page at a request's target ("/api/v1/jobs/a%20job?x=y"); 404 where there is none.
Page page_at(const PageRequest& request, const StatusSource& source);

/// The names of the states in pages and metrics.
constexpr std::pair<JobStatus::State, std::string_view> job_states[] = {
    {JobStatus::State::gathering, "gathering"},
    {JobStatus::State::running, "running"},
    {JobStatus::State::stopping, "stopping"},
    {JobStatus::State::finished, "finished"},
};
constexpr std::pair<NodeStatus::State, std::string_view> node_states[] = {
    {NodeStatus::State::waiting, "waiting"},   {NodeStatus::State::running, "running"},
    {NodeStatus::State::stopping, "stopping"}, {NodeStatus::State::ended, "ended"},
    {NodeStatus::State::silent, "silent"},
};
constexpr std::pair<RankCalls::State, std::string_view> call_states[] = {
    {RankCalls::State::none, "none"},       {RankCalls::State::between, "between"},
    {RankCalls::State::in_call, "in call"}, {RankCalls::State::waits, "waits"},
    {RankCalls::State::stopped, "stopped"}, {RankCalls::State::ended, "ended"},
};

/// Prometheus' text 0.0.4, or OpenMetrics text 1.0.
enum class MetricsForm { prometheus, openmetrics };
std::string metrics_text(const DaemonStatus& status, const ServingFigures& figures,
                         MetricsForm form);

/// A job in full, and a line of the list of jobs, as JSON.
std::string job_json(const NamedJobStatus& job, Clock::time_point now);
std::string jobs_json(const DaemonStatus& status);

/// The age of the oldest last heartbeat among a job's nodes; nullopt for a job without nodes, and
/// for one that is over: nobody waits for those.
std::optional<Clock::duration> oldest_heartbeat(const NamedJobStatus& job, Clock::time_point now);

}  // namespace dlaunch::rendezvous
