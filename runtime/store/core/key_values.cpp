#include "runtime/store/core/key_values.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/store/core/key_values_state.hpp"
#include "runtime/store/core/session.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

/// The map: everything that is answered at once. key_values_waits.cpp has the rest.
namespace dlaunch::store {
namespace {

using Channel = Waits::Channel;

/// The bytes that a key, and an entry of a queue, take besides their contents.
constexpr std::size_t key_overhead = 192;
constexpr std::size_t queued_overhead = 48;
/// A part of the common memory: a namespace that holds more than one such part leaves the last one
/// to the others, so that it cannot fill the memory alone.
constexpr std::size_t reserved_part = 8;

/// Overwrites in place; gives memory back when the value has shrunk a lot.
void assign(Bytes& to, BytesView value) {
  constexpr std::size_t slack = 4096;
  if (to.capacity() > slack && to.capacity() / 4 > value.size()) {
    Bytes(value.begin(), value.end()).swap(to);
  } else {
    to.assign(value.begin(), value.end());
  }
}

std::optional<std::int64_t> parse_number(BytesView value) {
  const std::string_view text = as_text(value);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string too_many_keys(std::size_t keys, std::size_t limit) {
  return std::to_string(keys) + " keys in one request are too many; the limit is " +
         std::to_string(limit);
}

std::string KeyValues::State::objection(std::string_view key, std::size_t value_bytes,
                                        std::size_t replaced) const {
  if (key.size() > limits.key_bytes) {
    return "a key of " + std::to_string(key.size()) + " bytes is too long; the limit is " +
           std::to_string(limits.key_bytes);
  }
  if (value_bytes > limits.value_bytes) {
    return "a value of " + std::to_string(value_bytes) + " bytes is too big for " +
           name_in_quotes(key) + "; the limit is " + std::to_string(limits.value_bytes);
  }
  if (total_bytes() + key.size() + value_bytes - replaced > limits.total_bytes) {
    return "the store is full: it holds " + std::to_string(total_bytes()) + " of " +
           std::to_string(limits.total_bytes) + " bytes";
  }
  if (const std::size_t size = key.size() + value_bytes; size > replaced) {
    return memory_objection(size - replaced);
  }
  return {};
}

std::string KeyValues::State::memory_objection(std::size_t more) const {
  if (limits.memory == nullptr) return {};
  const std::size_t part = limits.memory->max / reserved_part;
  const bool leaves_some = charge.bytes() + gathers.block_bytes() > part;
  if (limits.memory->has_room(more + (leaves_some ? part : 0))) return {};
  ++limits.memory->refused;
  return "the server's memory is full: it holds " + std::to_string(limits.memory->used()) + " of " +
         std::to_string(limits.memory->max) + " bytes, those of other jobs included" +
         (leaves_some ? ", and the rest is not for this job, which holds much" : "");
}

std::size_t KeyValues::State::held_bytes() const {
  return total_bytes() - barriers.block_bytes() - gathers.block_bytes() +
         map.size() * key_overhead + queued * queued_overhead + leases.bytes();
}

std::string KeyValues::State::objection(Map::iterator at, std::string_view key,
                                        std::size_t value_bytes) const {
  const bool absent = at == map.end();
  if (absent && map.size() >= limits.keys) {
    return "the store holds " + std::to_string(map.size()) + " keys, which is the limit";
  }
  return objection(key, value_bytes, absent ? 0 : at->second.value.size());
}

std::string KeyValues::State::objection_to_keys(std::span<const std::string_view> keys) const {
  if (keys.size() > limits.keys_per_request) {
    return too_many_keys(keys.size(), limits.keys_per_request);
  }
  for (const std::string_view key : keys) {
    if (std::string reason = objection(key, 0, key.size()); !reason.empty()) return reason;
  }
  return {};
}

std::shared_ptr<const Bytes> KeyValues::State::block_for(std::size_t readers,
                                                         const Bytes& value) const {
  if (readers < 2 || value.size() <= copied_value_max) return nullptr;
  return counted(std::make_shared<const Bytes>(value), limits.memory);
}

void KeyValues::State::unlease(std::string_view key, Entry& entry) {
  if (entry.owner == 0) return;
  leases.release(entry.owner, key);
  entry.owner = 0;
}

KeyValues::State::Entry& KeyValues::State::put(Map::iterator at, std::string_view key,
                                               BytesView value, Effects& out) {
  changes = true;
  if (at == map.end()) {
    at = map.add(key, Entry{Bytes(value.begin(), value.end()), 0});
    bytes += key.size() + value.size();
    changed(at, true, std::nullopt, out);
    return at->second;
  }
  Entry& entry = at->second;
  unlease(key, entry);
  const std::size_t held = entry.value.size();
  std::optional<BytesView> before;
  if (waits.any(Channel::watch)) {
    Bytes next(value.begin(), value.end());
    before = kept.emplace_back(std::move(entry.value));
    entry.value = std::move(next);
  } else {
    assign(entry.value, value);
  }
  bytes += value.size() - held;
  changed(at, false, before, out);
  return entry;
}

void KeyValues::State::changed(Map::iterator entry, bool created, std::optional<BytesView> before,
                               Effects& out) {
  if (log != nullptr) log->stored(entry->first, entry->second.value, 0, {});
  if (waits.any(Channel::watch)) {
    if (const auto* watchers = waits.listeners(Channel::watch, entry->first)) {
      const auto kind = created ? KeyChange::Kind::created : KeyChange::Kind::updated;
      const Bytes& after = entry->second.value;
      const Changed change{kind, keep(entry->first), before, after,
                           block_for(watchers->size(), after)};
      for (const Waits::Id id : *watchers) out.push_back({waits.find(id)->by, change, false});
    }
  }
  changes = false;
  if (created && waits.any(Channel::exists)) wake(entry->first, entry->second, out);
}

bool KeyValues::State::remove(std::string_view key, Effects& out) {
  const auto found = map.find(key);
  if (found == map.end()) return false;
  changes = true;
  if (log != nullptr) log->erased(key);
  const std::size_t held = key.size() + found->second.value.size();
  if (waits.any(Channel::watch)) {
    if (const auto* watchers = waits.listeners(Channel::watch, key)) {
      const std::string_view name = keep(key);
      out.reserve(out.size() + watchers->size());
      const BytesView before = kept.emplace_back(std::move(found->second.value));
      const Changed change{KeyChange::Kind::deleted, name, before, std::nullopt};
      for (const Waits::Id id : *watchers) out.push_back({waits.find(id)->by, change, false});
    }
  }
  unlease(key, found->second);
  bytes -= held;
  map.erase(found);
  changes = false;
  return true;
}

KeyValues::KeyValues(Limits limits) : state_(std::make_unique<State>(limits)) {}
KeyValues::~KeyValues() = default;
KeyValues::KeyValues(KeyValues&&) noexcept = default;
KeyValues& KeyValues::operator=(KeyValues&&) noexcept = default;

void KeyValues::set(Caller by, std::string_view key, BytesView value, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  const auto at = s.map.find(key);
  if (std::string why = s.objection(at, key, value.size()); !why.empty()) {
    return refuse(out, by, why);
  }
  answer(out, by, Done{});
  s.put(at, key, value, out);
}

void KeyValues::set_leased(Caller by, std::string_view key, BytesView value, std::uint64_t owner,
                           Clock::duration lease, Clock::time_point now, Effects& out) {
  State& s = *state_;
  if (lease < s.limits.lease_min || lease > s.limits.lease_max || owner == 0) {
    return refuse(out, by,
                  owner == 0 ? "a lease needs a session, and this client has none"
                             : "a lease lasts from 100 ms to 1 h");
  }
  if (s.leases.count_of(owner) >= s.limits.leases_per_owner) {
    return refuse(out, by,
                  "this client leases " + std::to_string(s.limits.leases_per_owner) +
                      " keys already, which is the limit");
  }
  const std::size_t before = out.size();
  set(by, key, value, out);
  if (std::holds_alternative<Refused>(out[before].answer)) return;
  s.leases.hold(owner, key, lease, now);
  s.map.find(key)->second.owner = owner;
  if (s.log != nullptr) {
    s.log->stored(key, value, owner, std::chrono::ceil<std::chrono::milliseconds>(lease));
  }
}

void KeyValues::renew(std::uint64_t owner, Clock::time_point now) {
  state_->leases.renew(owner, now);
}

void KeyValues::end_leases(std::uint64_t owner, Effects& out) {
  state_->kept.clear();
  for (const std::string& key : state_->leases.end(owner, leases_at_once)) {
    state_->remove(key, out);
  }
}

void KeyValues::end_leases(Caller by, std::span<const std::string_view> keys, std::uint64_t owner,
                           Effects& out) {
  State& s = *state_;
  s.kept.clear();
  const std::size_t at = out.size();
  answer(out, by, Number{0});
  std::int64_t ended = 0;
  for (const std::string_view key : keys) {
    const auto found = s.map.find(key);
    if (owner == 0 || found == s.map.end() || found->second.owner != owner) continue;
    s.remove(key, out);
    ++ended;
  }
  out[at].answer = Number{ended};
}

void KeyValues::get(Caller by, std::string_view key, Effects& out) {
  const auto found = state_->map.find(key);
  if (found == state_->map.end()) return answer(out, by, Absent{});
  answer(out, by, Found{found->second.value});
}

void KeyValues::multi_get(Caller by, std::span<const std::string_view> keys, Effects& out) {
  if (std::string why = state_->objection_to_keys(keys); !why.empty()) return refuse(out, by, why);
  FoundMany many;
  many.values.reserve(keys.size());
  for (const std::string_view key : keys) {
    const auto found = state_->map.find(key);
    many.values.push_back(
        found == state_->map.end() ? std::nullopt : std::optional<BytesView>(found->second.value));
  }
  answer(out, by, std::move(many));
}

void KeyValues::multi_set(Caller by, std::span<const std::string_view> keys,
                          std::span<const BytesView> values, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  if (keys.size() != values.size())
    return refuse(out, by, "multi_set needs one value for each key");
  if (std::string why = s.objection_to_keys(keys); !why.empty()) return refuse(out, by, why);
  if (s.map.size() + keys.size() > s.limits.keys) {
    return refuse(out, by, "the store holds " + std::to_string(s.map.size()) + " keys already");
  }
  std::size_t sum = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::string why = s.objection(keys[i], values[i].size(), 0); !why.empty()) {
      return refuse(out, by, why);
    }
    sum += keys[i].size() + values[i].size();
  }
  if (s.total_bytes() + sum > s.limits.total_bytes) {
    return refuse(out, by, "the store has no room for " + std::to_string(sum) + " bytes more");
  }
  if (std::string why = s.memory_objection(sum + keys.size() * key_overhead); !why.empty()) {
    return refuse(out, by, why);
  }
  answer(out, by, Done{});
  // If a key is named twice, only the last value counts: an effect of the first would point to
  // memory that the second overwrites.
  std::unordered_set<std::string_view> later;
  std::vector<std::size_t> order;
  order.reserve(keys.size());
  for (std::size_t i = keys.size(); i-- > 0;) {
    if (later.insert(keys[i]).second) order.push_back(i);
  }
  for (auto i = order.rbegin(); i != order.rend(); ++i)
    s.put(s.map.find(keys[*i]), keys[*i], values[*i], out);
}

void KeyValues::add(Caller by, std::string_view key, std::int64_t delta, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  const auto found = s.map.find(key);
  std::int64_t sum = delta;
  if (found != s.map.end()) {
    const auto current = parse_number(found->second.value);
    if (!current)
      return refuse(out, by, "the value of " + name_in_quotes(key) + " is not a whole number");
    if (__builtin_add_overflow(*current, delta, &sum)) {
      return refuse(out, by, "the counter " + name_in_quotes(key) + " would overflow");
    }
  }
  std::array<char, 24> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), sum);
  const BytesView value = as_bytes({digits.data(), written.ptr});
  if (std::string why = s.objection(found, key, value.size()); !why.empty()) {
    return refuse(out, by, why);
  }
  answer(out, by, Number{sum});
  s.put(found, key, value, out);
}

