#include "launcher/job/agent_settings.hpp"
#include "launcher/job/agent_state.hpp"
#include "launcher/job/end_report.hpp"
#include "launcher/plan/environment.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>
#include <variant>

#include <unistd.h>

/// The agent's answers to subcommands, ranks and probes; and the messages of ranks and other agents
/// that are no part of the job's own course.
namespace dlaunch::launcher {
namespace {

/// The RANK that a process of this host was started with, where /proc shows it and it was started
/// for the store at this port.
std::optional<int> rank_of_process(pid_t pid, std::uint16_t store_port) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  std::vector<std::string> environment;
  for (std::string line; std::getline(file, line, '\0');) environment.push_back(line);
  if (lookup(environment, "MASTER_PORT") != std::to_string(store_port)) return std::nullopt;
  const auto rank = lookup(environment, "RANK");
  int number = -1;
  if (!rank) return std::nullopt;
  const char* const end = rank->data() + rank->size();
  const auto read = std::from_chars(rank->data(), end, number);
  const bool is_all = read.ec == std::errc() && read.ptr == end && number >= 0;
  return is_all ? std::optional(number) : std::nullopt;
}

}  // namespace

JobEntry Agent::entry() const {
  const Assignment& placed = epoch_.assignment;
  const bool began = !placed.job.empty();
  const auto front = process_stat(seat_.front);
  JobEntry entry{.job = began ? placed.job : task_.job,
                 .node = task_.node_id,
                 .host = task_.machine.hostname,
                 .state = state(),
                 .ranks_here = static_cast<std::uint32_t>(task_.workers),
                 .world_size = began ? static_cast<std::uint32_t>(placed.world_size) : 0,
                 .attempt = static_cast<std::uint32_t>(placed.attempt),
                 .began = WallClock::now() - std::chrono::duration_cast<WallClock::duration>(
                                                 Clock::now() - task_.begun),
                 .front_started = front ? front->started : 0,
                 .program = program_text(task_.spec)};
  return entry;
}

JobRanks Agent::ranks() const {
  if (history_.empty()) return {};
  return ranks_of(history_.plan(), workers_.pids(), console_.output());
}

/// Draining a second time changes nothing: the workers are to end by themselves.
JobDrained Agent::drain() {
  using Then = JobDrained::Then;
  const int nodes = link_.alone() ? 1 : epoch_.assignment.node_count;
  const int least = task_.spec.nodes.least;
  JobDrained drained{.then = Then::goes_on, .nodes_left = nodes - 1, .nodes_least = least};
  if (nodes < 2) {
    drained.then = Then::only_node;
  } else if (!task_.spec.nodes.elastic()) {
    drained.then = Then::not_elastic;
  } else if (link_.hosts()) {
    drained.then = Then::hosted_here;
  } else if (drained.nodes_left < least) {
    drained.then = Then::too_few;
  }
  if (std::exchange(drained_, true)) return drained;
  say("this node is drained (dlaunch drain): the job " + drained_text(drained), Level::warning);
  stop_ourselves();
  return drained;
}

JobState Agent::state() const {
  if (core_.is_decided() || core_.is_winding_up() || is_ending()) return JobState::stopping;
  if (!gang_is_gone()) return JobState::running;
  if (history_.empty()) return JobState::waiting;
  const bool succeeded = last_end_.outcome == Outcome::succeeded;
  return succeeded || !link_.is_heard() ? JobState::ended : JobState::restarting;
}

void Agent::open_health() {
  if (!task_.spec.health) return;
  const auto& [host, port] = *task_.spec.health;
  unique_fd listener;
  try {
    listener = listen_tcp(resolve(host, port).front());
  } catch (const Error& error) {
    throw Error(error.errc(), "--health-port: " + std::string(error.what()));
  }
  const std::string at = local_address(listener.get()).to_string();
  health_ = std::make_unique<HealthServer>(std::move(listener));
  if (port == 0) say("the health of this node is told at http://" + at + "/healthz");
  tell_health();
}

/// Repeats itself as long as the loop turns.
void Agent::tell_health() {
  health_->turned(unready_text(state()));
  health_timer_.expires_after(turn_interval);
  health_timer_.async_wait([this](auto error) {
    if (!error) tell_health();
  });
}

/// Sends the front the signal that a user would send.
void Agent::stop_ourselves() {
  const auto& stopping = task_.spec.signals;
  const bool usual = stopping.empty() || std::ranges::count(stopping, SIGTERM) > 0;
  ::kill(seat_.front, usual ? SIGTERM : stopping.front());
}

void Agent::on_inquired(int rank, const std::vector<std::int32_t>& about) {
  watch_.ask_doing(about, [this, rank, epoch = epoch_.assignment.epoch](const wire::Doing& doing) {
    if (epoch == epoch_.assignment.epoch) host_->tell_doing(rank, doing);
  });
}

