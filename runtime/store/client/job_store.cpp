#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/client/carrier.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace dlaunch {
namespace {

using store::Carrier;

/// The server answers by the deadline and names who is missing. If it is silent, we give up by
/// ourselves, this much later.
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
Message expect(const Carrier::Reply& reply, const std::string& what) {
  if (reply.header.type == Message::type) {
    if (auto message = wire::decode<Message>(reply.payload)) return *std::move(message);
  }
  throw Error(Errc::internal, what + ": an answer of type " +
                                  std::to_string(static_cast<unsigned>(reply.header.type)) +
                                  " makes no sense here");
}

Error failed(const wire::Failed& failure, const std::string& what, const std::string& peer,
             Clock::duration waited) {
  if (failure.code == Errc::timeout) {
    return Error(Errc::timeout,
                 what + ": timed out after " + seconds_text(waited) + ", " + failure.sentence);
  }
  // The loss of a rank or of the store is not a refusal.
  const std::string who = failure.code == Errc::peer_lost ? "" : "refused by " + peer + ": ";
  return Error(failure.code, what + ": " + who + failure.sentence);
}

}  // namespace

struct JobStore::State {
  explicit State(std::unique_ptr<Carrier> way) : carrier(std::move(way)) {}

  /// Waits for the answer; throws the error with which the request was refused. `late` stands for
  /// `what` where the other end lets the time pass, since that end names the keys it waited for.
  template <class Message>
  Carrier::Reply call(const Message& message, Clock::time_point deadline, const std::string& what,
                      std::string_view late = {}) {
    const Bytes payload = wire::payload_of(message);
    if (payload.size() > wire::frame_bytes_max) {
      throw Error(Errc::refused, "a request of " + std::to_string(payload.size()) +
                                     " bytes is too big; the limit is " +
                                     std::to_string(wire::frame_bytes_max));
    }
    const auto start = Clock::now();
    Carrier::Reply reply = carrier->call(Message::type, payload, deadline, what);
    if (reply.header.type != wire::Type::failed) return reply;
    const auto failure =
        wire::decode<wire::Failed>(reply.payload)
            .value_or(wire::Failed{Errc::internal, "an answer that cannot be read"});
    const bool is_late = failure.code == Errc::timeout && !late.empty();
    throw failed(failure, is_late ? std::string(late) : what, carrier->peer(),
                 Clock::now() - start);
  }
  Carrier::Reply call(const auto& message, const std::string& what) {
    return call(message, deadline_after(carrier->patience()), what);
  }
  template <class Answer>
  Answer ask(const auto& message, const std::string& what) {
    return expect<Answer>(call(message, what), what);
  }
  std::int64_t number(const auto& message, const std::string& what) {
    return ask<wire::Number>(message, what).value;
  }

  std::unique_lock<std::mutex> lock() {
    carrier->require_ours();
    return std::unique_lock(mutex);
  }

  /// Rounds are counted per name and contributor, since threads of one process may share a store.
  using Rounds = std::map<std::pair<std::string, int>, std::uint64_t>;
  std::uint64_t round(Rounds& rounds, std::string_view name, int contributor) {
    const auto held = lock();
    return rounds[{std::string(name), contributor}];
  }
  void advance(Rounds& rounds, std::string_view name, int contributor) {
    const std::lock_guard held(mutex);
    ++rounds[{std::string(name), contributor}];
  }

  /// Renews all leases of the session, on a thread that is started with the first lease.
  void keep_renewing(Clock::duration lease) {
    const std::lock_guard begin(mutex);
    renew_every = std::min(renew_every, lease / renewals_per_lease);
    renew_changed.notify_one();
    if (renewer.joinable()) return;
    renewer = std::jthread([this](const std::stop_token& stop) {
      std::unique_lock held(mutex);
      while (!stop.stop_requested()) {
        const auto every = renew_every;
        // True when a shorter lease came.
        if (renew_changed.wait_for(held, stop, every, [&] { return renew_every < every; }))
          continue;
        if (stop.stop_requested()) return;
        held.unlock();
        try {
          call(wire::Renew{}, Clock::now() + every, "renewing leases");
        } catch (const std::exception&) {
          // The next user of the store learns of the failure; this thread can only try again in the
          // next round.
        }
        held.lock();
      }
    });
  }

  const std::unique_ptr<Carrier> carrier;
  std::mutex mutex;
  Rounds barriers, gathers;
  std::map<std::string, std::uint64_t, std::less<>> watches;

  Clock::duration renew_every = Clock::duration::max();
  std::condition_variable_any renew_changed;
  std::jthread renewer;  // Last, so that it ends first.
};

JobStore::JobStore(std::unique_ptr<Carrier> carrier)
    : state_(std::make_unique<State>(std::move(carrier))) {}
JobStore::~JobStore() = default;

void JobStore::set(std::string_view key, BytesView value) {
  check_value(key, value);
  state_->ask<wire::Done>(wire::Set{key, value}, "set " + name_in_quotes(key));
}

void JobStore::set_leased(std::string_view key, BytesView value, Clock::duration lease) {
  if (!state_->carrier->outlives_us()) return set(key, value);
  check_value(key, value);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(lease).count();
  const wire::SetLeased message{key, value, ms > 0 ? static_cast<std::uint64_t>(ms) : 0};
  state_->ask<wire::Done>(message, "set_leased " + name_in_quotes(key));
  state_->keep_renewing(lease);
}

std::optional<Bytes> JobStore::get(std::string_view key) {
  check_key(key);
  const std::string what = "get " + name_in_quotes(key);
  const auto reply = state_->call(wire::Get{key}, what);
  if (reply.header.type == wire::Type::absent) return std::nullopt;
  return copy(expect<wire::Found>(reply, what).value);
}

