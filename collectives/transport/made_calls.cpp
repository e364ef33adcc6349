#include "collectives/transport/made_calls.hpp"

#include "runtime/segment/flight_log.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::transport {

Fingerprint fingerprint_of(const FlightCall& call) noexcept {
  Fingerprint print;
  print.op = static_cast<Op>(call.op);
  print.dtype = static_cast<DType>(call.dtype);
  print.reduce = static_cast<ReduceOp>(call.reduction);
  print.root = call.place;
  print.sequence = call.sequence;
  print.count = call.count;
  print.argument = call.argument;
  print.traffic = call.traffic;
  return print;
}

const FlightRing* MadeCalls::ring_of(int rank) const {
  if (rank == rank_) return &flight_->ring();
  const int there = segment_ ? segment_->local_of(rank) : -1;
  return there < 0 ? nullptr : &segment_->flight(there);
}

std::optional<MadeCall> MadeCalls::call_made(int rank, std::uint64_t communicator,
                                             std::uint64_t sequence) const {
  const FlightRing* ring = ring_of(rank);
  if (ring == nullptr) return std::nullopt;
  const FlightLog log = read_flight(*ring);
  const std::uint64_t id = flight_hash(flight_id(communicator));
  const auto call = std::find_if(log.calls.rbegin(), log.calls.rend(), [&](const FlightCall& made) {
    return made.communicator == id && made.sequence == sequence && made.kind == Flight::Kind::call;
  });
  if (call == log.calls.rend()) return std::nullopt;
  return MadeCall{fingerprint_of(*call), FlightNames{*ring}.site(*call)};
}

SentFrom MadeCalls::sent_from(int rank, const Header& message) const {
  SentFrom from;
  const FlightRing* ring = ring_of(rank);
  if (ring == nullptr) return from;
  const std::uint64_t id = flight_hash(flight_id(message.communicator));
  for (const FlightCall& call : read_flight(*ring).calls) {
    if (call.communicator != id || call.op != static_cast<std::uint8_t>(Op::send) ||
        call.dtype != static_cast<std::uint8_t>(message.dtype) || call.count != message.count ||
        call.place != message.root || call.argument != static_cast<std::uint64_t>(message.tag)) {
      continue;
    }
    std::string place = FlightNames{*ring}.site(call);
    const auto& known = from.places;
    if (place.empty() || std::find(known.begin(), known.end(), place) != known.end()) continue;
    if (known.size() < SentFrom::places_max) from.places.push_back(std::move(place));
  }
  return from;
}

}  // namespace dlaunch::transport
