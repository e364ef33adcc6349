#include "launcher/watch/core/stuck_watch.hpp"

#include "launcher/report/divergence.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace dlaunch::launcher {
namespace {

/// The most ranks that are named; the others are counted.
constexpr std::size_t absent_told_max = 16;
/// The most waiting calls that a node reports to the others.
constexpr std::size_t waits_told_max = 16;

bool same_call(const CallWait& a, const CallWait& b) {
  if (a.communicator != b.communicator || a.sequence != b.sequence) return false;
  return a.sequence != 0 || (a.rank == b.rank && a.turn == b.turn);
}

bool waits_in(const RankSight& rank, const CallWait& wait) {
  return rank.state != RankSight::State::ended &&
         std::any_of(rank.log.waits.begin(), rank.log.waits.end(), [&](const FlightWait& own) {
           if (wait.sequence == 0) return rank.rank == wait.rank && own.turn == wait.turn;
           return own.call.communicator == wait.communicator && own.call.sequence == wait.sequence;
         });
}

/// The ring of ranks that wait in messages for each other, beginning with this wait's.
std::vector<int> ring_of(const CallWait& wait, const std::vector<CallWait>& waits) {
  std::vector<int> ring;
  const CallWait* at = &wait;
  for (;;) {
    ring.push_back(at->rank);
    const auto next = std::find_if(waits.begin(), waits.end(), [&](const CallWait& other) {
      return other.sequence == 0 && other.rank == at->whom;
    });
    if (at->sequence != 0 || next == waits.end()) return {};
    if (next->rank == wait.rank) return ring;
    if (std::find(ring.begin(), ring.end(), next->rank) != ring.end()) return {};
    at = &*next;
  }
}

/// For a collective: finds the members that wait in it, and those that have not reached it or made
/// another call.
void find_absent(StuckCall& stuck, const std::vector<RankSight>& ranks, int world_size,
                 Clock::time_point now) {
  const CallWait& wait = stuck.wait;
  const bool whole_world = wait.group_size == world_size;
  for (const auto& rank : ranks) {
    const CallPart part = part_in(rank.log, {wait.communicator, wait.sequence}, wait.terms);
    if (part.kind == CallPart::Kind::none && !whole_world) continue;
    ++stuck.known;
    const std::string doing = doing_text(rank, now);
    if (part.kind == CallPart::Kind::other) {
      stuck.absent.emplace_back(
          rank.rank,
          "made another call, " + FlightNames{*rank.ring}.full_and_site(*part.made) + "; " + doing);
    } else if (waits_in(rank, wait)) {
      stuck.waiting.push_back(rank.rank);
    } else if (part.kind != CallPart::Kind::came || rank.state != RankSight::State::running) {
      stuck.absent.emplace_back(rank.rank, doing);
    }
  }
}

CallWait wait_of(const RankSight& rank, const FlightWait& seen, Clock::time_point now) {
  const FlightCall& call = seen.call;
  const FlightGroup* group = rank.log.group_of(call.communicator);
  CallWait wait;
  wait.communicator = call.communicator;
  // The members of a group that is gone are not known.
  wait.sequence = group != nullptr ? call.sequence : 0;
  wait.rank = rank.rank;
  wait.turn = seen.turn;
  wait.whom = seen.whom;
  wait.group_size = group != nullptr ? group->size : 0;
  wait.terms = call.terms();
  wait.call = FlightNames{*rank.ring}.full_and_site(call);
  wait.waited = now - call.began;
  return wait;
}

/// How long this call may wait; nullopt: forever.
std::optional<Clock::duration> limit_of(const RankSight& rank, const FlightCall& call,
                                        Clock::duration usual) {
  const FlightGroup* group = rank.log.group_of(call.communicator);
  const bool has_own = group != nullptr && group->stuck_after != group->stuck_after.zero();
  const Clock::duration limit = has_own ? group->stuck_after : usual;
  return limit > limit.zero() ? std::optional(limit) : std::nullopt;
}

/// Names absent ranks; consecutive ones that do the same are named together.
std::string absent_text(const std::vector<std::pair<int, std::string>>& absent) {
  std::string text;
  std::size_t told = 0, at = 0;
  for (; at < absent.size() && told < absent_told_max; ++told) {
    std::vector<int> alike;
    const std::string& doing = absent[at].second;
    for (; at < absent.size() && absent[at].second == doing; ++at) {
      alike.push_back(absent[at].first);
    }
    text += (text.empty() ? "" : "; ") + ranks_text(alike) + " (" + doing + ")";
  }
  if (at < absent.size()) text += "; and " + std::to_string(absent.size() - at) + " more";
  return text;
}

}  // namespace