Bytes JobStore::wait(std::string_view key, Clock::time_point deadline) {
  check_key(key);
  const std::string what = "wait " + name_in_quotes(key);
  const auto reply = state_->call(wire::WaitGet{timeout_until(deadline), key},
                                  after_grace(deadline), what, "wait");
  return copy(expect<wire::Found>(reply, what).value);
}

void JobStore::wait_all(std::span<const std::string> keys, Clock::time_point deadline) {
  const std::string what = "wait_all of " + std::to_string(keys.size()) + " keys";
  const wire::Wait message{timeout_until(deadline), views(keys)};
  expect<wire::Done>(state_->call(message, after_grace(deadline), what), what);
}

std::int64_t JobStore::add(std::string_view key, std::int64_t delta) {
  check_key(key);
  return state_->number(wire::Add{key, delta}, "add " + name_in_quotes(key));
}

bool JobStore::compare_set(std::string_view key, std::optional<BytesView> expected,
                           BytesView desired) {
  check_value(key, desired);
  if (expected) check_value(key, *expected);
  const std::string what = "compare_set " + name_in_quotes(key);
  const auto reply = state_->call(wire::CompareSet{key, expected, desired}, what);
  return expect<wire::Compared>(reply, what).stored;
}

std::size_t JobStore::append(std::string_view key, BytesView tail) {
  check_value(key, tail);
  return static_cast<std::size_t>(
      state_->number(wire::Append{key, tail}, "append " + name_in_quotes(key)));
}

bool JobStore::erase(std::string_view key) {
  check_key(key);
  return state_->number(wire::Erase{key}, "erase " + name_in_quotes(key)) != 0;
}

std::vector<std::string> JobStore::list(std::string_view prefix) {
  check_key(prefix);
  const std::string what = "list " + name_in_quotes(prefix);
  std::vector<std::string> keys;
  for (bool more = true; more;) {
    wire::ListPage ask{prefix, {}};
    if (!keys.empty()) ask.after = as_bytes(keys.back());
    const auto reply = state_->call(ask, what);
    const auto page = expect<wire::Page>(reply, what);
    keys.insert(keys.end(), page.keys.begin(), page.keys.end());
    more = page.more && !page.keys.empty();
  }
  return keys;
}

std::vector<std::optional<Bytes>> JobStore::multi_get(std::span<const std::string> keys) {
  const std::string what = "multi_get of " + std::to_string(keys.size()) + " keys";
  const auto reply = state_->call(wire::MultiGet{views(keys)}, what);
  std::vector<std::optional<Bytes>> values;
  for (const auto& value : expect<wire::Values>(reply, what).values) values.push_back(copy(value));
  return values;
}

void JobStore::multi_set(std::span<const std::string> keys, std::span<const Bytes> values) {
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

void JobStore::push(std::string_view queue, BytesView value) {
  check_value(queue, value);
  state_->ask<wire::Done>(wire::Push{queue, value}, "push to " + name_in_quotes(queue));
}

Bytes JobStore::pop(std::string_view queue, Clock::time_point deadline) {
  check_key(queue);
  const std::string what = "pop from " + name_in_quotes(queue);
  const auto reply =
      state_->call(wire::Pop{timeout_until(deadline), queue}, after_grace(deadline), what, "pop");
  return copy(expect<wire::Popped>(reply, what).value.value_or(BytesView{}));
}

std::optional<Bytes> JobStore::try_pop(std::string_view queue) {
  check_key(queue);
  const std::string what = "try_pop from " + name_in_quotes(queue);
  const auto reply = state_->call(wire::TryPop{queue}, what);
  return copy(expect<wire::Popped>(reply, what).value);
}

std::size_t JobStore::queue_size(std::string_view queue) {
  check_key(queue);
  return static_cast<std::size_t>(
      state_->number(wire::QueueSize{queue}, "queue_size of " + name_in_quotes(queue)));
}

KeyChange JobStore::watch(std::string_view key, Clock::time_point deadline) {
  check_key(key);
  std::uint64_t subscription = 0;
  {
    const auto held = state_->lock();
    auto found = state_->watches.find(key);
    if (found == state_->watches.end()) {
      found = state_->watches.emplace(std::string(key), state_->carrier->subscribe(key)).first;
    }
    subscription = found->second;
  }
  return state_->carrier->next_change(subscription, deadline, "watch " + name_in_quotes(key));
}

void JobStore::barrier(std::string_view name, int contributor, int count,
                       Clock::time_point deadline) {
  check_key(name);
  const std::string what = "barrier " + name_in_quotes(name) + " (" + std::to_string(contributor) +
                           " of " + std::to_string(count) + ")";
  const wire::Barrier message{name,
                              state_->round(state_->barriers, name, contributor),
                              count,
                              timeout_until(deadline),
                              {contributor}};
  expect<wire::Done>(state_->call(message, after_grace(deadline), what), what);
  state_->advance(state_->barriers, name, contributor);
}

std::vector<Bytes> JobStore::all_gather(std::string_view name, int contributor, int count,
                                        BytesView blob, Clock::time_point deadline) {
  check_value(name, blob);
  const std::string what = "all_gather " + name_in_quotes(name) + " (" +
                           std::to_string(contributor) + " of " + std::to_string(count) + ")";
  const wire::AllGather message{name,          state_->round(state_->gathers, name, contributor),
                                count,         timeout_until(deadline),
                                {contributor}, {blob}};
  const auto reply = state_->call(message, after_grace(deadline), what);
  std::vector<Bytes> blobs;
  for (const BytesView each : expect<wire::Gathered>(reply, what).blobs) {
    blobs.push_back(copy(each));
  }
  state_->advance(state_->gathers, name, contributor);
  return blobs;
}

}  // namespace dlaunch
