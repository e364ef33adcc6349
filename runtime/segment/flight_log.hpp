#pragma once

#include "runtime/base/doing.hpp"
#include "runtime/segment/flight.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch {

/// One call of a rank, from its ring. A plain value.
struct FlightCall {
  std::uint64_t number = 0;  ///< In the rank's history, from 1.
  std::uint8_t op = 0, dtype = 0, reduction = 0;
  Flight::Kind kind = Flight::Kind::call;
  std::uint16_t group = FlightRing::none;
  std::uint16_t site = FlightRing::none;
  std::uint64_t communicator = 0;  ///< flight_hash of its id, as everywhere here.
  std::uint64_t sequence = 0;      ///< 0: a message.
  std::uint64_t count = 0;
  std::int32_t place = -1;
  std::uint64_t argument = 0;
  std::uint32_t traffic = 0;  ///< Packed by its library; 0: the program's own.
  Clock::time_point began{};
  std::optional<Clock::time_point> ended;  ///< nullopt: under way, as far as the record tells.
  bool failed = false;

  std::size_t purpose() const {
    return traffic >> FlightRing::purpose_shift & (FlightRing::purposes_max - 1);
  }
  /// The terms that must be equal on all ranks that make this collective.
  using Terms = std::array<std::uint64_t, 4>;
  Terms terms() const {
    return {Flight::Call::pack(op, dtype, reduction, place), count, argument,
            traffic & ~FlightRing::shadow_bit};
  }
  bool agrees_with(const FlightCall& other) const { return terms() == other.terms(); }
};

/// A call that waits for long.
struct FlightWait {
  std::uint64_t turn = 0;  ///< Never the same twice.
  Clock::time_point since{};
  int whom = -1;  ///< A rank of the world; -1: any.
  FlightCall call;
};

/// A communicator, also one that has ended, until its place in the ring was wanted for another.
struct FlightGroup {
  bool ended = false;
  std::uint64_t communicator = 0;
  std::uint64_t id = 0;     ///< The id whose hash that is.
  std::uint64_t begun = 0;  ///< Number of its last collective.
  /// Collectives with a root, and the digest of them; of a rank that lives they may not go
  /// together.
  std::uint64_t rooted = 0, digest = 0;
  bool heard = false;  ///< The program knows that ranks differ in their calls, or one was wrong.
  int rank = 0, size = 0;
  /// How long its calls may wait before they are told; 0: as the launcher has it, less: never.
  std::chrono::milliseconds stuck_after{0};
  std::string name;
};

/// The contents of a rank's ring at one moment.
struct FlightLog {
  bool ready = false;  ///< A process has begun to record.
  pid_t pid = 0;
  std::uint64_t process_started = 0;
  std::uint64_t begun = 0;  ///< Calls so far.
  std::vector<FlightGroup> groups;
  /// Communicators that have no place among the groups, or not any more: with their ids, sizes and
  /// counts alone.
  std::vector<FlightGroup> others;
  std::vector<FlightWait> waits;
  std::vector<FlightCall> calls;  ///< The last ones, in order.

  /// Null if it is not known, or not any more. A live communicator is preferred to an ended one.
  const FlightGroup* group_of(std::uint64_t communicator) const;
};

/// Reads a ring that others may write to meanwhile, with its last `calls` calls; records that
/// cannot be read whole are left out.
FlightLog read_flight(const FlightRing& ring, std::size_t calls = FlightRing::records_max);

/// The names in a ring for the numbers in its records.
struct FlightNames {
  const FlightRing& ring;

  std::string op(const FlightCall& call) const;
  std::string dtype(const FlightCall& call) const;
  std::string reduction(const FlightCall& call) const;
  /// "join's shadow ", "the reducer's "; empty for the program's own.
  std::string owner(const FlightCall& call) const;
  /// "who is here", "gradients of bucket 3"; empty for the program's own.
  std::string purpose(const FlightCall& call) const;
  /// "train.cpp:42"; empty where it is not known.
  std::string site(const FlightCall& call) const;
  /// The communicator's name, also when it has ended; empty where it is not known any more.
  std::string group(const FlightCall& call) const;
  /// "all_reduce #3", "join's all_reduce #3", "send to rank 1 (tag 7) of 'pair'".
  std::string label(const FlightCall& call) const;
  /// "all_reduce #3 (sum, f32, 8 elements)".
  std::string full(const FlightCall& call) const;
  /// The same with where it was made: "all_reduce #3 (sum, f32, 8 elements) [train.cpp:42]".
  std::string full_and_site(const FlightCall& call) const;
  /// "all_reduce #3 [train.cpp:42]".
  std::string label_and_site(const FlightCall& call) const;

 private:
  std::string bracketed_site(const FlightCall& call) const;
};

/// The text for a rank into whose ring nobody writes yet.
inline constexpr const char* no_communicator_text = "it has made no communicator yet";
/// A rank's activity by its ring, read at `now`: "in all_reduce #3 [train.cpp:42] for 7 s, waiting
/// for rank 2", "computing for 12 s, after barrier #2 [train.cpp:40]", "in no call yet".
std::string doing_text(const FlightRing& ring, const FlightLog& log, Clock::time_point now);

/// The call that the rank is in; of several threads' calls, the one that waits for the longest.
/// Null: none, as far as its record tells.
const FlightCall* call_under_way(const FlightLog& log);

/// The value for a rank that does as `text` says; `call` may be null.
SeenDoing seen_in(const FlightCall* call, std::string text);

/// Whether the process that records into the ring is stopped (SIGSTOP). False where that is not
/// known.
bool is_stopped(const FlightLog& log);

}  // namespace dlaunch
