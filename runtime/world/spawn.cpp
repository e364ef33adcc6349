#include "runtime/base/deadline.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"
#include "runtime/segment/calls_made.hpp"
#include "runtime/segment/processors.hpp"
#include "runtime/world/by_hand/rank_host.hpp"
#include "runtime/world/children.hpp"
#include "runtime/world/member/info.hpp"

#include <dlaunch/spawn.hpp>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>

namespace dlaunch {
namespace {

constexpr int count_max = 1024;

/// In the child: sets the variables that a launcher would have set.
void write_environment(const WorldInfo& info, int control) {
  ::unsetenv("DLAUNCH_WORKER_AGENT");  // That agent knows the parent.
  for (const auto& [name, value] : environment_of(info)) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ::setenv("DLAUNCH_WORKER_CONTROL", std::to_string(control).c_str(), 1);
  // As after exec: a descriptor with the flag would not count as inherited.
  ::fcntl(control, F_SETFD, 0);
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
  plan.job = text_hash(job);
  plan.world_ranks.resize(static_cast<std::size_t>(count));
  std::iota(plan.world_ranks.begin(), plan.world_ranks.end(), 0);
  plan.oversubscribed = read_processors().oversubscribed_by(count);
  return plan;
}

/// The time for the last reports, which may still be unread.
constexpr auto reports_wait = std::chrono::seconds(1);

struct Ended {
  ChildEnd end;
  Clock::time_point when;
};

/// The ranks that ended by themselves, in order.
using Ends = std::vector<Ended>;

SpawnError error_of(const Verdict& verdict, const Ends& ends, int count) {
  const int rank = verdict.rank();
  const auto name = [&](int named) {
    const auto found =
        std::ranges::find_if(ends, [&](const Ended& ended) { return ended.end.rank == named; });
    return "rank " + std::to_string(named) + " of " + std::to_string(count) +
           (found == ends.end() ? "" : " (pid " + std::to_string(found->end.pid) + ")");
  };
  const auto own =
      std::ranges::find_if(ends, [&](const Ended& ended) { return ended.end.rank == rank; });
  const bool failed = own != ends.end() && own->end.is_failure();
  const std::string what = failed && verdict.ranks.size() == 1 ? name(rank) + " " + own->end.cause()
                                                               : sentence_of(verdict, name);
  const Errc code = failed ? own->end.errc.value_or(Errc::peer_lost) : Errc::peer_lost;
  return SpawnError(code, "spawn: " + what, rank, failed ? own->end.exit_code : 0,
                    failed ? own->end.signal : 0);
}

void tell(RankHost& host, const ChildEnd& end, const std::string& hostname) {
  const std::string cause = end.is_failure() ? end.cause() : left_text;
  host.tell_lost({end.rank, hostname, cause, !end.is_failure()}, end.is_failure());
}

/// Waits for all; returns the ends up to the point where the rest were told to end.
Ends wait_for_all(Children& children, RankHost& host, const SpawnOptions& options) {
  const std::string hostname = own_hostname();
  Ends ends;
  bool failed = false;
  auto deadline = Clock::time_point::max();
  while (!children.empty() && Clock::now() < deadline) {
    for (ChildEnd& end : children.wait(deadline)) {
      tell(host, end, hostname);
      if (end.is_failure() && !std::exchange(failed, true)) {
        deadline = deadline_after(options.failure_grace);
      }
      ends.push_back({std::move(end), Clock::now()});
    }
  }
  if (children.empty()) return ends;
  children.signal_all(SIGTERM);
  deadline = deadline_after(options.shutdown_timeout);
  while (!children.empty() && Clock::now() < deadline) children.wait(deadline);
  return ends;
}

/// The facts, from the ranks' reports. A rank that could not even join was told the same as all.
Facts facts_of(const Ends& ends, RankHost& host) {
  Facts facts;
  const auto claims = host.claims();
  const auto forming = host.forming_claim();
  std::vector<int> left;  // The first ranks that have left so far.
  for (const auto& [end, when] : ends) {
    if (!end.is_failure()) {
      facts.add_left(end.rank);
      if (left.size() < Claim::ranks_max) left.push_back(end.rank);
      continue;
    }
    Fact fact;
    fact.rank = end.rank;
    fact.end = Fact::End::failed;
    fact.exit_code = end.signal == 0 ? end.exit_code : 0;
    fact.signal = end.signal;
    fact.when = when;
    const auto claim = claims.find(end.rank);
    // A rank that came later was turned away for the same reason.
    const bool was_told = end.errc == Errc::peer_lost || end.errc == Errc::timeout ||
                          end.errc == Errc::unreachable || end.errc == Errc::refused;
    if (claim != claims.end()) {
      fact.claim = claim->second;
    } else if (forming && was_told) {
      fact.claim = forming;
    } else if (end.errc == Errc::peer_lost || end.errc == Errc::aborted) {
      // The rank could not name the lost one.
      fact.claim = Claim{.fault = Fault::lost, .ranks = left};
    }
    facts.ranks.emplace(end.rank, std::move(fact));
  }
  // Ranks that we ended may have reported before.
  for (const auto& [rank, claim] : claims) {
    if (facts.ranks.contains(rank) || facts.has_left(rank)) continue;
    Fact fact;
    fact.rank = rank;
    fact.claim = claim;
    facts.ranks.emplace(rank, std::move(fact));
  }
  return facts;
}

/// The error, once all have ended, if they made calls that differed and returned without noticing
/// it.
std::optional<SpawnError> disagreement_of(RankHost& host) {
  const auto segment = host.segment();
  if (!segment) return std::nullopt;
  std::vector<FlightLog> logs;
  for (int rank = 0; rank < segment->size(); ++rank) {
    logs.push_back(read_flight(segment->flight(rank)));
  }
  std::vector<RankFlight> ranks;
  for (int rank = 0; rank < segment->size(); ++rank) {
    const auto& log = logs[static_cast<std::size_t>(rank)];
    ranks.push_back({rank, &segment->flight(rank), &log});
  }
  CallLedger ledger;
  for (auto& calls : calls_made(ranks)) ledger.add(std::move(calls));
  const auto sentence = ledger.disagreement();
  if (!sentence) return std::nullopt;
  return SpawnError(Errc::mismatch, "spawn: " + *sentence, ledger.odd_rank().value_or(0), 0, 0);
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

  const Ends ends = wait_for_all(children, host, options);
  if (std::ranges::none_of(ends, [](const Ended& ended) { return ended.end.is_failure(); })) {
    if (const auto differ = disagreement_of(host)) throw *differ;
    return;
  }
  host.await_departures(deadline_after(reports_wait));
  const Verdict verdict = judge(facts_of(ends, host)).value();
  if (verdict.nobody_failed() && children.empty()) {
    if (const auto differ = disagreement_of(host)) throw *differ;
  }
  throw error_of(verdict, ends, count);
}

}  // namespace dlaunch