std::vector<CallWait> merge_waits(std::vector<CallWait> waits) {
  std::vector<CallWait> merged;
  for (auto& wait : waits) {
    const auto same = std::find_if(merged.begin(), merged.end(),
                                   [&](const CallWait& other) { return same_call(other, wait); });
    if (same == merged.end()) {
      merged.push_back(std::move(wait));
      continue;
    }
    const int waiting = same->waiting + wait.waiting;
    const bool is_over = same->is_over || wait.is_over;
    if (wait.waited > same->waited) *same = std::move(wait);
    same->waiting = waiting;
    same->is_over = is_over;
  }
  return merged;
}

std::vector<CallWait> foremost(std::vector<CallWait> waits) {
  std::ranges::stable_sort(waits, std::greater(), &CallWait::waiting);
  if (waits.size() > waits_told_max) waits.resize(waits_told_max);
  return waits;
}

void StuckPart::add(const StuckPart& others) {
  known += others.known;
  waiting.insert(waiting.end(), others.waiting.begin(), others.waiting.end());
  absent.insert(absent.end(), others.absent.begin(), others.absent.end());
  std::ranges::sort(absent);
}

void StuckPart::shorten() {
  for (std::size_t i = absent_told_max; i < absent.size(); ++i) absent[i].second.clear();
}

StuckCall describe(const CallWait& wait, const std::vector<RankSight>& ranks, int world_size,
                   Clock::time_point now) {
  StuckCall stuck;
  stuck.wait = wait;
  if (wait.sequence != 0) {
    find_absent(stuck, ranks, world_size, now);
    return stuck;
  }
  for (const auto& rank : ranks) {
    if (waits_in(rank, wait)) stuck.waiting.push_back(rank.rank);
    if (rank.rank == wait.whom) stuck.absent.emplace_back(rank.rank, doing_text(rank, now));
  }
  return stuck;
}

std::string to_string(const StuckCall& stuck) {
  const CallWait& wait = stuck.wait;
  std::string text = wait.call + " has been waiting for " + age_text(wait.waited);
  if (!stuck.waiting.empty()) {
    text += ": " + ranks_text(stuck.waiting) + (stuck.waiting.size() == 1 ? " waits" : " wait");
  }
  std::string absent = absent_text(stuck.absent);
  const int unknown = wait.sequence != 0 ? wait.group_size - stuck.known : 0;
  if (unknown > 0 && stuck.silent.empty()) {
    absent += (absent.empty() ? "" : "; ") + std::to_string(unknown) +
              (unknown == 1 ? " rank that has" : " ranks that have") +
              " not made this communicator";
  }
  if (!absent.empty()) {
    text += "; absent: " + absent;
  } else if (wait.sequence != 0 && stuck.silent.empty()) {
    text += "; all ranks are in the call";
  }
  if (!wait.ring.empty()) text += "; " + ranks_text(wait.ring) + " wait for each other";
  for (const auto& node : stuck.silent) text += "; " + node;
  return text;
}

