#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/segment/flight.hpp"
#include "runtime/segment/segment.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace dlaunch {

struct FlightCall;

}  // namespace dlaunch

namespace dlaunch::transport {

/// A collective as it was recorded.
Fingerprint fingerprint_of(const FlightCall& call) noexcept;

/// The recorded calls of this rank and the others of its node. Needs no lock of the mesh.
class MadeCalls {
 public:
  /// `segment` may be null. The mesh's generation tells communicators of several meshes apart.
  MadeCalls(int rank, std::uint32_t generation, std::shared_ptr<Segment> segment,
            std::shared_ptr<Flight> flight)
      : rank_(rank),
        generation_(generation),
        segment_(std::move(segment)),
        flight_(std::move(flight)) {}

  /// The record of this rank's calls.
  const std::shared_ptr<Flight>& flight() const { return flight_; }
  /// The number under which it records a communicator's calls.
  std::uint64_t flight_id(std::uint64_t communicator) const noexcept {
    // Communicators of several meshes may have the same id.
    return communicator ^ generation_ * 0x9e3779b97f4a7c15U;
  }
  /// A collective of this rank, or of another of its node, as far as it is remembered.
  std::optional<MadeCall> call_made(int rank, std::uint64_t communicator,
                                    std::uint64_t sequence) const;
  /// The places from which that rank sent such messages, as far as they are known here.
  SentFrom sent_from(int rank, const Header& message) const;

 private:
  const FlightRing* ring_of(int rank) const;

  int rank_;
  std::uint32_t generation_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Flight> flight_;
};

}  // namespace dlaunch::transport