void KeyValues::compare_set(Caller by, std::string_view key, std::optional<BytesView> expected,
                            BytesView desired, Effects& out, bool empty_is_absent) {
  State& s = *state_;
  s.kept.clear();
  const auto found = s.map.find(key);
  if (std::string why = s.objection(found, key, desired.size()); !why.empty()) {
    return refuse(out, by, why);
  }
  const bool absent = found == s.map.end();
  const bool equal = absent ? !expected || (empty_is_absent && expected->empty())
                            : expected && std::ranges::equal(*expected, found->second.value);
  if (!equal) {
    return answer(
        out, by,
        Compared{false, absent ? std::nullopt : std::optional<BytesView>(found->second.value)});
  }
  const std::size_t at = out.size();
  answer(out, by, Compared{true, std::nullopt});
  const State::Entry& entry = s.put(found, key, desired, out);
  std::get<Compared>(out[at].answer).current = entry.value;
}

void KeyValues::append(Caller by, std::string_view key, BytesView tail, Effects& out) {
  State& s = *state_;
  s.kept.clear();
  const auto found = s.map.find(key);
  const std::size_t old_size = found == s.map.end() ? 0 : found->second.value.size();
  if (std::string why = s.objection(found, key, old_size + tail.size()); !why.empty()) {
    return refuse(out, by, why);
  }
  answer(out, by, Number{static_cast<std::int64_t>(old_size + tail.size())});
  if (found == s.map.end()) {
    s.put(found, key, tail, out);
    return;
  }
  State::Entry& entry = found->second;
  s.changes = true;
  s.unlease(key, entry);
  std::optional<BytesView> before;
  if (s.waits.any(Channel::watch)) before = s.kept.emplace_back(entry.value);
  entry.value.insert(entry.value.end(), tail.begin(), tail.end());
  s.bytes += tail.size();
  s.changed(found, false, before, out);
}

