#include "runtime/base/deadline.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/socket.hpp"
#include "runtime/segment/processors.hpp"
#include "runtime/world/children.hpp"
#include "runtime/world/identity.hpp"
#include "runtime/world/info.hpp"
#include "runtime/world/rank_host.hpp"

#include <dlaunch/spawn.hpp>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <fcntl.h>
#include <signal.h>

namespace dlaunch {
namespace {

constexpr int count_max = 1024;

/// In the child: what a launcher would have put into its environment.
void write_environment(const WorldInfo& info, int control) {
  ::unsetenv("DLAUNCH_WORKER_AGENT");  // That one knows the parent.
  for (const auto& [name, value] : environment_of(info)) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ::setenv("DLAUNCH_WORKER_CONTROL", std::to_string(control).c_str(), 1);
  ::fcntl(control, F_SETFD, 0);  // As after exec: what has the flag is not taken for inherited.
}

WorldInfo info_of(int rank, int count, const std::string& job, const Address& master) {
  WorldInfo info;
  info.rank = info.local_rank = rank;
  info.size = info.local_size = count;
  info.job = job;
  info.master_addr = master.host();
  info.master_port = std::to_string(master.port());
  return info;
}

SegmentPlan segment_plan(int count, const std::string& job) {
  SegmentPlan plan;
  plan.job = hash_of_job(job);
  plan.world_ranks.resize(static_cast<std::size_t>(count));
  std::iota(plan.world_ranks.begin(), plan.world_ranks.end(), 0);
  plan.oversubscribed = read_processors().oversubscribed_by(count);
  return plan;
}

/// A failure that is only the echo of another's.
bool is_consequence(const ChildEnd& end) {
  return end.errc == Errc::peer_lost || end.errc == Errc::aborted;
}

SpawnError error_of(const ChildEnd& end, int count) {
  return SpawnError(end.errc.value_or(Errc::peer_lost),
                    "spawn: rank " + std::to_string(end.rank) + " of " + std::to_string(count) +
                        " (pid " + std::to_string(end.pid) + ") " + end.cause(),
                    end.rank, end.exit_code, end.signal);
}

void tell(RankHost& host, const ChildEnd& end, const std::string& hostname) {
  const std::string cause = end.is_failure() ? end.cause() : "exited 0 before the others";
  host.tell_lost({end.rank, hostname, cause}, end.is_failure());
}

/// Waits for all; the failures, in order, up to where the others were told to end.
std::vector<ChildEnd> wait_for_all(Children& children, RankHost& host,
                                   const SpawnOptions& options) {
  const std::string hostname = own_hostname();
  std::vector<ChildEnd> failures;
  auto deadline = Clock::time_point::max();
  while (!children.empty() && Clock::now() < deadline) {
    for (ChildEnd& end : children.wait(deadline)) {
      tell(host, end, hostname);
      if (!end.is_failure()) continue;
      if (failures.empty()) deadline = deadline_after(options.failure_grace);
      failures.push_back(std::move(end));
    }
  }
  if (children.empty()) return failures;
  children.signal_all(SIGTERM);
  deadline = deadline_after(options.shutdown_timeout);
  while (!children.empty() && Clock::now() < deadline) children.wait(deadline);
  return failures;
}

}  // namespace

SpawnError::SpawnError(Errc code, const std::string& sentence, int rank, int exit_code, int signal)
    : Error(code, sentence), rank_(rank), exit_code_(exit_code), signal_(signal) {}

SpawnError::~SpawnError() = default;

void spawn_workers(int count, const std::function<int(int rank)>& program,
                   const SpawnOptions& options) {
  if (count < 1 || count > count_max) {
    throw Error(Errc::misuse, "spawn: " + std::to_string(count) + " workers; 1 to " +
                                  std::to_string(count_max) + " are possible");
  }
  // The listener and the sockets come first, then the forks, then the host's thread: a child of a
  // process with several threads may not do much.
  unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address master = local_address(listener.get());
  const std::string job = "spawn-" + random_hex(32);
  std::vector<unique_fd> host_ends;
  Children children;
  for (int rank = 0; rank < count; ++rank) {
    auto [host_end, worker_end] = socket_pair();
    host_ends.push_back(std::move(host_end));
    children.start(rank, [&, control = &worker_end] {
      listener.reset();
      host_ends.clear();
      write_environment(info_of(rank, count, job, master), control->release());
      return program(rank);
    });
  }
  RankHost::Options host_options;
  host_options.world_size = count;
  host_options.job = job;
  host_options.listeners.push_back(std::move(listener));
  host_options.owner_tells_losses = true;
  if (count > 1) host_options.segment = segment_plan(count, job);
  RankHost host(std::move(host_options));
  for (unique_fd& end : host_ends) host.adopt(std::move(end));

  const auto failures = wait_for_all(children, host, options);
  if (failures.empty()) return;
  const auto first = std::ranges::find_if_not(failures, is_consequence);
  throw error_of(first == failures.end() ? failures.front() : *first, count);
}

}  // namespace dlaunch
