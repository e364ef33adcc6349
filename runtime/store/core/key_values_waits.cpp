#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/core/key_values_state.hpp"

#include <algorithm>
#include <limits>

/// Everything that may have to wait: keys, queues, watches, aggregates, deadlines.
namespace dlaunch::store {
namespace {

using Channel = Waits::Channel;
using Kind = PendingWait::Kind;

}  // namespace

bool KeyValues::State::may_wait(Caller by, Effects& out) const {
  if (waits.count_of(by.client) < limits.waits_per_client) return true;
  refuse(out, by,
         "this client waits for " + std::to_string(limits.waits_per_client) +
             " things already, which is the limit");
  return false;
}

void KeyValues::State::wake(std::string_view key, const Entry& entry, Effects& out) {
  const auto* listeners = waits.listeners(Channel::exists, key);
  if (listeners == nullptr) return;
  for (const Waits::Id id : std::vector(listeners->begin(), listeners->end())) {
    if (waits.find(id)->kind == Kind::value) {
      answer(out, waits.take(id).by, Found{entry.value});
    } else {
      one_of_keys_came(id, key, out);
    }
  }
}

/// True if that wait is answered now: keys that came earlier may have been erased since.
bool KeyValues::State::one_of_keys_came(Waits::Id id, std::string_view key, Effects& out) {
  waits.unlisten(id, Channel::exists, key);
  PendingWait& wait = *waits.find(id);
  if (--wait.missing > 0) return false;
  for (const std::string& name : wait.names) {
    if (!exists(name) && waits.listen(id, Channel::exists, name)) ++wait.missing;
  }
  if (wait.missing > 0) return false;
  answer(out, waits.take(id).by, Done{});
  return true;
}

void KeyValues::wait(Caller by, std::span<const std::string_view> keys, Clock::time_point deadline,
                     Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection_to_keys(keys); !why.empty()) return refuse(out, by, why);
  if (std::ranges::all_of(keys, [&](std::string_view key) { return s.exists(key); })) {
    return answer(out, by, Done{});
  }
  if (!s.may_wait(by, out)) return;
  PendingWait wait{Kind::keys, by, {keys.begin(), keys.end()}, 0, deadline};
  const Waits::Id id = s.waits.add(std::move(wait));
  std::size_t missing = 0;
  for (const std::string_view key : keys) {
    if (!s.exists(key) && s.waits.listen(id, Channel::exists, key)) ++missing;
  }
  s.waits.find(id)->missing = missing;
}

void KeyValues::wait_get(Caller by, std::string_view key, Clock::time_point deadline,
                         Effects& out) {
  State& s = *state_;
  if (const auto found = s.map.find(key); found != s.map.end()) {
    return answer(out, by, Found{found->second.value});
  }
  if (std::string why = s.objection(key, 0, key.size()); !why.empty()) return refuse(out, by, why);
  if (!s.may_wait(by, out)) return;
  const Waits::Id id = s.waits.add({Kind::value, by, {std::string(key)}, 1, deadline});
  s.waits.listen(id, Channel::exists, key);
}

void KeyValues::check(Caller by, std::span<const std::string_view> keys, Effects& out) {
  const bool all =
      std::ranges::all_of(keys, [&](std::string_view key) { return state_->exists(key); });
  answer(out, by, Number{all ? 1 : 0});
}

void KeyValues::watch(Caller by, std::string_view key, Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection(key, 0, key.size()); !why.empty()) return refuse(out, by, why);
  if (!s.may_wait(by, out)) return;
  const Waits::Id id =
      s.waits.add({Kind::watch, by, {std::string(key)}, 0, Clock::time_point::max()});
  s.waits.listen(id, Channel::watch, key);
}

// ---- Queues ----

