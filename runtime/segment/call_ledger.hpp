#pragma once

#include "runtime/base/verdict.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// The calls with a root that one rank has made in one communicator. Ranks may return from such
/// calls without noticing that they differ. A plain value.
struct CommunicatorCalls {
  std::uint64_t communicator = 0;
  std::string name;          ///< The communicator's; empty where it is not known any more.
  int rank = 0;              ///< A rank of the world.
  std::uint32_t ranks = 1;   ///< How many of its node's ranks made the same calls, this one first.
  std::uint64_t begun = 0;   ///< Number of its last collective.
  std::uint64_t count = 0;   ///< The number of calls with a root.
  std::uint64_t digest = 0;  ///< A digest of these calls, equal if they are.
  /// Whether the program has heard that ranks differ in their calls, or that one was wrong.
  bool heard = false;
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

/// The calls of an epoch's ranks when they have ended: finds those in which they do not agree, and
/// the ranks that differ from most. Pure. Ranks that made the same calls are kept as one of them.
class CallLedger {
 public:
  /// Nothing is kept of more communicators.
  static constexpr std::size_t communicators_max = 4096;
  /// The most different histories of one communicator; if there are more, no majority is known.
  static constexpr std::size_t histories_max = 8;

  /// The same may be added again.
  void add(CommunicatorCalls calls);
  /// "the ranks do not agree: rank 1 made broadcast #3 (f32, 1 element, root 1) [train.cpp:42], but
  /// rank 0 and 2 others made broadcast #3 (f32, 1 element, root 0) [train.cpp:42]", the ranks that
  /// differ from most first; nullopt where all agree, or the program has heard of it in a call.
  std::optional<std::string> disagreement() const;
  /// The rank that disagreement() names first.
  std::optional<int> odd_rank() const;
  /// The calls that ranks made there, as far as records of them are left.
  std::vector<Count> counts(std::uint64_t communicator, std::uint64_t sequence) const;
  /// All that it keeps: the calls of several ranks, for a communicator in which they do not agree.
  std::vector<CommunicatorCalls> kept() const;

 private:
  struct History {
    CommunicatorCalls calls;  ///< Those of the lowest rank that told.
    /// How many ranks made exactly these calls, by the first of them. A rank that made only some of
    /// them agrees, and is not counted.
    std::map<int, std::uint32_t> told;

    std::uint64_t count() const;
  };
  struct Communicator {
    std::vector<History> histories;
    bool heard = false;
    bool has_more = false;  ///< There were too many histories.
  };
  struct Difference {
    int rank = 0;  ///< The one named first.
    std::string text;
  };
  static Difference find_difference(const Communicator& communicator);
  std::optional<Difference> first_difference() const;

  std::map<std::uint64_t, Communicator> communicators_;
};

}  // namespace dlaunch
