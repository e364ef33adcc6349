#include "launcher/stuck_watch.hpp"

#include "launcher/summary.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {
namespace {

/// Told one by one; of others the number.
constexpr std::size_t absent_told_max = 16;

struct Waiter {
  const RankSight* rank;
  const FlightWait* wait;
};

bool same_call(const FlightCall& a, const FlightCall& b) {
  return a.communicator == b.communicator && a.sequence == b.sequence;
}

bool waits_in(const RankSight& rank, const FlightCall& call) {
  return rank.state != RankSight::State::ended &&
         std::any_of(rank.log.waits.begin(), rank.log.waits.end(),
                     [&](const FlightWait& wait) { return same_call(wait.call, call); });
}

bool has_returned(const FlightCall& call) { return call.ended && !call.failed; }

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
}

/// Of the call in which most wait, the one who came first.
const Waiter& main_of(const std::vector<Waiter>& waiters) {
  using Call = std::pair<std::uint64_t, std::uint64_t>;
  const auto call_of = [](const Waiter& waiter) {
    const FlightCall& call = waiter.wait->call;
    return Call(call.communicator, call.sequence);
  };
  std::map<Call, int> waiting;
  for (const auto& waiter : waiters) ++waiting[call_of(waiter)];
  return *std::max_element(waiters.begin(), waiters.end(), [&](const Waiter& a, const Waiter& b) {
    const int here = waiting.at(call_of(a)), there = waiting.at(call_of(b));
    return here != there ? here < there : a.wait->call.began > b.wait->call.began;
  });
}

/// A collective: of its members, who waits in it, and who has not come that far.
void find_absent(StuckCall& stuck, const FlightCall& call, const FlightGroup& group,
                 const std::vector<RankSight>& ranks, int world_size, Clock::time_point now) {
  const bool whole_world = group.size == world_size;
  int known = 0;
  for (const auto& rank : ranks) {
    const FlightGroup* theirs = rank.log.group_of(call.communicator);
    if (theirs == nullptr && !whole_world) continue;
    ++known;
    const bool came = theirs != nullptr && theirs->begun >= call.sequence;
    if (waits_in(rank, call)) {
      stuck.waiting.push_back(rank.rank);
    } else if (!came || rank.state != RankSight::State::running) {
      stuck.absent.emplace_back(rank.rank, doing_text(rank, now));
    }
  }
  stuck.unknown = group.size - known;
}

StuckCall describe(const Waiter& first, const std::vector<RankSight>& ranks, int world_size,
                   Clock::time_point now) {
  const FlightCall& call = first.wait->call;
  const FlightNames names{*first.rank->ring};
  StuckCall stuck;
  stuck.communicator = call.communicator;
  stuck.sequence = call.sequence;
  stuck.turn = first.wait->turn;
  const std::string site = names.site(call);
  stuck.call = names.full(call) + (site.empty() ? "" : " [" + site + "]");
  stuck.waited = now - call.began;
  const FlightGroup* group = first.rank->log.group_of(call.communicator);
  if (call.sequence != 0 && group != nullptr) {
    find_absent(stuck, call, *group, ranks, world_size, now);
    return stuck;
  }
  stuck.waiting = {first.rank->rank};
  for (const auto& rank : ranks) {
    if (rank.rank == first.wait->whom) {
      stuck.absent.emplace_back(rank.rank, doing_text(rank, now));
    }
  }
  return stuck;
}

}  // namespace

std::string to_string(const StuckCall& stuck) {
  std::string text = stuck.call + " has been waiting for " + age_text(stuck.waited) + ": " +
                     ranks_text(stuck.waiting) + (stuck.waiting.size() == 1 ? " waits" : " wait");
  std::string absent;
  for (std::size_t i = 0; i < std::min(stuck.absent.size(), absent_told_max); ++i) {
    const auto& [rank, doing] = stuck.absent[i];
    absent += (i == 0 ? "" : "; ") + ("rank " + std::to_string(rank)) + " (" + doing + ")";
  }
  if (stuck.absent.size() > absent_told_max) {
    absent += "; and " + std::to_string(stuck.absent.size() - absent_told_max) + " more";
  }
  if (stuck.unknown > 0) {
    absent += (absent.empty() ? "" : "; ") + std::to_string(stuck.unknown) +
              (stuck.unknown == 1 ? " rank that is" : " ranks that are") + " not on this node";
  }
  if (!absent.empty()) return text + "; absent: " + absent;
  return text + (stuck.sequence != 0 ? "; all ranks are in the call" : "");
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
    return "stopped by a signal" + (last.empty() ? "" : ", " + last);
  }
  if (!last.empty()) return last;
  return rank.member ? "it has made no communicator yet" : "it has not joined the world yet";
}

void StuckWatch::forget() {
  seen_.clear();
  told_.reset();
}

std::optional<StuckCall> StuckWatch::look(const std::vector<RankSight>& ranks, int world_size,
                                          Clock::time_point now) {
  std::map<Key, Clock::time_point> seen;
  std::vector<Waiter> waiters;
  bool is_over = false;
  for (const auto& rank : ranks) {
    // A stopped rank waits for SIGCONT, not for others.
    if (rank.state == RankSight::State::ended) continue;
    for (const auto& wait : rank.log.waits) {
      const Key key(rank.rank, wait.turn);
      const auto before = seen_.find(key);
      const auto since = before == seen_.end() ? now : before->second;
      seen.emplace(key, since);
      // What began to wait shortly after the first belongs to the same story.
      if (now - since < limit_ / 2 || rank.ring == nullptr) continue;
      waiters.push_back({&rank, &wait});
      is_over = is_over || now - since >= limit_;
    }
  }
  seen_ = std::move(seen);
  if (told_ && seen_.contains(*told_)) return std::nullopt;
  told_.reset();
  if (!is_over) return std::nullopt;
  const Waiter& main = main_of(waiters);
  told_ = Key(main.rank->rank, main.wait->turn);
  return describe(main, ranks, world_size, now);
}

std::optional<std::string> find_disagreement(const std::vector<RankSight>& ranks) {
  struct Made {
    const RankSight* rank;
    const FlightCall* call;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Made> made;
  for (const auto& rank : ranks) {
    for (const auto& call : rank.log.calls) {
      if (call.sequence == 0 || call.kind == Flight::Kind::aside) continue;
      const auto [place, is_first] =
          made.try_emplace({call.communicator, call.sequence}, Made{&rank, &call});
      if (is_first || call.agrees_with(*place->second.call)) continue;
      const FlightCall& other = *place->second.call;
      // Where both are in their calls, or failed, they say it themselves.
      if (!has_returned(call) && !has_returned(other)) continue;
      const auto text = [](const RankSight& who, const FlightCall& what) {
        const FlightNames names{*who.ring};
        const std::string site = names.site(what);
        return "rank " + std::to_string(who.rank) + (has_returned(what) ? " made " : " is in ") +
               names.full(what) + (site.empty() ? "" : " [" + site + "]");
      };
      return "the ranks do not agree: " + text(*place->second.rank, other) + ", but " +
             text(rank, call);
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch::launcher