void KeyValues::push(Caller by, std::string_view queue, BytesView value, Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection(queue, value.size(), 0); !why.empty()) {
    return refuse(out, by, why);
  }
  if (const auto* poppers = s.waits.listeners(Channel::pop, queue)) {
    answer(out, by, Done{});
    const PendingWait popper = s.waits.take(*poppers->begin());
    return answer(out, popper.by, Popped{1, Bytes(value.begin(), value.end())});
  }
  auto found = s.queues.find(queue);
  if (found != s.queues.end() && found->second.size() >= s.limits.queue_length) {
    return refuse(out, by,
                  "the queue " + name_in_quotes(queue) + " is full: it has " +
                      std::to_string(found->second.size()) + " entries");
  }
  answer(out, by, Done{});
  if (found == s.queues.end()) {
    found = s.queues.emplace(std::string(queue), std::deque<Bytes>{}).first;
    s.bytes += queue.size();
  }
  found->second.emplace_back(value.begin(), value.end());
  s.bytes += value.size();
  if (s.log != nullptr) s.log->pushed(queue, value);

  const auto* listeners = s.waits.listeners(Channel::exists, queue);
  if (listeners == nullptr) return;
  bool woken = false;
  for (const Waits::Id id : std::vector(listeners->begin(), listeners->end())) {
    const PendingWait& wait = *s.waits.find(id);
    if (wait.kind != Kind::keys) continue;
    const bool for_this_alone = wait.names.size() == 1;
    if (for_this_alone && woken) continue;
    woken = woken || for_this_alone;
    s.one_of_keys_came(id, queue, out);
  }
}

void KeyValues::try_pop(Caller by, std::string_view queue, Effects& out) {
  State& s = *state_;
  const auto found = s.queues.find(queue);
  if (found == s.queues.end()) return answer(out, by, Popped{});
  if (s.log != nullptr) s.log->popped(queue);
  auto& values = found->second;
  Popped popped{static_cast<std::int64_t>(values.size()), std::move(values.front())};
  values.pop_front();
  s.bytes -= popped.value->size();
  if (values.empty()) {
    s.bytes -= queue.size();
    s.queues.erase(found);
  }
  answer(out, by, std::move(popped));
}

void KeyValues::restore_entry(std::string_view queue, BytesView value) {
  State& s = *state_;
  auto found = s.queues.find(queue);
  if (found == s.queues.end()) {
    found = s.queues.emplace(std::string(queue), std::deque<Bytes>{}).first;
    s.bytes += queue.size();
  }
  found->second.emplace_back(value.begin(), value.end());
  s.bytes += value.size();
}

void KeyValues::restore_round(const CompleteRound& round) {
  Aggregates& aggregates = round.gathers ? state_->gathers : state_->barriers;
  aggregates.restore(round.name, round.round, round.block, round.too_big);
}

void KeyValues::pop(Caller by, std::string_view queue, Clock::time_point deadline, Effects& out) {
  State& s = *state_;
  if (s.queues.contains(queue)) return try_pop(by, queue, out);
  if (std::string why = s.objection(queue, 0, queue.size()); !why.empty()) {
    return refuse(out, by, why);
  }
  if (!s.may_wait(by, out)) return;
  const Waits::Id id = s.waits.add({Kind::pop, by, {std::string(queue)}, 0, deadline});
  s.waits.listen(id, Channel::pop, queue);
}

void KeyValues::queue_size(Caller by, std::string_view queue, Effects& out) {
  const auto found = state_->queues.find(queue);
  const std::size_t size = found == state_->queues.end() ? 0 : found->second.size();
  answer(out, by, Number{static_cast<std::int64_t>(size)});
}

