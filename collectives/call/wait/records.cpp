#include "collectives/call/wait/records.hpp"

#include "runtime/segment/flight_log.hpp"

#include <algorithm>
#include <functional>

namespace dlaunch {
namespace {

using transport::Fingerprint;

/// The collective of this communicator in a rank's flight recorder for which the condition holds;
/// of several, the one whose number is closest to this call's.
std::optional<Fingerprint> find_recorded(const CallFrame& frame, const FlightRing& ring,
                                         const std::function<bool(const Fingerprint&)>& is_wanted) {
  if (frame.setting.flight == nullptr) return std::nullopt;
  const FlightLog log = read_flight(ring);
  std::optional<Fingerprint> found;
  const auto distance = [here = frame.fingerprint.sequence](const Fingerprint& call) {
    return std::max(call.sequence, here) - std::min(call.sequence, here);
  };
  for (auto call = log.calls.rbegin(); call != log.calls.rend(); ++call) {
    if (call->communicator != frame.setting.flight->communicator() || call->sequence == 0 ||
        call->kind != Flight::Kind::call) {
      continue;
    }
    const Fingerprint print = transport::fingerprint_of(*call);
    if (is_wanted(print) && (!found || distance(print) < distance(*found))) found = print;
  }
  return found;
}

}  // namespace

std::optional<Fingerprint> call_made(const CallFrame& frame, std::uint64_t sequence) {
  if (sequence == frame.fingerprint.sequence) return frame.fingerprint;
  if (frame.setting.history != nullptr) return frame.setting.history->find(sequence);
  return find_recorded(frame, frame.setting.mesh.made_calls().flight()->ring(),
                       [&](const Fingerprint& call) { return call.sequence == sequence; });
}

/// A member's calls are in its flight recorder before it publishes their first step.
std::optional<Fingerprint> call_of(const CallFrame& frame, int member, std::uint32_t hash) {
  const auto& segment = frame.setting.mesh.segment();
  const int local = segment->local_of(frame.world_rank_of(member));
  if (local < 0) return std::nullopt;
  return find_recorded(frame, segment->flight(local), [&](const Fingerprint& call) {
    return transport::ShmGroup::hash_of(call.record()) == hash;
  });
}

std::optional<SeenDoing> recorded_doing(const CallFrame& frame, int world_rank) {
  const auto& segment = frame.setting.mesh.segment();
  const int local = segment ? segment->local_of(world_rank) : -1;
  if (local < 0) return std::nullopt;
  const FlightRing& ring = segment->flight(local);
  const FlightLog log = read_flight(ring, 1);
  if (!log.ready) return SeenDoing{no_communicator_text};
  const std::string text = doing_text(ring, log, Clock::now());
  if (is_stopped(log)) return SeenDoing{"stopped by a signal, " + text};
  return seen_in(call_under_way(log), text);
}

/// A record forgets communicators that have ended once it has no room left for others, so a full
/// one tells nothing.
bool lacks_communicator(const CallFrame& frame, int world_rank) {
  const auto& segment = frame.setting.mesh.segment();
  const int local = segment ? segment->local_of(world_rank) : -1;
  if (local < 0 || frame.setting.flight == nullptr) return false;
  const FlightLog log = read_flight(segment->flight(local), 0);
  if (log.groups.empty() || log.groups.size() == FlightRing::groups_max) return false;
  return std::none_of(log.groups.begin(), log.groups.end(), [&](const FlightGroup& group) {
    return group.communicator == frame.setting.flight->communicator();
  });
}

}  // namespace dlaunch
