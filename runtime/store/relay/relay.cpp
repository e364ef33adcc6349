#include "runtime/store/relay/relay.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/store/relay/relay_state.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {
namespace {

/// How many vanished workers are remembered: they may come back and repeat unanswered requests.
constexpr auto worker_linger = std::chrono::seconds(60);
constexpr std::size_t workers_left_max = 4096;
/// The most requests of one worker that are on their way.
constexpr std::size_t unanswered_bytes_max = 256u << 20;
/// How long the store's answer to a wait may take beyond the wait's deadline. Clients give up after
/// a second.
constexpr auto answer_grace = std::chrono::milliseconds(500);

}  // namespace

Relay::Relay(boost::asio::io_context& io, Uplink& uplink)
    : state_(std::make_shared<State>(io, uplink)) {
  uplink.after_reconnect([state = std::weak_ptr(state_)](bool forgotten) {
    if (const auto self = state.lock()) self->on_reconnect(forgotten);
  });
}

Relay::~Relay() {
  state_->begin({});
  state_->timer.cancel();
}

void Relay::begin_epoch(const NodePlace& place, Server& local) {
  RelayEpoch epoch;
  epoch.place = place;
  epoch.server = &local;
  state_->begin(std::move(epoch));
  local.forward_to(*state_);
}

void Relay::lose_contributor(int rank, std::string_view why) {
  state_->lose(rank, std::string(why));
}

void Relay::lose_store(std::string_view why) { state_->lose_store(std::string(why)); }

void Relay::State::begin(RelayEpoch epoch) {
  for (const auto& [id, ask] : asks) uplink.forget(ask.number);
  static_cast<RelayEpoch&>(*this) = std::move(epoch);
}

// ---- Workers ----

Relay::State::WorkerId Relay::State::worker_of(const From& from) {
  if (const auto known = by_connection.find(from.connection); known != by_connection.end()) {
    return known->second;
  }
  WorkerId id = next_worker;
  if (from.session != 0) {
    const auto [found, is_new] = by_session.emplace(from.session, next_worker);
    if (is_new) ++next_worker;
    id = found->second;
  } else {
    ++next_worker;
  }
  Worker& worker = workers[id];
  worker.session = from.session;
  if (worker.connection != 0) by_connection.erase(worker.connection);
  worker.connection = from.connection;
  by_connection[from.connection] = id;
  return id;
}

void Relay::State::on_gone(const From& from, bool goodbye) {
  const auto known = by_connection.find(from.connection);
  if (known == by_connection.end()) return;
  const WorkerId id = known->second;
  by_connection.erase(known);
  Worker& worker = workers.at(id);
  worker.connection = 0;
  const bool for_good = goodbye || worker.session == 0;
  std::vector<std::uint64_t> ended;
  for (const auto& [request, call] : worker.calls) {
    if (for_good || !wire::is_change(call.type) || call.type == wire::Pop::type) {
      ended.push_back(request);
    }
  }
  for (const std::uint64_t request : ended) drop_call({id, request});
  if (for_good) {
    if (goodbye) end_leases(leases.take(id));
    by_session.erase(worker.session);
    workers.erase(id);
  } else {
    worker.forget = Clock::now() + worker_linger;
    left.emplace_back(worker.forget, id);
  }
  arm();
}

/// Forgets workers that left long ago. One that holds leases is remembered until they are gone, so
/// that it may come back and renew them.
void Relay::State::forget_workers(Clock::time_point now) {
  while (!left.empty() && (left.front().first <= now || left.size() > workers_left_max)) {
    const auto [when, id] = left.front();
    left.pop_front();
    const auto worker = workers.find(id);
    if (worker == workers.end() || worker->second.connection != 0) continue;
    if (worker->second.forget != when) continue;  // It came back, and left again.
    const bool holds = std::ranges::any_of(
        leased, [holder = id](const auto& each) { return each.second.holder == holder; });
    if (holds) {
      worker->second.forget = now + worker_linger;
      left.emplace_back(worker->second.forget, id);
      return;
    }
    while (!worker->second.calls.empty()) drop_call({id, worker->second.calls.begin()->first});
    by_session.erase(worker->second.session);
    workers.erase(worker);
  }
}

// ---- Calls ----

std::string Relay::State::objection(const Worker& worker, BytesView payload) const {
  if (worker.calls.size() >= limits.waits_per_client) {
    return "this client waits for " + std::to_string(limits.waits_per_client) +
           " things already, which is the limit";
  }
  if (worker.bytes + payload.size() > unanswered_bytes_max) {
    return "this client's unanswered requests have " + std::to_string(worker.bytes >> 20) +
           " MiB already; the limit is " + std::to_string(unanswered_bytes_max >> 20) + " MiB";
  }
  return {};
}

Relay::State::Call* Relay::State::find_call(Caller by) {
  const auto worker = workers.find(by.client);
  if (worker == workers.end()) return nullptr;
  const auto call = worker->second.calls.find(by.request);
  return call == worker->second.calls.end() ? nullptr : &call->second;
}

Relay::State::Call& Relay::State::begin_call(Caller by, wire::Type type, BytesView payload,
                                             Clock::time_point deadline) {
  Worker& worker = workers.at(by.client);
  Call& call = worker.calls[by.request];
  call.type = type;
  call.deadline = deadline;
  call.bytes = payload.size();
  worker.bytes += call.bytes;
  deadlines.emplace(deadline, by.client, by.request);
  return call;
}

