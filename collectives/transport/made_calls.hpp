#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/segment/flight.hpp"
#include "runtime/segment/segment.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace dlaunch::transport {

/// What this rank, and the others of its node, have recorded of the calls that they made. Free of
/// the mesh's lock.
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
  /// A collective of this rank, or of another of its node, with its place in the program:
  /// "all_reduce #3 (sum, f32, 8 elements) [train.cpp:42]"; empty where it is not remembered.
  std::string call_made(int rank, std::uint64_t communicator, std::uint64_t sequence) const;
  /// The place from which that rank sent such a message: "[train.cpp:42]", or for several lines
  /// "[train.cpp:42] or [train.cpp:47]"; empty if it is not known here.
  std::string sent_from(int rank, const Header& message) const;

 private:
  const FlightRing* ring_of(int rank) const;

  int rank_;
  std::uint32_t generation_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Flight> flight_;
};

}  // namespace dlaunch::transport
