#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/core/key_values_state.hpp"

#include <algorithm>
#include <limits>
#include <utility>

/// Everything that may have to wait: keys, queues, watches, deadlines. key_values_aggregates.cpp
/// has the aggregates.
namespace dlaunch::store {
namespace {

using Channel = Waits::Channel;
using Kind = PendingWait::Kind;

/// A wait for more keys than the first number is not examined within the request that sets one of
/// them. A tick or a request examines the second number of names at most before others have their
/// turn.
constexpr std::size_t names_at_once = 64;
constexpr std::size_t names_per_tick = 2048;

}  // namespace

bool KeyValues::State::may_wait(const PendingWait& wait, Effects& out) const {
  std::string why;
  if (waits.count_of(wait.by.client) >= limits.waits_per_client) {
    why = "this client waits for " + std::to_string(limits.waits_per_client) +
          " things already, which is the limit";
  } else if (total_bytes() + wait.bytes() > limits.total_bytes) {
    why = "the store has no room for this wait: it holds " + std::to_string(total_bytes()) +
          " of " + std::to_string(limits.total_bytes) + " bytes";
  } else {
    why = memory_objection(wait.bytes());
  }
  if (why.empty()) return true;
  refuse(out, wait.by, why);
  return false;
}

void KeyValues::State::wake(std::string_view key, const Entry& entry, Effects& out) {
  const auto* listeners = waits.listeners(Channel::exists, key);
  if (listeners == nullptr) return;
  const auto block = block_for(listeners->size(), entry.value);
  for (const Waits::Id id : std::vector(listeners->begin(), listeners->end())) {
    if (const PendingWait& wait = *waits.find(id); wait.kind == Kind::value) {
      answer(out, wait.by, Found{entry.value, block});
      waits.take(id);
    } else {
      one_of_keys_came(id, out);
    }
  }
}

void KeyValues::State::one_of_keys_came(Waits::Id id, Effects& out) {
  PendingWait& wait = *waits.find(id);
  if (wait.names.count() <= names_at_once) {
    look_at(id, names_at_once, out);
    return;
  }
  if (wait.woken) return;
  woken.push_back(id);
  wait.woken = true;
}

/// Goes once around the names, from the one that it listened to: earlier ones may have been erased
/// meanwhile.
std::size_t KeyValues::State::look_at(Waits::Id id, std::size_t names, Effects& out) {
  PendingWait& wait = *waits.find(id);
  if (wait.looked == 0) wait.next = wait.at;
  for (std::size_t looked = 0; wait.looked < wait.names.count(); ++looked) {
    if (looked == names) return looked;
    if (!exists(wait.names[wait.next])) {
      waits.listen_at(id, wait.next);
      wait.woken = false;
      wait.looked = 0;
      return looked + 1;
    }
    ++wait.looked;
    wait.next = wait.names.next(wait.next);
    if (wait.next == wait.names.end()) wait.next = 0;
  }
  answer(out, wait.by, Done{});
  return std::min(names, waits.take(id).names.count());
}

void KeyValues::wait(Caller by, std::span<const std::string_view> keys, Clock::time_point deadline,
                     Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection_to_keys(keys); !why.empty()) return refuse(out, by, why);
  const auto first = keys.first(std::min(keys.size(), names_per_tick));
  const auto missing =
      std::ranges::find_if(first, [&](std::string_view key) { return !s.exists(key); });
  if (missing == first.end() && first.size() == keys.size()) return answer(out, by, Done{});
  PendingWait wait{Kind::keys, by, NameList(keys), 0, deadline};
  if (missing == first.end()) {
    wait.woken = true;  // The rest is examined like that of a wait whose key has come.
  } else {
    for (auto key = first.begin(); key != missing; ++key) wait.at = wait.names.next(wait.at);
  }
  if (!s.may_wait(wait, out)) return;
  const bool woken = wait.woken;
  const Waits::Id id = s.waits.add(std::move(wait));
  if (woken) s.woken.push_back(id);
}

