#include "runtime/store/relay/relay_state.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::store {
namespace {

/// The most that goes into one message, which is more than a whole round may gather.
constexpr std::size_t message_bytes_max = wire::frame_bytes_max - (256u << 10);

/// How long before the first deadline a held round goes up at the latest.
constexpr auto margin_max = std::chrono::seconds(1);

std::vector<std::pair<std::vector<std::int32_t>, std::vector<BytesView>>> in_messages(
    const std::map<int, Bytes>& contributions) {
  std::vector<std::pair<std::vector<std::int32_t>, std::vector<BytesView>>> messages(1);
  std::size_t bytes = 0;
  for (const auto& [contributor, blob] : contributions) {
    bytes += blob.size() + 2 * sizeof(std::int32_t);
    if (bytes > message_bytes_max && !messages.back().first.empty()) {
      bytes = blob.size() + 2 * sizeof(std::int32_t);
      messages.emplace_back();
    }
    messages.back().first.push_back(contributor);
    messages.back().second.emplace_back(blob);
  }
  return messages;
}

}  // namespace

/// Takes a contribution. An invalid one goes up as it is, and the store refuses it.
void Relay::State::contribute(Caller by, const Contribution& what, BytesView payload) {
  const auto& key = what.key;
  const bool gather = key.type == wire::AllGather::type;
  const bool valid =
      key.count > 0 && !what.contributors.empty() && by.request != 0 &&
      std::ranges::all_of(what.contributors, [&](int c) { return c >= 0 && c < key.count; }) &&
      (!gather || what.blobs.size() == what.contributors.size());
  if (!valid) {
    Looked looked;
    looked.deadline = what.deadline;
    return forward(by, key.type, payload, looked);
  }

  Round& round = rounds[key];
  for (std::size_t i = 0; i < what.contributors.size(); ++i) {
    Bytes& blob = round.unsent[what.contributors[i]];
    if (gather) blob.assign(what.blobs[i].begin(), what.blobs[i].end());
    round.came.insert(what.contributors[i]);
  }
  round.callers.push_back(by);
  workers.at(by.client).calls.at(by.request).round = key;
  if (key.count == place.world_size) {
    for (const auto& [rank, why] : lost) {
      if (!is_local(rank) || round.came.contains(rank)) continue;
      answer(by, wire::Failed{Errc::peer_lost, why});
      flush_later(key);
      return;
    }
  }
  if (!is_held(key) || round.partly_sent || all_came(round)) return flush_later(key);
  // The store should know of all nodes' ranks before the first deadline passes, so that its answer
  // names exactly the missing ones.
  const auto now = Clock::now();
  if (what.deadline == Clock::time_point::max()) return;
  const auto margin = std::min<Clock::duration>((what.deadline - now) / 4, margin_max);
  rounds_due.emplace(what.deadline - margin, key);
}

/// Whether the other local ranks are waited for.
bool Relay::State::is_held(const RoundKey& key) const {
  if (key.count != place.world_size || !lost.empty()) return false;
  const auto last = over.find({key.type, key.name});
  return last == over.end() || key.round > last->second;
}

/// Compares numbers of ranks only: a group of all ranks may order them otherwise than the world
/// does.
bool Relay::State::all_came(const Round& round) const {
  return round.came.size() >= static_cast<std::size_t>(place.local_size);
}

/// Those that arrive in the same turn of the loop go up together.
void Relay::State::flush_later(const RoundKey& key) {
  to_flush.push_back(key);
  if (to_flush.size() > 1) return;
  asio::post(io, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    for (const RoundKey& each : std::exchange(self->to_flush, {})) self->flush(each);
    self->arm();
  });
}

void Relay::State::flush(const RoundKey& key) {
  const auto found = rounds.find(key);
  if (found == rounds.end()) return;
  Round& round = found->second;
  if (!round.unsent.empty()) send_round(key, round);
  round.unsent.clear();
  round.callers.clear();
  round.partly_sent = true;
  if (key.count != place.world_size || all_came(round)) rounds.erase(found);
}

/// Sends a round up, with the first of its callers' deadlines; callers with more time ask again
/// afterwards.
void Relay::State::send_round(const RoundKey& key, const Round& round) {
  const auto now = Clock::now();
  auto deadline = round.callers.empty() ? now : Clock::time_point::max();
  for (const Caller& caller : round.callers) {
    const Call* const call = find_call(caller);
    if (call != nullptr) deadline = std::min(deadline, call->overdue ? now : call->deadline);
  }
  const auto timeout = wire::Timeout::until(deadline, now);
  const auto messages = in_messages(round.unsent);
  for (const auto& [contributors, blobs] : messages) {
    const AskId id = next_ask++;
    Ask& ask = asks[id];
    ask.type = key.type;
    ask.deadline = deadline;
    ask.round = key;
    ask.timeout_at = sizeof(std::uint32_t) + key.name.size() + sizeof key.round + sizeof key.count;
    if (key.type == wire::Barrier::type) {
      wire::encode(ask.payload,
                   wire::Barrier{key.name, key.round, key.count, timeout, contributors});
    } else {
      wire::encode(ask.payload,
                   wire::AllGather{key.name, key.round, key.count, timeout, contributors, blobs});
    }
    if (&contributors == &messages.back().first) {
      ask.callers = round.callers;
      for (const Caller& caller : ask.callers) {
        if (Call* const call = find_call(caller)) call->ask = id;
      }
    }
    send(id, ask.payload);
  }
}

void Relay::State::round_over(const RoundKey& key) {
  rounds.erase(key);
  auto& last = over[{key.type, key.name}];
  last = std::max(last, key.round);
}

/// Answers the rounds that lack a lost rank. Whether a rank of another node has come is known to
/// the store alone, so contributions to such rounds go up and are answered there.
void Relay::State::lose(int rank, const std::string& why) {
  lost.emplace(rank, why);
  std::vector<RoundKey> lacking;
  for (const auto& [key, round] : rounds) {
    if (key.count == place.world_size && !round.came.contains(rank)) lacking.push_back(key);
  }
  const bool certain = is_local(rank) || !uplink.connected();
  std::vector<Caller> callers;
  for (const RoundKey& key : lacking) {
    const auto round = rounds.find(key);
    if (certain && round != rounds.end()) {
      callers.insert(callers.end(), round->second.callers.begin(), round->second.callers.end());
    }
    for (const auto& [id, ask] : asks) {
      if (certain && ask.round == key) {
        callers.insert(callers.end(), ask.callers.begin(), ask.callers.end());
      }
    }
  }
  for (const Caller& caller : callers) answer(caller, wire::Failed{Errc::peer_lost, why});
  for (const RoundKey& key : lacking) flush(key);
  arm();
}

}  // namespace dlaunch::store
