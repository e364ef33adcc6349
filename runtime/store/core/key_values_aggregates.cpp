#include "runtime/base/phrases.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/core/key_values_state.hpp"

#include <string>
#include <utility>

/// Barriers and all_gathers, and contributors that will not come any more.
namespace dlaunch::store {
namespace {

using Channel = Waits::Channel;
using Kind = PendingWait::Kind;

std::string lost_text(int rank, std::string_view why) {
  return "rank " + std::to_string(rank) + " " + std::string(why);
}

}  // namespace

void KeyValues::State::aggregate(Kind kind, Caller by, const Aggregates::Contribution& what,
                                 Clock::time_point deadline, Effects& out) {
  std::size_t blob_bytes = sizeof(Aggregates::Contribution);
  for (const BytesView blob : what.blobs) blob_bytes += blob.size();
  if (std::string why = objection(what.name, 0, 0); !why.empty()) return refuse(out, by, why);
  if (what.count < 1 || what.count > limits.contributors || what.contributors.empty()) {
    return refuse(out, by,
                  name_in_quotes(what.name) + ": from 1 to " + std::to_string(limits.contributors) +
                      " contributors are possible, not " + std::to_string(what.count));
  }
  if (blob_bytes + total_bytes() > limits.total_bytes) {
    return refuse(out, by,
                  "the store has no room for this contribution to " + name_in_quotes(what.name));
  }
  if (std::string why = memory_objection(blob_bytes); !why.empty()) return refuse(out, by, why);
  for (const int contributor : what.contributors) {
    if (contributor >= 0 && contributor < what.count) continue;
    return refuse(out, by,
                  name_in_quotes(what.name) + ": contributor " + std::to_string(contributor) +
                      " is not one of 0.." + std::to_string(what.count - 1));
  }
  const bool gather = kind == Kind::gather;
  const Channel channel = gather ? Channel::gather : Channel::barrier;
  const auto verdict = (gather ? gathers : barriers).contribute(what);
  const auto reply = [&](Caller to) {
    if (!verdict.too_big.empty()) {
      refuse(out, to, name_in_quotes(what.name) + ": " + verdict.too_big);
    } else if (gather) {
      answer(out, to, Gathered{what.count, verdict.block});
    } else {
      answer(out, to, Done{});
    }
  };
  switch (verdict.state) {
    case Aggregates::State::refused:
      return refuse(out, by, verdict.reason);
    case Aggregates::State::over:
      return reply(by);
    case Aggregates::State::waiting: {
      if (auto why = hopeless(kind, what.name)) {
        return answer(out, by, Refused{std::move(*why), Errc::peer_lost});
      }
      PendingWait wait{kind, by, NameList(what.name), 0, deadline};
      if (may_wait(wait, out)) waits.add(std::move(wait));
      return;
    }
    case Aggregates::State::complete:
      if (log != nullptr) {
        log->completed({gather, what.name, what.round, verdict.block, verdict.too_big});
      }
      reply(by);
      if (const auto* waiting = waits.listeners(channel, what.name)) {
        for (const Waits::Id id : std::vector(waiting->begin(), waiting->end())) {
          reply(waits.find(id)->by);
          waits.take(id);
        }
      }
      return;
  }
}

void KeyValues::barrier(Caller by, std::string_view name, std::uint64_t round, int count,
                        std::span<const int> contributors, Clock::time_point deadline,
                        Effects& out) {
  state_->aggregate(Kind::barrier, by, {name, round, count, contributors, {}}, deadline, out);
}

void KeyValues::all_gather(Caller by, std::string_view name, std::uint64_t round, int count,
                           std::span<const int> contributors, std::span<const BytesView> blobs,
                           Clock::time_point deadline, Effects& out) {
  if (blobs.size() != contributors.size()) {
    return refuse(out, by, name_in_quotes(name) + ": one blob for each contributor is needed");
  }
  state_->aggregate(Kind::gather, by, {name, round, count, contributors, blobs}, deadline, out);
}

std::optional<std::string> KeyValues::State::hopeless(Kind kind, std::string_view name) const {
  const Arrivals* arrived = (kind == Kind::gather ? gathers : barriers).arrivals(name);
  if (arrived == nullptr) return std::nullopt;
  for (const auto& [first, range] : losses.of(arrived->count())) {
    const int rank = arrived->first_missing(first, range.end);
    if (rank < range.end) return lost_text(rank, *range.why);
  }
  return std::nullopt;
}

/// Waits for a contributor that was lost before have been answered already.
void KeyValues::lose(Contributors lost, int world, std::string_view why, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  s.losses.add(lost, world, why);
  for (const auto& [aggregates, channel] :
       {std::pair(&s.barriers, Channel::barrier), std::pair(&s.gathers, Channel::gather)}) {
    for (const auto& [name, rank] : aggregates->lacking(lost, world)) {
      const auto* listeners = s.waits.listeners(channel, name);
      if (listeners == nullptr) continue;
      for (const Waits::Id id : Waits::Ids(*listeners)) {
        answer(out, s.waits.find(id)->by, Refused{lost_text(rank, why), Errc::peer_lost});
        s.waits.take(id);
      }
    }
  }
}

}  // namespace dlaunch::store