/// Describes a client: its rank, if that can be found, else its process or host.
Agent::Client Agent::client_of(const Address& peer, const Address& own) const {
  if (peer.is_loopback() || peer.host() == own.host()) {
    const auto pid = peer_process(own, peer);
    if (!pid) return {"a process of this host"};
    const std::string number = " (pid " + std::to_string(*pid) + ")";
    const int place = workers_.local_rank_of(*pid);
    if (place >= 0) {
      const int rank = epoch_.assignment.first_rank + place;
      return {"rank " + std::to_string(rank) + number, rank};
    }
    // Another agent's worker on this host, or a process that left its worker's group.
    const auto rank = rank_of_process(*pid, own.port());
    if (!rank) return {"a process" + number};
    return {"rank " + std::to_string(*rank) + number, *rank};
  }
  for (const auto& node : *admission_.roster) {
    const bool here = std::ranges::any_of(node.store_addresses, [&](const auto& address) {
      const auto read = read_endpoint(address);
      const auto* endpoint = std::get_if<EndpointAsked>(&read);
      return endpoint != nullptr && endpoint->host == peer.host();
    });
    if (!here) continue;
    const std::string first = std::to_string(node.first_rank);
    const std::string last = std::to_string(node.first_rank + node.workers - 1);
    if (node.workers == 1) return {"rank " + first + " on node " + node.id, node.first_rank};
    return {"one of the ranks " + first + " to " + last + " on node " + node.id};
  }
  return {"a client at " + peer.to_string()};
}

/// Only a look at all processes shows whose a connection is, and the loop stands still meanwhile.
/// So the number of clients that are told of is limited.
JobStoreWaits Agent::store_waits() const {
  constexpr std::size_t told_max = 64;
  constexpr auto patience = std::chrono::milliseconds(500);
  JobStoreWaits told{.elsewhere = epoch_.assignment.node_rank > 0,
                     .world_size = epoch_.assignment.world_size};
  if (!host_ || gang_is_gone()) return told;
  const auto now = Clock::now();
  for (auto& each : host_->c10d_waiting()) {
    if (told.waits.size() >= told_max || Clock::now() > now + patience) {
      ++told.left_out;
      continue;
    }
    const Client client = client_of(each.peer, each.own);
    JobStoreWaits::Wait wait{.rank = client.rank, .client = client.name};
    wait.keys = std::move(each.what.keys);
    wait.more = each.what.more;
    wait.for_ms = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now - each.what.since).count());
    if (each.what.barrier) {
      wait.arrived = each.what.barrier->arrived;
      wait.expected = each.what.barrier->world;
    }
    told.waits.push_back(std::move(wait));
  }
  return told;
}

void Agent::on_refused_client(const Address& peer, const Address& own, const std::string& why) {
  say(client_of(peer, own).name + ": PyTorch's store has closed its connection, for " + why,
      Level::warning);
}

// ---- What it is told ----

/// Some questions of other agents carry news for this one.
void Agent::heed_watch() {
  watch_.expect_time_wanted([this](Clock::duration time) {
    job_deadline_.put_off(std::chrono::duration_cast<std::chrono::milliseconds>(time));
  });
  if (task_.spec.stall_timeout.count() == 0) return;
  watch_.expect_progress(
      {.limit = task_.spec.stall_timeout,
       .output_of =
           [this](int rank) { return console_.output() ? console_.output()->bytes_of(rank) : 0; },
       .stalled = [this](const std::string& sentence) { on_stalled(sentence); }});
}

/// The pipe is a script's only way to declare progress.
void Agent::open_notify_pipe() {
  if (task_.spec.stall_timeout.count() == 0 && !job_deadline_.at()) return;
  const auto heard_other = [this](std::string_view line) {
    if (std::exchange(told_of_notices_, true)) return;
    say("a worker wrote " + in_quotes(clipped(line)) +
            " to the pipe DLAUNCH_WORKER_NOTIFY, which takes progress, and extend with a time",
        Level::warning);
  };
  try {
    if (!notify_pipe_ && !run_directory_.notify_pipe().empty()) {
      notify_pipe_ = std::make_unique<NotifyPipe>(
          io_, run_directory_.notify_pipe(),
          NotifyPipe::Heard{.progress = [this] { watch_.progressed(); },
                            .time_wanted = [this](auto time) { on_time_wanted(time); },
                            .other = heard_other});
    }
  } catch (const Error& error) {
    say(std::string(error.what()) +
            "; workers can neither declare progress nor put the deadline off",
        Level::warning);
  }
  if (notify_pipe_) epoch_.assignment.notify_pipe = notify_pipe_->path();
}

/// A worker may say so again and again: what becomes of it is told when there is something new.
void Agent::on_time_wanted(std::chrono::milliseconds time) {
  constexpr auto worth_telling = std::chrono::seconds(30);
  const auto before = job_deadline_.at();
  const auto now = job_deadline_.put_off(time);
  if (!now || is_ending()) return;
  if (now->moved) watch_.tell_time_wanted(time);
  const bool news = now->moved ? !told_deadline_ || now->at - *told_deadline_ >= worth_telling
                               : !now->whole && told_deadline_ != before;
  if (!news) return;
  told_deadline_ = now->at;
  say(put_off_sentence(*now, time), Level::warning);
}

/// All nodes hear that the job has stalled; node rank 0 says so for all.
void Agent::on_stalled(const std::string& sentence) {
  if (epoch_.assignment.node_rank == 0) {
    say(sentence + ": the attempt is ended (--stall-timeout)", Level::error);
  }
  if (supervisor_.state() != Supervisor::State::running) return;
  epoch_.timed_out = true;
  epoch_.no_progress = sentence;
  history_.stalled(sentence);
  feed(Stalled{});
}

}  // namespace dlaunch::launcher