std::string doing_text(const RankSight& rank, Clock::time_point now) {
  std::string last;
  if (rank.ring != nullptr && rank.log.ready) last = doing_text(*rank.ring, rank.log, now);
  if (rank.state == RankSight::State::ended) {
    std::string text = rank.end;
    if (rank.ended) text += " " + age_text(now - *rank.ended) + " ago";
    if (rank.log.calls.empty()) return text;
    return text + ", last in " + FlightNames{*rank.ring}.label_and_site(rank.log.calls.back());
  }
  if (rank.state == RankSight::State::stopped) {
    return (rank.traced ? "stopped by a debugger" : "stopped by a signal") +
           (last.empty() ? "" : ", " + last);
  }
  if (!last.empty()) return last;
  return rank.member ? no_communicator_text : "no call of libdlaunch so far";
}

void add_names(RankSight& rank, Clock::time_point now) {
  rank.doing = doing_text(rank, now);
  if (rank.ring == nullptr) return;
  const FlightNames names{*rank.ring};
  const auto named = [&](const FlightCall& call) {
    CallNames found{.op = names.op(call),
                    .owner = names.owner(call),
                    .purpose = names.purpose(call),
                    .dtype = names.dtype(call),
                    .reduction = names.reduction(call),
                    .site = names.site(call),
                    .group = names.group(call),
                    .full = names.full(call)};
    if (found.owner.ends_with(' ')) found.owner.pop_back();
    return found;
  };
  for (const auto& call : rank.log.calls) rank.call_names.push_back(named(call));
  for (const auto& wait : rank.log.waits) rank.wait_names.push_back(named(wait.call));
}

std::vector<CallWait> WaitTimes::look(const std::vector<RankSight>& ranks, Clock::time_point now) {
  std::map<Key, Clock::time_point> seen;
  std::vector<CallWait> waits;
  for (const auto& rank : ranks) {
    // A stopped rank waits for SIGCONT, not for others.
    if (rank.state == RankSight::State::ended) continue;
    for (const auto& own : rank.log.waits) {
      const Key key(rank.rank, own.turn);
      const auto before = seen_.find(key);
      const auto since = before == seen_.end() ? now : before->second;
      seen.emplace(key, since);
      if (rank.ring == nullptr) continue;
      CallWait wait = wait_of(rank, own, now);
      // A wait of half the limit counts, too: it began soon after the first and belongs to the same
      // call.
      const auto limit = limit_of(rank, own.call, limit_);
      wait.waiting = limit && now - since >= *limit / 2 ? 1 : 0;
      wait.is_over = limit && now - since >= *limit;
      waits.push_back(std::move(wait));
    }
  }
  seen_ = std::move(seen);
  return merge_waits(std::move(waits));
}

/// Picks the call in which most wait; of several such, the one that began first.
std::optional<CallWait> StuckJudge::judge(const std::vector<CallWait>& waits) {
  if (told_ && std::any_of(waits.begin(), waits.end(),
                           [this](const CallWait& wait) { return same_call(wait, *told_); })) {
    return std::nullopt;
  }
  told_.reset();
  if (std::none_of(waits.begin(), waits.end(), [](const CallWait& w) { return w.is_over; })) {
    return std::nullopt;
  }
  told_ = *std::max_element(waits.begin(), waits.end(), [](const CallWait& a, const CallWait& b) {
    return a.waiting != b.waiting ? a.waiting < b.waiting : a.waited < b.waited;
  });
  told_->ring = ring_of(*told_, waits);
  return told_;
}

std::optional<std::string> find_disagreement(const std::vector<RankSight>& ranks) {
  std::vector<RankLog> logs;
  for (const auto& rank : ranks) logs.push_back({rank.rank, &rank.log});
  const auto found = untold_difference(logs);
  if (!found) return std::nullopt;
  const auto text = [&](const Divergence::Made& made) {
    const auto who = std::ranges::find(ranks, made.rank, &RankSight::rank);
    return "rank " + std::to_string(made.rank) + (has_returned(*made.call) ? " made " : " is in ") +
           FlightNames{*who->ring}.full_and_site(*made.call);
  };
  return "the ranks do not agree: " + text(found->first) + ", but " + text(found->second);
}

}  // namespace dlaunch::launcher