void Relay::State::drop_call(Caller by) {
  Worker& worker = workers.at(by.client);
  const auto found = worker.calls.find(by.request);
  if (found == worker.calls.end()) return;
  const Call call = std::move(found->second);
  worker.calls.erase(found);
  worker.bytes -= call.bytes;
  deadlines.erase({call.deadline, by.client, by.request});
  if (call.ask != 0) {
    detach(by, call.ask);
  } else if (call.round) {
    if (const auto round = rounds.find(*call.round); round != rounds.end()) {
      std::erase(round->second.callers, by);
    }
  }
}

void Relay::State::answer(Caller to, wire::Type type, BytesView payload, std::uint16_t flags) {
  const auto found = workers.find(to.client);
  if (found == workers.end()) return;
  Worker& worker = found->second;
  const auto call = worker.calls.find(to.request);
  const bool change = call != worker.calls.end() && wire::is_change(call->second.type);
  if (call != worker.calls.end() && (flags & wire::more) == 0) drop_call(to);
  if (worker.connection != 0) {
    server->answer(worker.connection, {0, type, flags, to.request, 0}, payload, change);
  } else if (change) {
    worker.late.remember(to.request, type, payload);
  }
}

/// Cancels a request. A pop may already have been answered, and its entry would be lost, so the
/// store decides; everything else ends here and now.
void Relay::State::cancel(Caller by, std::uint64_t request) {
  Worker& worker = workers.at(by.client);
  const auto call = worker.calls.find(request);
  if (call == worker.calls.end() || !wire::Requests::has(call->second.type, wire::waits)) {
    return answer(by, wire::Number{0});
  }
  if (!wire::is_change(call->second.type)) {
    drop_call({by.client, request});
    return answer(by, wire::Number{1});
  }
  uplink.request(
      wire::Cancel::type, place.epoch,
      wire::payload_of(wire::Cancel{asks.at(call->second.ask).number}),
      [weak = weak_from_this(), by, request](const wire::FrameHeader& header, BytesView answered) {
        const auto self = weak.lock();
        if (!self || !self->workers.contains(by.client)) return;
        const auto number = wire::decode<wire::Number>(answered);
        const bool ended = header.type == wire::Type::number && number && number->value == 1;
        if (ended && self->workers.at(by.client).calls.contains(request)) {
          self->drop_call({by.client, request});
        }
        self->answer(by, wire::Number{ended ? 1 : 0});
      });
}

// ---- Time ----

void Relay::State::arm() {
  auto next = std::min(next_renewal, leases.earliest().value_or(Clock::time_point::max()));
  if (!deadlines.empty()) next = std::min(next, std::get<0>(*deadlines.begin()));
  if (!rounds_due.empty()) next = std::min(next, rounds_due.begin()->first);
  if (!left.empty()) next = std::min(next, left.front().first);
  if (next >= armed) return;
  armed = next;
  timer.expires_at(next);
  timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self) return;
    self->armed = Clock::time_point::max();
    self->on_time(Clock::now());
    self->arm();
  });
}

void Relay::State::on_time(Clock::time_point now) {
  while (!rounds_due.empty() && rounds_due.begin()->first <= now) {
    const RoundKey key = rounds_due.extract(rounds_due.begin()).value().second;
    flush(key);
  }
  while (!deadlines.empty() && std::get<0>(*deadlines.begin()) <= now) {
    const auto [when, worker, request] = *deadlines.begin();
    overdue({worker, request}, now);
  }
  if (const auto keys = leases.take_expired(now); !keys.empty()) end_leases(keys);
  if (next_renewal <= now) renew(now);
  forget_workers(now);
}

/// Ends a wait after its deadline. The store, which can name what is missing, gets a moment to
/// answer first.
void Relay::State::overdue(Caller by, Clock::time_point now) {
  Call& call = workers.at(by.client).calls.at(by.request);
  if (!call.overdue && uplink.connected()) {
    call.overdue = true;
    deadlines.erase({call.deadline, by.client, by.request});
    deadlines.emplace(now + answer_grace, by.client, by.request);
    call.deadline = now + answer_grace;
    return;
  }
  answer(by, wire::Failed{Errc::timeout, unreachable(call)});
}

void Relay::State::lose_store(std::string why) {
  store_lost = std::move(why);
  std::vector<Caller> callers;
  for (const auto& [id, worker] : workers) {
    for (const auto& [request, call] : worker.calls) callers.push_back({id, request});
  }
  for (const Caller& caller : callers) answer(caller, wire::Failed{Errc::peer_lost, *store_lost});
}

std::string Relay::State::unreachable(const Call& call) const {
  std::string text = call.what.empty() ? std::string() : call.what + "; ";
  if (const auto trouble = uplink.trouble()) {
    const auto since =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - trouble->since);
    text += "the rendezvous has not been reachable for " + duration_text(since);
    if (!trouble->sentence.empty()) text += " (" + trouble->sentence + ")";
  } else {
    text += "the rendezvous has not answered in time";
  }
  if (wire::is_change(call.type) && call.type != wire::Pop::type) {
    text += "; whether the change was made is not known";
  }
  return text;
}

}  // namespace dlaunch::store
