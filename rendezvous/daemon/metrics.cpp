#include "rendezvous/daemon/status_pages.hpp"

#include <map>

#include <fmt/format.h>

namespace dlaunch::rendezvous {

namespace {

/// A label's value: OpenMetrics wants UTF-8 and three escapes; job names may be any bytes, and what
/// is not plain ASCII is shown as '?'.
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

/// Appends families to an exposition. Counters' samples end in _total, as the format demands.
class Exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    suffix_ = type == "counter" ? "_total" : type == "info" ? "_info" : "";
    text_ += fmt::format("# TYPE {0} {1}\n# HELP {0} {2}\n", name, type, help);
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
  std::string end() { return std::move(text_) + "# EOF\n"; }

 private:
  std::string text_;
  std::string_view name_, suffix_;
};

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
  out.family("dlaunch_job_keys", "gauge", "Keys in a job's store.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.keys);
  out.family("dlaunch_job_bytes", "gauge", "Bytes of keys and values in a job's store.");
  for (const auto& job : status.jobs) out.sample("job", job.job, job.bytes);
}

}  // namespace

std::string metrics_text(const DaemonStatus& status) {
  Exposition out;
  out.family("dlaunch_build", "info", "What runs here.");
  out.sample("version", DLAUNCH_VERSION, 1);
  jobs_and_nodes(out, status);

  const Totals& totals = status.totals;
  out.gauge("dlaunch_connections", "Open connections to the rendezvous.", totals.connections);
  out.gauge("dlaunch_http_connections", "Open connections to the status pages.",
            status.http_connections);
  out.counter("dlaunch_jobs_opened", "Jobs that were begun, each incarnation.", totals.jobs_opened);
  out.counter("dlaunch_rounds_closed", "Rounds that were closed.", totals.rounds_closed);
  out.counter("dlaunch_restarts", "Attempts after a job's first.", totals.restarts);
  out.counter("dlaunch_evictions", "Nodes that were given up while silent.", totals.evictions);
  out.counter("dlaunch_refusals", "Nodes that were refused.", totals.refusals);

  const store::Counters& counters = status.counters;
  out.counter("dlaunch_connections_accepted", "Connections that were accepted.", counters.accepted);
  out.counter("dlaunch_connections_garbage",
              "Connections that were closed for bytes that cannot be.", counters.garbage);
  out.counter("dlaunch_connections_slow", "Connections that were dropped for not reading.",
              counters.slow);
  out.counter("dlaunch_connections_unauthenticated",
              "Connections that did not prove a job's secret.", counters.unauthenticated);
  out.counter("dlaunch_connections_timed_out", "Connections that said no HELLO in time.",
              counters.timed_out);

  out.counter("dlaunch_connections_never_joined",
              "Connections that were closed for joining nothing.", totals.never_joined);
  out.family("dlaunch_connections_refused", "counter", "Connections beyond a limit.");
  out.sample("limit", "job", totals.crowded);
  out.sample("limit", "peer", counters.crowded);
  out.counter("dlaunch_connections_failed",
              "Connections that were ended because serving them failed.", counters.failed);
  out.counter("dlaunch_connections_greedy",
              "Connections that were ended because the memory was full.", counters.greedy);
  out.gauge("dlaunch_memory_used_bytes", "What counts against memory-max.", totals.memory_used);
  out.gauge("dlaunch_memory_max_bytes", "The limit memory-max.", totals.memory_max);
  out.counter("dlaunch_memory_refusals", "Requests that were refused because the memory was full.",
              totals.memory_refusals);

  const ProcessFigures& process = status.process;
  out.gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes);
  out.gauge("process_open_fds", "Open descriptors.", process.open_fds);
  out.gauge("process_max_fds", "The limit on descriptors.", process.fds_max);
  out.counter("process_cpu_seconds", "Processor time, user and system.", process.cpu_seconds);
  out.gauge("process_uptime_seconds", "Since the daemon was ready.",
            std::chrono::duration<double>(status.up).count());
  return out.end();
}

}  // namespace dlaunch::rendezvous
