#include "runtime/store/client/client.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/client/link.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

namespace dlaunch::store {
namespace {

/// The server answers by the deadline and names who is missing; only if it is silent do we give up
/// by ourselves, this much later.
constexpr auto answer_grace = std::chrono::seconds(1);
/// A lease is renewed this often within its length.
constexpr int renewals_per_lease = 3;

Clock::time_point after_grace(Clock::time_point deadline) {
  return deadline == Clock::time_point::max() ? deadline : deadline + answer_grace;
}

wire::Timeout timeout_until(Clock::time_point deadline) {
  return wire::Timeout::until(deadline, Clock::now());
}

void check_key(std::string_view key) {
  if (key.size() <= wire::key_bytes_max) return;
  throw Error(Errc::refused, "the key " + name_in_quotes(key) + " has " +
                                 std::to_string(key.size()) + " bytes; the limit is " +
                                 std::to_string(wire::key_bytes_max));
}
void check_value(std::string_view key, BytesView value) {
  check_key(key);
  if (value.size() <= wire::value_bytes_max) return;
  throw Error(Errc::refused, "the value for " + name_in_quotes(key) + " has " +
                                 std::to_string(value.size()) + " bytes; the limit is " +
                                 std::to_string(wire::value_bytes_max));
}
std::vector<std::string_view> views(std::span<const std::string> keys) {
  std::vector<std::string_view> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) {
    check_key(key);
    result.emplace_back(key);
  }
  return result;
}

Bytes copy(BytesView bytes) { return {bytes.begin(), bytes.end()}; }
std::optional<Bytes> copy(std::optional<BytesView> bytes) {
  if (!bytes) return std::nullopt;
  return copy(*bytes);
}

/// An answer of the type that was expected; anything else is a server gone mad.
template <class Message>
Message expect(const Link::Reply& reply, const std::string& what) {
  if (reply.header.type == Message::type) {
    if (auto message = wire::decode<Message>(reply.payload)) return *std::move(message);
  }
  throw Error(Errc::internal, what + ": an answer of type " +
                                  std::to_string(static_cast<unsigned>(reply.header.type)) +
                                  " makes no sense here");
}

}  // namespace

struct Client::State {
  State(unique_fd connected, Options options, OnPush on_push, Clock::time_point deadline)
      : link(std::move(connected), std::move(options), std::move(on_push), deadline) {}

  Clock::time_point soon() const { return deadline_after(link.options().timeout); }

  template <class Answer, class Message>
  Answer ask(const Message& message, const std::string& what) {
    return expect<Answer>(link.call(message, soon(), what), what);
  }
  std::int64_t number(const auto& message, const std::string& what) {
    return ask<wire::Number>(message, what).value;
  }

  std::unique_lock<std::mutex> lock() {
    link.require_ours();
    return std::unique_lock(mutex);
  }

  /// Rounds are counted per name and contributor, since threads of one process may share a client.
  using Rounds = std::map<std::pair<std::string, int>, std::uint64_t>;
  std::uint64_t round(Rounds& rounds, std::string_view name, int contributor) {
    const auto held = lock();
    return rounds[{std::string(name), contributor}];
  }
  void advance(Rounds& rounds, std::string_view name, int contributor) {
    const std::lock_guard lock(mutex);
    ++rounds[{std::string(name), contributor}];
  }

  void keep_renewing(Clock::duration lease);

  Link link;
  std::mutex mutex;
  Rounds barriers, gathers;
  std::map<std::string, std::uint64_t, std::less<>> watches;

  Clock::duration renew_every = Clock::duration::max();
  std::condition_variable_any renew_changed;
  std::jthread renewer;  // Last, so that it ends first.
};