// ---- Aggregates ----

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
      if (const auto* gone = hopeless(kind, what.name)) {
        return answer(out, by, Refused{gone->why, Errc::peer_lost});
      }
      if (!may_wait(by, out)) return;
      const Waits::Id id = waits.add({kind, by, {std::string(what.name)}, 0, deadline});
      waits.listen(id, channel, what.name);
      return;
    }
    case Aggregates::State::complete:
      if (log != nullptr) {
        log->completed({gather, what.name, what.round, verdict.block, verdict.too_big});
      }
      reply(by);
      if (const auto* waiting = waits.listeners(channel, what.name)) {
        for (const Waits::Id id : std::vector(waiting->begin(), waiting->end())) {
          reply(waits.take(id).by);
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

const KeyValues::State::LostContributor* KeyValues::State::hopeless(Kind kind,
                                                                    std::string_view name) const {
  const Aggregates& aggregates = kind == Kind::gather ? gathers : barriers;
  for (const auto& gone : lost) {
    if (aggregates.lacks(name, gone.contributor, gone.count)) return &gone;
  }
  return nullptr;
}

void KeyValues::lose_contributor(int contributor, int count, std::string_view why, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  s.lost.push_back({contributor, count, std::string(why)});
  for (const auto& [kind, channel] :
       {std::pair(Kind::barrier, Channel::barrier), std::pair(Kind::gather, Channel::gather)}) {
    for (const std::string& name : s.waits.names(channel)) {
      const auto* gone = s.hopeless(kind, name);
      if (gone == nullptr) continue;
      const Waits::Ids waiting = *s.waits.listeners(channel, name);
      for (const Waits::Id id : waiting) {
        answer(out, s.waits.take(id).by, Refused{gone->why, Errc::peer_lost});
      }
    }
  }
}

// ---- Ends ----

bool KeyValues::cancel(Caller by) {
  const auto id = state_->waits.find(by);
  if (!id) return false;
  state_->waits.take(*id);
  return true;
}

void KeyValues::disconnect(std::uint64_t client) {
  while (const auto id = state_->waits.any_of(client)) state_->waits.take(*id);
}

void KeyValues::dismiss(std::uint64_t client, std::string_view why, Effects& out) {
  while (const auto id = state_->waits.any_of(client)) {
    answer(out, state_->waits.take(*id).by, Refused{std::string(why), Errc::aborted});
  }
}

void KeyValues::State::time_out(Waits::Id id, Effects& out) {
  const PendingWait wait = waits.take(id);
  TimedOut late;
  switch (wait.kind) {
    case Kind::keys:
      for (const std::string& name : wait.names) {
        if (!exists(name)) late.keys.push_back(name);
      }
      break;
    case Kind::barrier:
      late.contributors = barriers.missing(wait.names.front());
      break;
    case Kind::gather:
      late.contributors = gathers.missing(wait.names.front());
      break;
    case Kind::value:
    case Kind::pop:
    case Kind::watch:
      late.keys = wait.names;
      break;
  }
  answer(out, wait.by, std::move(late));
}

void KeyValues::tick(Clock::time_point now, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  for (auto next = s.waits.earliest(); next && next->first <= now; next = s.waits.earliest()) {
    s.time_out(next->second, out);
  }
  for (const std::string& key : s.leases.expire(now)) s.remove(key, out);
}

std::optional<Clock::time_point> KeyValues::next_deadline() const {
  const auto wait = state_->waits.earliest();
  const auto lease = state_->leases.earliest();
  if (!wait) return lease;
  return lease ? std::min(wait->first, *lease) : wait->first;
}

}  // namespace dlaunch::store

namespace dlaunch::store::request {

std::chrono::milliseconds SetLeased::lease() const {
  constexpr std::uint64_t longest = std::chrono::milliseconds(std::chrono::hours(24)).count();
  return std::chrono::milliseconds(std::min(lease_ms, longest));
}

Timeout Timeout::until(Clock::time_point deadline, Clock::time_point now) {
  if (deadline == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - now).count();
  return {static_cast<std::uint64_t>(std::max<decltype(left)>(left, 0))};
}

Clock::time_point Timeout::deadline(Clock::time_point now) const {
  constexpr std::uint64_t longest =
      std::uint64_t{std::numeric_limits<Clock::duration::rep>::max()} / 1000;
  if (microseconds >= longest) return Clock::time_point::max();
  return deadline_after(std::chrono::microseconds(microseconds), now);
}

}  // namespace dlaunch::store::request
