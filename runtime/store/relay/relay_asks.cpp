#include "runtime/base/phrases.hpp"
#include "runtime/store/protocol/operations.hpp"
#include "runtime/store/relay/relay_state.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::store {
namespace {

/// How long a request without a deadline waits for the store to be reachable; clients wait a minute
/// for an answer.
constexpr auto patience = std::chrono::seconds(50);

std::optional<std::size_t> hash_of(std::optional<BytesView> value) {
  if (!value) return std::nullopt;
  return std::hash<std::string_view>{}(as_text(*value));
}

}  // namespace

Relay::State::Looked Relay::State::look(wire::Type type, BytesView payload,
                                        Clock::time_point now) const {
  Looked looked;
  looked.deadline = now + patience;
  const auto round = [&](const auto& m, std::vector<BytesView> blobs) {
    looked.deadline = m.timeout.deadline(now);
    looked.what = name_in_quotes(m.name) + ": waiting for the others";
    looked.contribution = Contribution{{type, std::string(m.name), m.round, m.count},
                                       m.contributors,
                                       std::move(blobs),
                                       looked.deadline};
  };
  const auto note = wire::Overloaded{
      [&](const wire::Set& m) {
        looked.published = {{m.key, m.value}};
      },
      [&](const wire::MultiSet& m) {
        for (std::size_t i = 0; i < m.keys.size(); ++i) {
          looked.published.emplace_back(m.keys[i], m.values[i]);
        }
      },
      [&](const wire::CompareSet& m) {
        if (!m.expected) looked.published = {{m.key, m.desired}};
      },
      [&](const wire::SetLeased& m) {
        looked.lease = Ask::Lease{std::string(m.key), m.lease()};
      },
      [&](const wire::Wait& m) {
        looked.deadline = m.timeout.deadline(now);
        looked.what = "waiting for " + listed(m.keys, names_told(m.keys.size()), name_in_quotes);
        looked.alike = true;
      },
      [&](const wire::WaitGet& m) {
        looked.deadline = m.timeout.deadline(now);
        looked.what = "waiting for " + name_in_quotes(m.key);
        looked.alike = true;
      },
      [&](const wire::Pop& m) {
        looked.deadline = m.timeout.deadline(now);
        looked.what = "waiting for " + name_in_quotes(m.queue);
      },
      [&](const wire::Watch& m) {
        looked.deadline = Clock::time_point::max();
        looked.watched = std::string(m.key);
      },
      [&](const wire::Cancel& m) { looked.cancelled = m.request; },
      [&](const wire::Barrier& m) { round(m, {}); },
      [&](const wire::AllGather& m) { round(m, m.blobs); },
      [](const auto&) {},
  };
  looked.well_formed = wire::decode_request(type, payload, note);
  return looked;
}

bool Relay::State::on_request(const From& from, const wire::FrameHeader& header, BytesView payload,
                              Clock::time_point now) {
  Looked looked = look(header.type, payload, now);
  if (!looked.well_formed) return false;
  const Caller by{worker_of(from), header.request};
  Worker& worker = workers.at(by.client);
  if (header.type == wire::Renew::type) {
    leases.renew(by.client, now);
    answer(by, wire::Done{});
    return true;
  }
  if (looked.cancelled) {
    cancel(by, *looked.cancelled);
    return true;
  }
  // A repetition after a reconnect may still be on its way, or have been answered while the worker
  // was away.
  if (worker.calls.contains(by.request)) return true;
  if (const auto late = worker.late.find(by.request); late && by.request != 0) {
    server->answer(worker.connection, {0, late->type, wire::reply, by.request, 0}, late->payload,
                   true);
    return true;
  }
  if (by.request == 0 && !wire::is_change(header.type) && !looked.contribution) {
    return true;  // Nobody waits for the answer, and nothing would change.
  }
  if (store_lost) {
    if (by.request != 0) answer(by, wire::Failed{Errc::peer_lost, *store_lost});
    return true;
  }
  std::string no = objection(worker, payload);
  if (looked.lease && from.session == 0) no = "a lease needs a session, and this client has none";
  if (!no.empty()) {
    answer(by, wire::Failed{Errc::refused, no});
    return true;
  }
  if (by.request != 0) {
    begin_call(by, header.type, payload, looked.deadline).what = std::move(looked.what);
  }
  for (const auto& [key, value] : looked.published) {
    note_published(key, value, header.type == wire::CompareSet::type);
  }
  if (looked.contribution) {
    contribute(by, *looked.contribution, payload);
  } else {
    forward(by, header.type, payload, looked);
  }
  arm();
  return true;
}