/// Renews all leases of the session, from a thread that begins with the first of them.
void Client::State::keep_renewing(Clock::duration lease) {
  const std::lock_guard begin(mutex);
  renew_every = std::min(renew_every, lease / renewals_per_lease);
  renew_changed.notify_one();
  if (renewer.joinable()) return;
  renewer = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      const auto every = renew_every;
      // True when a shorter lease came.
      if (renew_changed.wait_for(lock, stop, every, [&] { return renew_every < every; })) continue;
      if (stop.stop_requested()) return;
      lock.unlock();
      try {
        link.call(wire::Renew{}, Clock::now() + every, "renewing leases");
      } catch (const std::exception&) {
        // The next user of the store learns of it; here the next round is the only remedy.
      }
      lock.lock();
    }
  });
}

Client::Client(unique_fd connected, Options options, OnPush on_push, Clock::time_point deadline)
    : state_(std::make_unique<State>(std::move(connected), std::move(options), std::move(on_push),
                                     deadline)) {}
Client::~Client() = default;

const wire::Welcome& Client::welcome() const { return state_->link.welcome(); }
int Client::fd() const { return state_->link.fd(); }
void Client::dispatch() { state_->link.dispatch(); }
void Client::tell(wire::Type type, BytesView payload) noexcept {
  try {
    state_->link.tell(type, payload);
  } catch (const std::exception&) {
    // The connection is gone, which the next call reports; a message without answer has no other.
  }
}

void Client::set(std::string_view key, BytesView value) {
  check_value(key, value);
  state_->ask<wire::Done>(wire::Set{key, value}, "set " + name_in_quotes(key));
}

void Client::set_leased(std::string_view key, BytesView value, Clock::duration lease) {
  check_value(key, value);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(lease).count();
  const wire::SetLeased message{key, value, ms > 0 ? static_cast<std::uint64_t>(ms) : 0};
  state_->ask<wire::Done>(message, "set_leased " + name_in_quotes(key));
  state_->keep_renewing(lease);
}

std::optional<Bytes> Client::get(std::string_view key) {
  check_key(key);
  const std::string what = "get " + name_in_quotes(key);
  const auto reply = state_->link.call(wire::Get{key}, state_->soon(), what);
  if (reply.header.type == wire::Type::absent) return std::nullopt;
  return copy(expect<wire::Found>(reply, what).value);
}

Bytes Client::wait(std::string_view key, Clock::time_point deadline) {
  check_key(key);
  const std::string what = "wait " + name_in_quotes(key);
  const auto reply =
      state_->link.call(wire::WaitGet{timeout_until(deadline), key}, after_grace(deadline), what);
  return copy(expect<wire::Found>(reply, what).value);
}

void Client::wait_all(std::span<const std::string> keys, Clock::time_point deadline) {
  const std::string what = "wait_all of " + std::to_string(keys.size()) + " keys";
  const wire::Wait message{timeout_until(deadline), views(keys)};
  expect<wire::Done>(state_->link.call(message, after_grace(deadline), what), what);
}

std::int64_t Client::add(std::string_view key, std::int64_t delta) {
  check_key(key);
  return state_->number(wire::Add{key, delta}, "add " + name_in_quotes(key));
}

bool Client::compare_set(std::string_view key, std::optional<BytesView> expected,
                         BytesView desired) {
  check_value(key, desired);
  if (expected) check_value(key, *expected);
  const std::string what = "compare_set " + name_in_quotes(key);
  const auto reply =
      state_->link.call(wire::CompareSet{key, expected, desired}, state_->soon(), what);
  return expect<wire::Compared>(reply, what).stored;
}

std::size_t Client::append(std::string_view key, BytesView tail) {
  check_value(key, tail);
  return static_cast<std::size_t>(
      state_->number(wire::Append{key, tail}, "append " + name_in_quotes(key)));
}

bool Client::erase(std::string_view key) {
  check_key(key);
  return state_->number(wire::Erase{key}, "erase " + name_in_quotes(key)) != 0;
}

std::vector<std::string> Client::list(std::string_view prefix) {
  check_key(prefix);
  const std::string what = "list " + name_in_quotes(prefix);
  const auto reply = state_->link.call(wire::List{prefix}, state_->soon(), what);
  const auto keys = expect<wire::Keys>(reply, what).keys;
  return {keys.begin(), keys.end()};
}

