#include "collectives/transport/made_calls.hpp"

#include "runtime/segment/flight_log.hpp"

#include <algorithm>

namespace dlaunch::transport {

const FlightRing* MadeCalls::ring_of(int rank) const {
  if (rank == rank_) return &flight_->ring();
  const int there = segment_ ? segment_->local_of(rank) : -1;
  return there < 0 ? nullptr : &segment_->flight(there);
}

std::string MadeCalls::call_made(int rank, std::uint64_t communicator,
                                 std::uint64_t sequence) const {
  const FlightRing* ring = ring_of(rank);
  if (ring == nullptr) return "";
  const FlightLog log = read_flight(*ring);
  const std::uint64_t id = flight_hash(flight_id(communicator));
  const auto call = std::find_if(log.calls.rbegin(), log.calls.rend(), [&](const FlightCall& made) {
    return made.communicator == id && made.sequence == sequence && made.kind == Flight::Kind::call;
  });
  return call == log.calls.rend() ? "" : FlightNames{*ring}.full_and_site(*call);
}

std::string MadeCalls::sent_from(int rank, const Header& message) const {
  const FlightRing* ring = ring_of(rank);
  if (ring == nullptr) return "";
  const std::uint64_t id = flight_hash(flight_id(message.communicator));
  std::string text;
  for (const FlightCall& call : read_flight(*ring).calls) {
    if (call.communicator != id || call.op != static_cast<std::uint8_t>(Op::send) ||
        call.dtype != static_cast<std::uint8_t>(message.dtype) || call.count != message.count ||
        call.place != message.root || call.argument != static_cast<std::uint64_t>(message.tag)) {
      continue;
    }
    const std::string site = "[" + FlightNames{*ring}.site(call) + "]";
    if (site == "[]" || text.find(site) != std::string::npos) continue;
    text += (text.empty() ? "" : " or ") + site;
  }
  return text;
}

}  // namespace dlaunch::transport
