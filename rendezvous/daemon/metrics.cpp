#include "rendezvous/daemon/status_pages.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

namespace dlaunch::rendezvous {

namespace {

/// A label's value. OpenMetrics wants UTF-8 and three escapes; job names may be any bytes, so
/// everything beyond plain ASCII becomes '?'.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return out;
}

/// Appends families to an exposition. Counters' samples end in _total; their family does so, too,
/// in Prometheus' form.
class Exposition {
 public:
  explicit Exposition(MetricsForm form) : open_(form == MetricsForm::openmetrics) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    suffix_ = type == "counter" ? "_total" : type == "info" ? "_info" : "";
    if (type == "info" && !open_) type = "gauge";
    const std::string_view family_suffix = open_ ? "" : suffix_;
    text_ += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", name, family_suffix, help, type);
  }
  template <class Number>
  void sample(Number value) {
    text_ += fmt::format("{}{} {}\n", name_, suffix_, value);
  }
  template <class Number>
  void sample(std::string_view label, std::string_view label_value, Number value) {
    text_ +=
        fmt::format("{}{}{{{}=\"{}\"}} {}\n", name_, suffix_, label, escaped(label_value), value);
  }
  template <class Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    family(name, "gauge", help);
    sample(value);
  }
  template <class Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    family(name, "counter", help);
    sample(value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& times) {
    family(name, "histogram", help);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < times.counts.size(); ++i) {
      count += times.counts[i];
      const bool last = i == Histogram::bounds.size();
      text_ += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name,
                           last ? "+Inf" : fmt::format("{}", Histogram::bounds[i]), count);
    }
    text_ += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, times.sum_s, count);
  }
  std::string end() { return std::move(text_) + (open_ ? "# EOF\n" : ""); }

 private:
  const bool open_;
  std::string text_;
  std::string_view name_, suffix_;
};

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

