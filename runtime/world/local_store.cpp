#include "runtime/world/local_store.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

using store::Answer;
using store::Caller;
using store::Effects;

constexpr std::uint64_t own_client = 1;
/// The limit for one watched key; a watcher that falls further behind misses the oldest.
constexpr std::size_t changes_max = 1024;

std::optional<Bytes> copied(const std::optional<BytesView>& view) {
  if (!view) return std::nullopt;
  return Bytes(view->begin(), view->end());
}

std::vector<std::string_view> views_of(std::span<const std::string> texts) {
  return {texts.begin(), texts.end()};
}

/// Throws if the answer is no answer.
void check(const std::string& what, const Answer& answer) {
  if (const auto* refused = std::get_if<store::Refused>(&answer)) {
    throw Error(Errc::refused, what + ": " + refused->reason);
  }
  if (const auto* late = std::get_if<store::TimedOut>(&answer)) {
    std::string missing;
    if (!late->keys.empty()) missing = ": missing " + joined(late->keys, in_quotes);
    if (!late->contributors.empty()) {
      missing = ": missing rank " +
                joined(late->contributors, [](int rank) { return std::to_string(rank); });
    }
    throw Error(Errc::timeout, what + " timed out" + missing);
  }
}

std::int64_t number_in(const Answer& answer) { return std::get<store::Number>(answer).value; }

void nothing(const Answer&) {}

}  // namespace