void KeyValues::erase(Caller by, std::string_view key, Effects& out) {
  state_->kept.clear();
  const std::size_t at = out.size();
  answer(out, by, Number{0});
  if (state_->remove(key, out)) out[at].answer = Number{1};
}

void KeyValues::list(Caller by, std::string_view prefix, Effects& out) {
  const State& s = *state_;
  KeyList found;
  std::size_t bytes = 0;
  for (auto at = s.map.not_before(prefix); at != s.map.end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    bytes += at->first.size();
    if (found.keys.size() == s.limits.listed_keys || bytes > s.limits.listed_bytes) {
      return refuse(out, by,
                    "the list is too long: one answer names at most " +
                        std::to_string(s.limits.listed_keys) + " keys with " +
                        std::to_string(s.limits.listed_bytes) +
                        " bytes; ask for a longer prefix, or page by page");
    }
    found.keys.push_back(at->first);
  }
  answer(out, by, std::move(found));
}

void KeyValues::list_page(Caller by, std::string_view prefix, std::optional<std::string_view> after,
                          Effects& out) {
  const State& s = *state_;
  KeyPage page;
  std::size_t bytes = 0;
  auto at = after && *after >= prefix ? s.map.behind(*after) : s.map.not_before(prefix);
  for (; at != s.map.end() && at->first.starts_with(prefix); ++at) {
    bytes += at->first.size();
    page.more = page.keys.size() == s.limits.listed_keys ||
                (bytes > s.limits.listed_bytes && !page.keys.empty());
    if (page.more) break;
    page.keys.push_back(at->first);
  }
  answer(out, by, std::move(page));
}

void KeyValues::count(Caller by, Effects& out) {
  answer(out, by, Number{static_cast<std::int64_t>(size())});
}

void KeyValues::log_to(ChangeLog& log) { state_->log = &log; }

void KeyValues::restore_key(std::string_view key, BytesView value, std::uint64_t owner,
                            Clock::duration lease, Clock::time_point now) {
  State& s = *state_;
  if (s.map.contains(key)) return;
  s.map.add(key, State::Entry{Bytes(value.begin(), value.end()), owner});
  s.bytes += key.size() + value.size();
  if (owner != 0) s.leases.hold(owner, key, lease, now);
}

bool KeyValues::dissolve(std::size_t keys) {
  State& s = *state_;
  for (; keys > 0 && s.map.size() > 0; --keys) {
    const auto first = s.map.begin();
    s.bytes -= first->first.size() + first->second.value.size();
    s.map.erase(first);
  }
  settle();
  return s.map.size() > 0;
}

void KeyValues::settle() { state_->charge.set(state_->held_bytes()); }

std::size_t KeyValues::size() const { return state_->map.size(); }
std::size_t KeyValues::bytes() const { return state_->total_bytes(); }

}  // namespace dlaunch::store