void Relay::State::forward(Caller by, wire::Type type, BytesView payload, const Looked& looked) {
  const bool wanted = by.request != 0;
  std::string same;
  if (looked.alike && wanted) {
    // Compares all of the payload but the timeout, which comes first.
    same = std::to_string(static_cast<unsigned>(type)) + " ";
    same += as_text(payload.subspan(sizeof(wire::Timeout)));
    const auto found = alike.find(same);
    if (found != alike.end() && asks.at(found->second).deadline <= looked.deadline) {
      asks.at(found->second).callers.push_back(by);
      workers.at(by.client).calls.at(by.request).ask = found->second;
      return;
    }
  }
  const AskId id = next_ask++;
  Ask& ask = asks[id];
  ask.type = type;
  ask.deadline = looked.deadline;
  ask.lease = looked.lease;
  if (looked.watched) ask.watched = Ask::Watched{*looked.watched, false, std::nullopt};
  if (wanted) {
    ask.callers.push_back(by);
    workers.at(by.client).calls.at(by.request).ask = id;
  }
  if (looked.alike) ask.payload.assign(payload.begin(), payload.end());
  if (!same.empty() && alike.emplace(same, id).second) ask.alike = std::move(same);
  send(id, payload);
  if (ask.watched) look_at_watched(id);
}

void Relay::State::send(AskId id, BytesView payload) {
  Ask& ask = asks.at(id);
  ask.number = uplink.request(
      ask.type, place.epoch, payload,
      [weak = weak_from_this(), id](const wire::FrameHeader& header, BytesView answered) {
        const auto self = weak.lock();
        if (self) self->on_answer(id, header, answered);
      });
}

void Relay::State::on_answer(AskId id, const wire::FrameHeader& header, BytesView payload) {
  const auto found = asks.find(id);
  if (found == asks.end()) return;
  Bytes explained;
  if (forgotten && header.type == wire::Type::failed) {
    const auto failure = wire::decode<wire::Failed>(payload);
    if (failure && failure->code == Errc::timeout) {
      explained = with_forgotten(*failure);
      payload = explained;
    }
  }
  if (header.type == wire::Type::failed && !found->second.payload.empty() &&
      ask_again(id, payload)) {
    return arm();
  }
  if ((header.flags & wire::more) != 0) {
    if (auto& watched = found->second.watched) {
      const auto change = wire::decode<wire::Changed>(payload);
      if (change) watched->value = hash_of(change->value);
      watched->known = true;
    }
    const auto callers = found->second.callers;
    for (const Caller& caller : callers) answer(caller, header.type, payload, header.flags);
    return;
  }
  const Ask ask = std::move(found->second);
  asks.erase(found);
  if (!ask.alike.empty()) alike.erase(ask.alike);
  const bool well = header.type != wire::Type::failed;
  if (ask.round && well) round_over(*ask.round);
  if (ask.lease && well && !ask.callers.empty()) {
    hold_lease(ask.callers.front().client, *ask.lease, Clock::now());
  } else if (ask.lease && well) {
    end_leases({ask.lease->key});  // Its worker is gone and cannot renew it.
  }
  for (const Caller& caller : ask.callers) {
    Call* const call = find_call(caller);
    if (call == nullptr) continue;
    call->ask = 0;
    call->round.reset();
    answer(caller, header.type, payload);
  }
  arm();
}