void KeyValues::wait_get(Caller by, std::string_view key, Clock::time_point deadline,
                         Effects& out) {
  State& s = *state_;
  if (const auto found = s.map.find(key); found != s.map.end()) {
    return answer(out, by, Found{found->second.value});
  }
  if (std::string why = s.objection(key, 0, key.size()); !why.empty()) return refuse(out, by, why);
  PendingWait wait{Kind::value, by, NameList(key), 0, deadline};
  if (s.may_wait(wait, out)) s.waits.add(std::move(wait));
}

void KeyValues::check(Caller by, std::span<const std::string_view> keys, Effects& out) {
  const bool all =
      std::ranges::all_of(keys, [&](std::string_view key) { return state_->exists(key); });
  answer(out, by, Number{all ? 1 : 0});
}

void KeyValues::watch(Caller by, std::string_view key, Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection(key, 0, key.size()); !why.empty()) return refuse(out, by, why);
  PendingWait wait{Kind::watch, by, NameList(key)};
  if (s.may_wait(wait, out)) s.waits.add(std::move(wait));
}

// ---- Queues ----

void KeyValues::push(Caller by, std::string_view queue, BytesView value, Effects& out) {
  State& s = *state_;
  if (std::string why = s.objection(queue, value.size(), 0); !why.empty()) {
    return refuse(out, by, why);
  }
  if (const auto* poppers = s.waits.listeners(Channel::pop, queue)) {
    answer(out, by, Done{});
    const Waits::Id popper = *poppers->begin();
    answer(out, s.waits.find(popper)->by, Popped{1, Bytes(value.begin(), value.end())});
    s.waits.take(popper);
    return;
  }
  auto found = s.queues.find(queue);
  if (found != s.queues.end() && found->second.size() >= s.limits.queue_length) {
    return refuse(out, by,
                  "the queue " + name_in_quotes(queue) + " is full: it has " +
                      std::to_string(found->second.size()) + " entries");
  }
  answer(out, by, Done{});
  // A queue has an entry from its beginning on.
  std::deque<Bytes> first;
  if (found == s.queues.end()) first.emplace_back(value.begin(), value.end());
  if (found == s.queues.end()) {
    s.queues.emplace(std::string(queue), std::move(first));
    s.bytes += queue.size();
  } else {
    found->second.emplace_back(value.begin(), value.end());
  }
  s.bytes += value.size();
  if (s.log != nullptr) s.log->pushed(queue, value);
  ++s.queued;

  const auto* listeners = s.waits.listeners(Channel::exists, queue);
  if (listeners == nullptr) return;
  bool woken = false;
  for (const Waits::Id id : std::vector(listeners->begin(), listeners->end())) {
    const PendingWait& wait = *s.waits.find(id);
    if (wait.kind != Kind::keys) continue;
    const bool for_this_alone = wait.names.count() == 1;
    if (for_this_alone && woken) continue;
    woken = woken || for_this_alone;
    s.one_of_keys_came(id, out);
  }
}

void KeyValues::try_pop(Caller by, std::string_view queue, Effects& out) {
  State& s = *state_;
  const auto found = s.queues.find(queue);
  if (found == s.queues.end()) return answer(out, by, Popped{});
  auto& values = found->second;
  answer(out, by, Popped{static_cast<std::int64_t>(values.size()), std::nullopt});
  if (s.log != nullptr) s.log->popped(queue);
  auto& popped = std::get<Popped>(out.back().answer).value.emplace(std::move(values.front()));
  values.pop_front();
  s.bytes -= popped.size();
  --s.queued;
  if (values.empty()) {
    s.bytes -= queue.size();
    s.queues.erase(found);
  }
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
  ++s.queued;
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
  PendingWait wait{Kind::pop, by, NameList(queue), 0, deadline};
  if (s.may_wait(wait, out)) s.waits.add(std::move(wait));
}