void jobs_and_nodes(Exposition& out, const DaemonStatus& status) {
  std::map<JobStatus::State, std::size_t> jobs;
  std::map<NodeStatus::State, std::size_t> nodes;
  std::int64_t ranks = 0;
  for (const auto& job : status.jobs) {
    ++jobs[job.status.state];
    for (const auto& node : job.status.nodes) ++nodes[node.state];
    if (job.status.state == JobStatus::State::running) ranks += job.status.world_size;
  }
  out.family("dlaunch_jobs", "gauge", "Jobs by state; finished ones while they are remembered.");
  for (const auto& [state, name] : job_states) out.sample("state", name, jobs[state]);
  out.family("dlaunch_nodes", "gauge", "Nodes of all jobs by state.");
  for (const auto& [state, name] : node_states) out.sample("state", name, nodes[state]);
  out.gauge("dlaunch_ranks", "Ranks of the jobs that are running.", ranks);
  out.family("dlaunch_job_nodes", "gauge", "Nodes that a job has now.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.status.nodes.size());
  out.family("dlaunch_job_nodes_wanted", "gauge", "Nodes without which a job does not run.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.status.nodes_min);
  out.family("dlaunch_job_attempt", "gauge", "The attempt that a job is at, from 0 on.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.status.attempt);
  out.family("dlaunch_job_gathering", "gauge", "Whether a job waits for nodes.");
  for (const auto& job : status.jobs) {
    out.sample("job", job.job, job.status.state == JobStatus::State::gathering ? 1 : 0);
  }
  out.family("dlaunch_job_heartbeat_age_seconds", "gauge",
             "Since the node of a job that is silent for longest was last heard.");
  for (const auto& job : status.jobs) {
    if (const auto age = oldest_heartbeat(job, status.now)) {
      out.sample("job", job.job, std::max(0.0, seconds(*age)));
    }
  }
  out.family("dlaunch_job_keys", "gauge", "Keys in a job's store.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.keys);
  out.family("dlaunch_job_bytes", "gauge", "Bytes of keys and values in a job's store.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.bytes);
}

void limits(Exposition& out, const DaemonStatus& status) {
  out.gauge("dlaunch_connections_max", "The limit on connections to the rendezvous.",
            status.connections_max);
  out.gauge("dlaunch_jobs_max", "The limit on jobs that are not finished.", status.jobs_max);
  out.gauge("dlaunch_job_keys_max", "The limit on keys in a job's store.", status.keys_max);
  out.gauge("dlaunch_job_bytes_max", "The limit on bytes in a job's store.", status.bytes_max);
}

/// All families are shown, wherever the state is kept, since alerting rules refer to them.
void state(Exposition& out, const std::optional<StateFigures>& state) {
  out.histogram("dlaunch_state_commit_duration_seconds", "How long changes took to be safe.",
                state ? state->commits : Histogram());
  out.gauge("dlaunch_state_blocked", "Whether changes are refused, or wait for long.",
            state && state->blocked ? 1 : 0);
  const auto* const lead = state && state->lead ? &*state->lead : nullptr;
  out.family("dlaunch_etcd_leads", "gauge", "Whether no other dlaunchd can lead now.");
  if (lead != nullptr) out.sample(lead->held ? 1 : 0);
  out.family("dlaunch_etcd_lease_remaining_seconds", "gauge",
             "Until the lead ends, unless its lease is renewed.");
  if (lead != nullptr) out.sample(seconds(lead->left));
  out.family("dlaunch_etcd_member", "gauge", "The member of etcd that is asked.");
  if (lead != nullptr) out.sample("member", lead->member, 1);
}

/// In the order of store::RefusalKind.
constexpr std::array<std::string_view, store::refusal_kinds> refusal_names = {
    "no_secret", "wrong_secret", "withdrawn_secret", "other_job", "role",
    "garbled",   "other_user",   "other_version",    "job_limit", "hello"};

void refusals(Exposition& out, const DaemonStatus& status) {
  const Totals& totals = status.totals;
  out.family("dlaunch_refusals", "counter", "Nodes and connections that were sent away, by why.");
  out.sample("kind", "node", totals.refusals);
  for (std::size_t i = 0; i < refusal_names.size(); ++i) {
    out.sample("kind", refusal_names[i], totals.refused[i]);
  }
  out.sample("kind", "peer_limit", status.counters.crowded);
}

void process(Exposition& out, const DaemonStatus& status, const ProcessFigures& process) {
  out.gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes);
  out.gauge("process_open_fds", "Open descriptors.", process.open_fds);
  out.gauge("process_max_fds", "The limit on descriptors.", process.fds_max);
  out.counter("process_cpu_seconds", "Processor time, user and system.", process.cpu_seconds);
  out.gauge("process_uptime_seconds", "Since the daemon was ready.", seconds(status.up));
}

}  // namespace

std::string metrics_text(const DaemonStatus& status, const ServingFigures& figures,
                         MetricsForm form) {
  Exposition out(form);
  out.family("dlaunch_build", "info", "What runs here.");
  out.sample("version", DLAUNCH_VERSION, 1);
  jobs_and_nodes(out, status);
  limits(out, status);
  out.gauge("dlaunch_draining", "Whether no new job is taken.", status.draining ? 1 : 0);
  out.histogram("dlaunch_loop_lag_seconds", "How late the loop came to what was due.",
                status.loop_lag);
  out.histogram("dlaunch_message_duration_seconds", "How long messages of agents took.",
                status.message_times);
  out.histogram("dlaunch_http_request_duration_seconds", "How long status pages took.",
                figures.page_times);
  out.counter("dlaunch_log_lines_lost", "Log lines that nobody read.", status.log_lines_lost);
  state(out, status.state);

  const Totals& totals = status.totals;
  out.gauge("dlaunch_connections", "Open connections to the rendezvous.", totals.connections);
  out.gauge("dlaunch_http_connections", "Open connections to the status pages.",
            figures.connections);
  out.gauge("dlaunch_event_readers", "Those of them that follow the events.", figures.followers);
  out.counter("dlaunch_jobs_opened", "Jobs that were begun, each incarnation.", totals.jobs_opened);
  out.counter("dlaunch_rounds_closed", "Rounds that were closed.", totals.rounds_closed);
  out.counter("dlaunch_restarts", "Attempts after a job's first.", totals.restarts);
  out.counter("dlaunch_evictions", "Nodes that were given up while silent.", totals.evictions);
  refusals(out, status);

  out.family("dlaunch_actions", "counter", "Operators' actions, by how they came out.");
  out.sample("outcome", "done", totals.actions_done);
  out.sample("outcome", "refused", totals.actions_refused);
  out.sample("outcome", "denied", figures.actions_denied);

  const store::Counters& counters = status.counters;
  out.counter("dlaunch_connections_accepted", "Connections that were accepted.", counters.accepted);
  out.counter("dlaunch_connections_garbage",
              "Connections that were closed for bytes that cannot be.", counters.garbage);
  out.counter("dlaunch_connections_slow", "Connections that were dropped for not reading.",
              counters.slow);
  out.counter("dlaunch_connections_timed_out", "Connections that said no HELLO in time.",
              counters.timed_out);

  out.counter("dlaunch_connections_never_joined",
              "Connections that were closed for joining nothing.", totals.never_joined);
  out.counter("dlaunch_connections_failed",
              "Connections that were ended because serving them failed.", counters.failed);
  out.counter("dlaunch_connections_greedy",
              "Connections that were ended because the memory was full.", counters.greedy);
  out.gauge("dlaunch_memory_used_bytes", "What counts against memory-max.", totals.memory_used);
  out.gauge("dlaunch_memory_max_bytes", "The limit memory-max.", totals.memory_max);
  out.counter("dlaunch_memory_refusals", "Requests that were refused because the memory was full.",
              totals.memory_refusals);

  process(out, status, figures.process);
  return out.end();
}

}  // namespace dlaunch::rendezvous
