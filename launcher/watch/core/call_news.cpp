#include "launcher/watch/core/call_news.hpp"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

namespace dlaunch::launcher {
namespace {

using rendezvous::RankCalls;

/// Times that differ by less count as equal: ranks enter and leave a call almost together.
constexpr auto together = std::chrono::milliseconds(250);

bool is_near(Clock::duration a, Clock::duration b) { return std::chrono::abs(a - b) < together; }

/// Whether two are equal, ages aside.
bool is_alike(const RankCalls& a, const RankCalls& b) {
  const auto fixed = [](const RankCalls& ranks) {
    return std::tie(ranks.state, ranks.call, ranks.communicator, ranks.sequence);
  };
  return fixed(a) == fixed(b) &&
         std::ranges::equal(a.reached, b.reached, [](const auto& one, const auto& other) {
           return std::tie(one.communicator, one.size, one.sequence) ==
                  std::tie(other.communicator, other.size, other.sequence);
         });
}

bool do_the_same(const RankCalls& a, const RankCalls& b) {
  return is_alike(a, b) && is_near(a.age, b.age) &&
         std::ranges::equal(a.reached, b.reached, [](const auto& one, const auto& other) {
           return is_near(one.age, other.age);
         });
}

/// The time since the group's last call began, at least: a record that is gone was older than those
/// that are left.
Clock::duration since_begun(const FlightGroup& group, const FlightLog& log, Clock::time_point now) {
  const auto is_it = [&](const FlightCall& call) {
    return call.communicator == group.communicator && call.sequence == group.begun &&
           call.kind != Flight::Kind::aside;
  };
  for (const auto& wait : log.waits) {
    if (is_it(wait.call)) return now - wait.call.began;
  }
  const auto begun = std::ranges::find_if(log.calls, is_it);
  if (begun != log.calls.end()) return now - begun->began;
  return log.calls.empty() ? Clock::duration::zero() : now - log.calls.front().began;
}

std::vector<RankCalls::Reached> reached_by(const FlightLog& log, Clock::time_point now) {
  std::vector<const FlightGroup*> groups;
  for (const auto& group : log.groups) {
    if (group.size > 1) groups.push_back(&group);
  }
  // The order is the same on all ranks where possible, so that they report the same communicators.
  std::ranges::sort(groups, {}, [](const FlightGroup* group) {
    return std::tuple(group->ended, -group->size, group->communicator);
  });
  std::vector<RankCalls::Reached> reached;
  for (const auto* group : groups) {
    if (reached.size() == rendezvous::reached_max) break;
    reached.push_back(
        {group->communicator, group->size, group->begun, since_begun(*group, log, now)});
  }
  return reached;
}

RankCalls::State state_of(const RankSight& rank, const FlightCall* under_way,
                          Clock::time_point now) {
  if (rank.state == RankSight::State::ended) return RankCalls::State::ended;
  if (rank.state == RankSight::State::stopped) return RankCalls::State::stopped;
  if (under_way == nullptr) {
    return rank.log.begun == 0 ? RankCalls::State::none : RankCalls::State::between;
  }
  const bool waits = std::ranges::any_of(rank.log.waits, [&](const FlightWait& wait) {
    return &wait.call == under_way && now - wait.since >= rendezvous::waits_from;
  });
  return waits ? RankCalls::State::waits : RankCalls::State::in_call;
}

RankCalls calls_of(const RankSight& rank, Clock::time_point now) {
  const FlightLog& log = rank.log;
  RankCalls told;
  if (rank.ring == nullptr || !log.ready) {
    if (rank.state == RankSight::State::ended) told.state = RankCalls::State::ended;
    return told;
  }
  const FlightCall* const under_way = call_under_way(log);
  told.state = state_of(rank, under_way, now);
  told.reached = reached_by(log, now);
  const FlightCall* call = under_way;
  if (call == nullptr && !log.calls.empty()) call = &log.calls.back();
  if (call == nullptr) return told;
  told.call = FlightNames{*rank.ring}.label_and_site(*call);
  told.call.resize(std::min(told.call.size(), rendezvous::call_bytes_max));
  if (call->sequence != 0 && call->kind != Flight::Kind::aside) {
    told.communicator = call->communicator;
    told.sequence = call->sequence;
  }
  told.age = now - (under_way != nullptr ? call->began : call->ended.value_or(call->began));
  return told;
}

}  // namespace

std::vector<RankCalls> calls_now(const std::vector<RankSight>& ranks, Clock::time_point now) {
  if (std::ranges::none_of(ranks, [](const auto& rank) { return rank.log.ready; })) return {};
  std::vector<RankCalls> told;
  for (const auto& rank : ranks) {
    RankCalls calls = calls_of(rank, now);
    if (!told.empty() && do_the_same(told.back(), calls)) {
      ++told.back().ranks;
    } else if (told.size() < rendezvous::rank_calls_max) {
      told.push_back(std::move(calls));
    } else {
      break;
    }
  }
  return told;
}

CallNews::CallNews(int node_rank, int nodes, Clock::time_point now)
    : every_(rendezvous::calls_told_every(nodes)),
      next_(now + every_ * node_rank / std::max(1, nodes)) {}

std::optional<std::vector<RankCalls>> CallNews::look(const std::vector<RankSight>& ranks,
                                                     Clock::time_point now) {
  if (now < next_) return std::nullopt;
  auto calls = calls_now(ranks, now);
  // A call that began at another time is another call, even if its name is the same.
  const auto passed = now - told_at_;
  const auto goes_on = [&](const RankCalls& before, const RankCalls& after) {
    return before.ranks == after.ranks && is_alike(before, after) &&
           (after.call.empty() || is_near(before.age + passed, after.age));
  };
  if (std::ranges::equal(told_, calls, goes_on)) return std::nullopt;
  next_ = now + every_;
  told_at_ = now;
  told_ = calls;
  return calls;
}

}  // namespace dlaunch::launcher