void LocalStore::ask(const std::string& what, const Ask& question, const Take& take,
                     Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  std::exception_ptr failure;
  bool done = false;
  const Take taking = [&](const Answer& answer) {
    done = true;
    try {
      check(what, answer);
      take(answer);
    } catch (const Error&) {
      failure = std::current_exception();
    }
  };
  const std::uint64_t request = ++last_request_;
  pending_.emplace(request, &taking);
  Effects effects;
  question({own_client, request}, effects);
  deliver(effects);
  while (!done) {
    // A caller that waits for its own deadline lets the core expire whatever is due.
    if (answered_.wait_until(lock, deadline) == std::cv_status::timeout && !done) {
      Effects expired;
      values_.tick(std::max(Clock::now(), deadline), expired);
      deliver(expired);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void LocalStore::deliver(const Effects& effects) {
  for (const store::Effect& effect : effects) {
    if (const auto* changed = std::get_if<store::Changed>(&effect.answer)) {
      auto& queue = changes_[effect.to.request];
      queue.push_back({changed->kind, std::string(changed->key), copied(changed->after)});
      if (queue.size() > changes_max) queue.pop_front();
    } else if (const auto found = pending_.find(effect.to.request); found != pending_.end()) {
      (*found->second)(effect.answer);
      pending_.erase(found);
    }
  }
  if (!effects.empty()) answered_.notify_all();
}

void LocalStore::set(std::string_view key, BytesView value) {
  ask(
      "set", [&](Caller by, Effects& out) { values_.set(by, key, value, out); }, nothing);
}

void LocalStore::set_leased(std::string_view key, BytesView value, Clock::duration) {
  set(key, value);
}

std::optional<Bytes> LocalStore::get(std::string_view key) {
  std::optional<Bytes> result;
  ask(
      "get", [&](Caller by, Effects& out) { values_.get(by, key, out); },
      [&](const Answer& answer) {
        if (const auto* found = std::get_if<store::Found>(&answer)) result = copied(found->value);
      });
  return result;
}

Bytes LocalStore::wait(std::string_view key, Clock::time_point deadline) {
  Bytes result;
  ask(
      "wait for '" + std::string(key) + "'",
      [&](Caller by, Effects& out) { values_.wait_get(by, key, deadline, out); },
      [&](const Answer& answer) {
        const BytesView value = std::get<store::Found>(answer).value;
        result.assign(value.begin(), value.end());
      },
      deadline);
  return result;
}

void LocalStore::wait_all(std::span<const std::string> keys, Clock::time_point deadline) {
  const auto views = views_of(keys);
  ask(
      "wait", [&](Caller by, Effects& out) { values_.wait(by, views, deadline, out); }, nothing,
      deadline);
}

std::int64_t LocalStore::add(std::string_view key, std::int64_t delta) {
  std::int64_t sum = 0;
  ask(
      "add", [&](Caller by, Effects& out) { values_.add(by, key, delta, out); },
      [&](const Answer& answer) { sum = number_in(answer); });
  return sum;
}

bool LocalStore::compare_set(std::string_view key, std::optional<BytesView> expected,
                             BytesView desired) {
  bool stored = false;
  ask(
      "compare_set",
      [&](Caller by, Effects& out) { values_.compare_set(by, key, expected, desired, out); },
      [&](const Answer& answer) { stored = std::get<store::Compared>(answer).stored; });
  return stored;
}

std::size_t LocalStore::append(std::string_view key, BytesView tail) {
  std::size_t size = 0;
  ask(
      "append", [&](Caller by, Effects& out) { values_.append(by, key, tail, out); },
      [&](const Answer& answer) { size = static_cast<std::size_t>(number_in(answer)); });
  return size;
}

bool LocalStore::erase(std::string_view key) {
  bool existed = false;
  ask(
      "erase", [&](Caller by, Effects& out) { values_.erase(by, key, out); },
      [&](const Answer& answer) { existed = number_in(answer) != 0; });
  return existed;
}

std::vector<std::string> LocalStore::list(std::string_view prefix) {
  std::vector<std::string> keys;
  ask(
      "list", [&](Caller by, Effects& out) { values_.list(by, prefix, out); },
      [&](const Answer& answer) { keys = std::get<store::KeyList>(answer).keys; });
  return keys;
}

std::vector<std::optional<Bytes>> LocalStore::multi_get(std::span<const std::string> keys) {
  std::vector<std::optional<Bytes>> values;
  const auto views = views_of(keys);
  ask(
      "multi_get", [&](Caller by, Effects& out) { values_.multi_get(by, views, out); },
      [&](const Answer& answer) {
        for (const auto& value : std::get<store::FoundMany>(answer).values) {
          values.push_back(copied(value));
        }
      });
  return values;
}

void LocalStore::multi_set(std::span<const std::string> keys, std::span<const Bytes> values) {
  const auto names = views_of(keys);
  const std::vector<BytesView> views(values.begin(), values.end());
  ask(
      "multi_set", [&](Caller by, Effects& out) { values_.multi_set(by, names, views, out); },
      nothing);
}

void LocalStore::push(std::string_view queue, BytesView value) {
  ask(
      "push", [&](Caller by, Effects& out) { values_.push(by, queue, value, out); }, nothing);
}

Bytes LocalStore::pop(std::string_view queue, Clock::time_point deadline) {
  Bytes result;
  ask(
      "pop from '" + std::string(queue) + "'",
      [&](Caller by, Effects& out) { values_.pop(by, queue, deadline, out); },
      [&](const Answer& answer) {
        result = std::get<store::Popped>(answer).value.value_or(Bytes{});
      },
      deadline);
  return result;
}

std::optional<Bytes> LocalStore::try_pop(std::string_view queue) {
  std::optional<Bytes> result;
  ask(
      "try_pop", [&](Caller by, Effects& out) { values_.try_pop(by, queue, out); },
      [&](const Answer& answer) { result = std::get<store::Popped>(answer).value; });
  return result;
}

std::size_t LocalStore::queue_size(std::string_view queue) {
  std::size_t size = 0;
  ask(
      "queue_size", [&](Caller by, Effects& out) { values_.queue_size(by, queue, out); },
      [&](const Answer& answer) { size = static_cast<std::size_t>(number_in(answer)); });
  return size;
}

KeyChange LocalStore::watch(std::string_view key, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  auto watching = watches_.find(key);
  if (watching == watches_.end()) {
    watching = watches_.emplace(std::string(key), ++last_request_).first;
    Effects effects;
    values_.watch({own_client, watching->second}, key, effects);
    deliver(effects);
  }
  auto& queue = changes_[watching->second];
  if (!answered_.wait_until(lock, deadline, [&] { return !queue.empty(); })) {
    throw Error(Errc::timeout, in_quotes(key) + " did not change before the deadline");
  }
  KeyChange change = std::move(queue.front());
  queue.pop_front();
  return change;
}

void LocalStore::barrier(std::string_view name, int contributor, int count,
                         Clock::time_point deadline) {
  ask(
      "barrier '" + std::string(name) + "'",
      [&](Caller by, Effects& out) {
        const auto round = rounds_[{std::string(name), contributor}]++;
        values_.barrier(by, name, round, count, std::span(&contributor, 1), deadline, out);
      },
      nothing, deadline);
}

std::vector<Bytes> LocalStore::all_gather(std::string_view name, int contributor, int count,
                                          BytesView blob, Clock::time_point deadline) {
  std::vector<Bytes> blobs;
  ask(
      "all_gather '" + std::string(name) + "'",
      [&](Caller by, Effects& out) {
        const auto round = rounds_[{std::string(name), contributor}]++;
        values_.all_gather(by, name, round, count, std::span(&contributor, 1), std::span(&blob, 1),
                           deadline, out);
      },
      [&](const Answer& answer) {
        const auto& gathered = std::get<store::Gathered>(answer);
        ByteReader reader(*gathered.block);
        for (int i = 0; i < gathered.count; ++i) {
          const BytesView bytes = reader.bytes(reader.left());
          blobs.emplace_back(bytes.begin(), bytes.end());
        }
      },
      deadline);
  return blobs;
}

}  // namespace dlaunch