void KeyValues::queue_size(Caller by, std::string_view queue, Effects& out) {
  const auto found = state_->queues.find(queue);
  const std::size_t size = found == state_->queues.end() ? 0 : found->second.size();
  answer(out, by, Number{static_cast<std::int64_t>(size)});
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
    answer(out, state_->waits.find(*id)->by, Refused{std::string(why), Errc::aborted});
    state_->waits.take(*id);
  }
}

bool KeyValues::State::is_overdue(const PendingWait& wait) const {
  const std::string_view name = wait.names[wait.at];
  switch (wait.kind) {
    case Kind::keys:
      return !wait.woken && exists(name);
    case Kind::value:
      return map.contains(name);
    case Kind::pop:
      return queues.contains(name);
    case Kind::watch:
      return changes;
    case Kind::barrier:
    case Kind::gather: {
      const Arrivals* arrived = (wait.kind == Kind::gather ? gathers : barriers).arrivals(name);
      if (arrived == nullptr || arrived->lacking() == 0) return true;
      return std::ranges::any_of(losses.of(arrived->count()), [&](const auto& lost) {
        return arrived->first_missing(lost.first, lost.second.end) < lost.second.end;
      });
    }
  }
  return false;  // Not reached: the switch is complete.
}

void KeyValues::overdue(const std::function<void(std::uint64_t)>& tell) const noexcept {
  state_->waits.for_each([&](const PendingWait& wait) {
    if (state_->is_overdue(wait)) tell(wait.by.client);
  });
  state_->changes = false;
}

/// The wait ends when its answer is made: without memory for that it is timed out later.
std::size_t KeyValues::State::time_out(Waits::Id id, std::size_t most, Effects& out) {
  std::size_t looked = 0;
  if (PendingWait& over = *waits.find(id); over.kind == Kind::keys) {
    for (std::size_t& at = over.late_next; at != over.names.end(); at = over.names.next(at)) {
      if (looked++ == most) return most;
      if (exists(over.names[at])) continue;
      if (over.late.missing < TimedOut::named_max) over.late.keys.emplace_back(over.names[at]);
      ++over.late.missing;
    }
  }
  const PendingWait& wait = *waits.find(id);
  const NameList& names = wait.names;
  TimedOut late;
  switch (wait.kind) {
    case Kind::keys:
      late = wait.late;
      // The last key came while the missing ones were counted.
      if (late.missing == 0 && names.count() > 1) {
        answer(out, wait.by, Done{});
        waits.take(id);
        return looked;
      }
      break;
    case Kind::barrier:
    case Kind::gather: {
      const Aggregates& aggregates = wait.kind == Kind::gather ? gathers : barriers;
      auto missing = aggregates.missing(names[0], TimedOut::named_max);
      late = {{}, std::move(missing.first), missing.lacking};
      looked += missing.steps;
      break;
    }
    case Kind::value:
    case Kind::pop:
    case Kind::watch:
      late = {{std::string(names[0])}, {}, 1};
      break;
  }
  answer(out, wait.by, std::move(late));
  waits.take(id);
  return std::max<std::size_t>(looked, 1);
}

void KeyValues::tick(Clock::time_point now, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  std::size_t looked_at = 0;
  while (!s.woken.empty() && looked_at < names_per_tick) {
    const Waits::Id id = s.woken.front();
    const PendingWait* wait = s.waits.find(id);
    if (wait != nullptr && wait->woken) {
      looked_at += s.look_at(id, names_per_tick - looked_at, out);
      wait = s.waits.find(id);
    }
    if (wait == nullptr || !wait->woken) s.woken.pop_front();
  }
  for (auto next = s.waits.earliest(); next && next->first <= now && looked_at < names_per_tick;
       next = s.waits.earliest()) {
    looked_at += s.time_out(next->second, names_per_tick - looked_at, out);
  }
  for (const std::string& key : s.leases.expired(now, leases_at_once)) s.remove(key, out);
}

std::optional<Clock::time_point> KeyValues::next_deadline() const {
  if (!state_->woken.empty()) return Clock::time_point{};
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