std::vector<std::optional<Bytes>> Client::multi_get(std::span<const std::string> keys) {
  const std::string what = "multi_get of " + std::to_string(keys.size()) + " keys";
  const auto reply = state_->link.call(wire::MultiGet{views(keys)}, state_->soon(), what);
  std::vector<std::optional<Bytes>> values;
  for (const auto& value : expect<wire::Values>(reply, what).values) values.push_back(copy(value));
  return values;
}

void Client::multi_set(std::span<const std::string> keys, std::span<const Bytes> values) {
  if (keys.size() != values.size()) {
    throw Error(Errc::misuse, "multi_set: " + std::to_string(keys.size()) + " keys, but " +
                                  std::to_string(values.size()) + " values");
  }
  wire::MultiSet message{views(keys), {}};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    check_value(keys[i], values[i]);
    message.values.emplace_back(values[i]);
  }
  state_->ask<wire::Done>(message, "multi_set of " + std::to_string(keys.size()) + " keys");
}

void Client::push(std::string_view queue, BytesView value) {
  check_value(queue, value);
  state_->ask<wire::Done>(wire::Push{queue, value}, "push to " + name_in_quotes(queue));
}

Bytes Client::pop(std::string_view queue, Clock::time_point deadline) {
  check_key(queue);
  const std::string what = "pop from " + name_in_quotes(queue);
  const auto reply =
      state_->link.call(wire::Pop{timeout_until(deadline), queue}, after_grace(deadline), what);
  return copy(expect<wire::Popped>(reply, what).value.value_or(BytesView{}));
}

std::optional<Bytes> Client::try_pop(std::string_view queue) {
  check_key(queue);
  const std::string what = "try_pop from " + name_in_quotes(queue);
  const auto reply = state_->link.call(wire::TryPop{queue}, state_->soon(), what);
  return copy(expect<wire::Popped>(reply, what).value);
}

std::size_t Client::queue_size(std::string_view queue) {
  check_key(queue);
  return static_cast<std::size_t>(
      state_->number(wire::QueueSize{queue}, "queue_size of " + name_in_quotes(queue)));
}

KeyChange Client::watch(std::string_view key, Clock::time_point deadline) {
  check_key(key);
  std::uint64_t subscription = 0;
  {
    const auto held = state_->lock();
    auto found = state_->watches.find(key);
    if (found == state_->watches.end()) {
      found = state_->watches.emplace(std::string(key), state_->link.subscribe(key)).first;
    }
    subscription = found->second;
  }
  return state_->link.next_change(subscription, deadline, "watch " + name_in_quotes(key));
}

void Client::barrier(std::string_view name, int contributor, int count,
                     Clock::time_point deadline) {
  check_key(name);
  const std::string what = "barrier " + name_in_quotes(name) + " (" + std::to_string(contributor) +
                           " of " + std::to_string(count) + ")";
  const wire::Barrier message{name,
                              state_->round(state_->barriers, name, contributor),
                              count,
                              timeout_until(deadline),
                              {contributor}};
  expect<wire::Done>(state_->link.call(message, after_grace(deadline), what), what);
  state_->advance(state_->barriers, name, contributor);
}

std::vector<Bytes> Client::all_gather(std::string_view name, int contributor, int count,
                                      BytesView blob, Clock::time_point deadline) {
  check_value(name, blob);
  const std::string what = "all_gather " + name_in_quotes(name) + " (" +
                           std::to_string(contributor) + " of " + std::to_string(count) + ")";
  const wire::AllGather message{name,          state_->round(state_->gathers, name, contributor),
                                count,         timeout_until(deadline),
                                {contributor}, {blob}};
  const auto reply = state_->link.call(message, after_grace(deadline), what);
  std::vector<Bytes> blobs;
  for (const BytesView each : expect<wire::Gathered>(reply, what).blobs) {
    blobs.push_back(copy(each));
  }
  state_->advance(state_->gathers, name, contributor);
  return blobs;
}

}  // namespace dlaunch::store