bool Relay::State::ask_again(AskId id, BytesView payload) {
  const auto failure = wire::decode<wire::Failed>(payload);
  if (!failure || failure->code != Errc::timeout) return false;
  const auto now = Clock::now();
  Ask& ask = asks.at(id);
  std::vector<Caller> late;
  auto next = Clock::time_point::max();
  for (const Caller& caller : ask.callers) {
    const Call* const call = find_call(caller);
    if (call == nullptr || call->overdue || call->deadline <= std::max(now, ask.deadline)) {
      late.push_back(caller);
    } else {
      next = std::min(next, call->deadline);
    }
  }
  if (late.size() == ask.callers.size()) return false;
  std::erase_if(ask.callers,
                [&](const Caller& caller) { return std::ranges::count(late, caller) > 0; });
  ask.deadline = next;
  const auto left_of_it = wire::Timeout::until(next, now);
  std::memcpy(ask.payload.data() + ask.timeout_at, &left_of_it.microseconds,
              sizeof left_of_it.microseconds);
  send(id, ask.payload);
  for (const Caller& caller : late) {
    Call* const call = find_call(caller);
    if (call == nullptr) continue;
    call->ask = 0;
    answer(caller, wire::Type::failed, payload);
  }
  return true;
}

/// A caller is gone. If it was the last one, a wait ends; a change is made all the same.
void Relay::State::detach(Caller from, AskId id) {
  const auto found = asks.find(id);
  if (found == asks.end()) return;
  std::erase(found->second.callers, from);
  if (!found->second.callers.empty() || found->second.lease) return;
  if (found->second.round) return;  // A contribution stays.
  drop_ask(id);
}

void Relay::State::drop_ask(AskId id) {
  const Ask ask = std::move(asks.at(id));
  asks.erase(id);
  if (!ask.alike.empty()) alike.erase(ask.alike);
  uplink.forget(ask.number);
}

// ---- Watches ----

/// Watches miss changes that are made while there is no connection, so the present values are
/// compared with the last known ones.
void Relay::State::on_reconnect(bool all_forgotten) {
  if (all_forgotten) publish_again();
  renew(Clock::now());
  std::vector<AskId> watches;
  for (const auto& [id, ask] : asks) {
    if (ask.watched) watches.push_back(id);
  }
  for (const AskId id : watches) look_at_watched(id);
  arm();
}

void Relay::State::look_at_watched(AskId id) {
  uplink.request(wire::Get::type, place.epoch,
                 wire::payload_of(wire::Get{asks.at(id).watched->key}),
                 [weak = weak_from_this(), id](const wire::FrameHeader& header, BytesView got) {
                   if (const auto self = weak.lock()) self->on_looked(id, header, got);
                 });
}

void Relay::State::on_looked(AskId id, const wire::FrameHeader& header, BytesView payload) {
  const auto found = asks.find(id);
  if (found == asks.end() || !found->second.watched) return;
  if (header.type != wire::Type::found && header.type != wire::Type::absent) return;
  auto& watched = *found->second.watched;
  std::optional<BytesView> value;
  if (header.type == wire::Type::found) {
    const auto message = wire::decode<wire::Found>(payload);
    if (!message) return;
    value = message->value;
  }
  const auto before = std::exchange(watched.value, hash_of(value));
  if (!std::exchange(watched.known, true) || before == watched.value) return;
  using Kind = KeyChange::Kind;
  const Kind kind = !value ? Kind::deleted : before ? Kind::updated : Kind::created;
  Bytes change;
  wire::encode(change, wire::Changed{kind, watched.key, value});
  const auto callers = found->second.callers;
  for (const Caller& caller : callers) {
    answer(caller, wire::Type::changed, change, wire::reply | wire::more);
  }
}

}  // namespace dlaunch::store
