#pragma once

#include "rendezvous/daemon/process_figures.hpp"
#include "rendezvous/http/page.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/store/server/server.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::rendezvous {

/// All that can be said about a daemon at one moment.
struct DaemonStatus {
  Clock::time_point now;
  Clock::duration up{};
  std::vector<NamedJobStatus> jobs;
  Totals totals;
  store::Counters counters;
  std::size_t http_connections = 0;
  ProcessFigures process;
};

/// The source of what pages show. Each is called at most once, and only by pages that need it.
struct StatusSource {
  std::function<DaemonStatus()> status;
  /// Why the daemon takes no new job; empty: it does.
  std::function<std::string()> unready;
};

/// The page at a request's target ("/api/v1/jobs/a%20job?x=y"); 404 where there is none.
Page page_at(std::string_view target, const StatusSource& source);

/// What the states are called, in pages and metrics.
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

/// OpenMetrics text 1.0.
std::string metrics_text(const DaemonStatus& status);

/// A job in full, and a line of the list of jobs, as JSON.
std::string job_json(const NamedJobStatus& job, Clock::time_point now);
std::string jobs_json(const DaemonStatus& status);

}  // namespace dlaunch::rendezvous
