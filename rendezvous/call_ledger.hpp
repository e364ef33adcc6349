#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// What one rank has called in one communicator, as far as all its ranks must have called the same
/// and may have returned without noticing that they did not: the calls with a root. A plain value.
struct CommunicatorCalls {
  std::uint64_t communicator = 0;
  std::string name;          ///< The communicator's.
  int rank = 0;              ///< Of the world.
  std::uint64_t begun = 0;   ///< Number of its last collective.
  std::uint64_t count = 0;   ///< Of those with a root.
  std::uint64_t digest = 0;  ///< Of all of them: equal where the calls are.
  /// The program knows that ranks differ in their calls, or that one was wrong.
  bool heard = false;
  /// What this rank's node has found among its ranks; empty: they agree.
  std::string disagreement = {};
  /// One of the last calls, of which records are left.
  struct Call {
    std::uint64_t sequence = 0;  ///< Its number among all of the communicator's collectives.
    std::uint64_t digest = 0;
    std::string text;  ///< "broadcast #3 (f32, 1 element, root 0) [train.cpp:42]".
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> last = {};  ///< In order.

  bool operator==(const CommunicatorCalls&) const = default;
};

/// The calls of an epoch's ranks when they have ended: finds those in which they do not agree.
/// Pure. It keeps one rank's calls for each communicator, with which all others' are compared.
class CallLedger {
 public:
  /// Nothing is kept of more communicators.
  static constexpr std::size_t communicators_max = 4096;

  /// The same may be added again.
  void add(CommunicatorCalls calls);
  /// "the ranks do not agree: rank 0 made broadcast #3 (f32, 1 element, root 0) [train.cpp:42], but
  /// rank 1 made broadcast #3 (f32, 1 element, root 1) [train.cpp:42]"; nullopt where they agree,
  /// or the program has heard of it in one of its calls.
  std::optional<std::string> disagreement() const;
  /// What it keeps, with what it found.
  std::vector<CommunicatorCalls> kept() const;

 private:
  std::map<std::uint64_t, CommunicatorCalls> communicators_;
};

}  // namespace dlaunch::rendezvous
