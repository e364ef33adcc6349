#pragma once

#include <dlaunch/error.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The judgement of which rank is to blame when a job's ranks fail. The facts come from the ranks
/// themselves, their agents and the rendezvous, in any order; judge() is the only place that weighs
/// them. Pure. Ranks are those of the world.
namespace dlaunch {

/// Says whose fault it was that a call failed, as the calling rank tells it.
enum class Fault : std::uint8_t {
  own,        ///< Its own; or nobody's that it knows.
  lost,       ///< The fault of ranks that are gone.
  absent,     ///< The fault of ranks that did not come in time.
  disagreed,  ///< The fault of ranks that made another call under the same number.
  arguments,  ///< The fault of a rank that gave its call wrong arguments.
  gave_up,    ///< The fault of a rank that called abort(), or whose own code failed in the call.
};
inline constexpr Fault fault_last = Fault::gave_up;

/// A rank's call, as a number that is the same for the same call.
struct Vote {
  int rank = 0;
  std::uint64_t call = 0;

  bool operator==(const Vote&) const = default;
};

/// The call that ranks of one node made, the first of which is named; known when they have ended.
struct Count {
  Vote first;
  std::uint64_t ranks = 1;
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
};

/// A rank's report about its failed call.
struct Claim {
  /// The most ranks, and votes, that are sent.
  static constexpr std::size_t ranks_max = 16;
  static constexpr std::size_t doing_bytes_max = 512;

  Fault fault = Fault::own;
  std::vector<int> ranks = {};  ///< The ranks it blames; empty if it was told no name.
  /// The call about which ranks disagree, and the call that each made there, as far as the rank
  /// knows.
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  std::vector<Vote> votes = {};
  /// The last seen activity of the first absent rank, or why the first lost one is gone.
  std::string doing = {};

  bool operator==(const Claim&) const = default;
};

/// The facts about one rank that did not simply go on.
struct Fact {
  enum class End : std::uint8_t {
    running,  ///< It lives, or ended because it was told to.
    left,     ///< It exited with 0, by itself.
    failed,   ///< It exited otherwise, or died, by itself.
  };
  int rank = 0;
  End end = End::running;
  int exit_code = 0;
  int signal = 0;  ///< The one that ended it, else 0.
  bool core_dumped = false;
  Clock::time_point when{};  ///< The time of its end, or of the words with which it began to end.
  std::optional<Claim> claim = std::nullopt;

  bool failed() const { return end == End::failed; }
  /// Whether a signal ended it that comes from outside, or from a wrong address. No rank kills
  /// itself for the loss of a peer: it had gone on, and died of something else.
  bool was_struck() const;
  /// Whether it failed in a call by the fault of others, as it says itself.
  bool blames_others() const {
    return claim && claim->fault != Fault::own && claim->fault != Fault::disagreed;
  }
  /// As a shell says it: its own code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
  bool operator==(const Fact&) const = default;
};

/// All facts about the ranks of one epoch, or of one node.
struct Facts {
  std::map<int, Fact> ranks;  ///< Those that failed, or claim something.
  std::map<int, int> left;    ///< Ranks that exited with 0: how many from each first one on.
  std::map<int, int> lost;    ///< Ranks that were lost with their node, in the same way.
  std::vector<Count> counts;  ///< Counts for calls in dispute, beside the claims' votes.

  /// A later range may contain earlier ones.
  void add_left(int first, int count = 1);
  bool has_left(int rank) const;
  bool is_lost(int rank) const;
};

struct Verdict {
  enum class Kind : std::uint8_t {
    failed,     ///< It failed by itself.
    left,       ///< It exited with 0 while others waited for it.
    node_lost,  ///< Its node is gone.
    lost,       ///< The others lost it while it ran.
    absent,     ///< It did not come in time.
    disagreed,  ///< One, against most: it made another call. Several: nobody knows who is right.
    arguments,  ///< It gave its call wrong arguments.
    gave_up,    ///< It called abort(), or its own code failed in a call.
  };
  static constexpr Kind kind_last = Kind::gave_up;
  Kind kind = Kind::failed;
  std::vector<int> ranks;  ///< Ascending; never empty.
  int exit_code = 1;       ///< The job's.
  // The first rank's end, where it ended by itself.
  int code = 0;
  int signal = 0;
  bool core_dumped = false;
  /// The last seen activity of the first rank, if it was absent; why it was gone, if it was lost.
  std::string doing;

  int rank() const { return ranks.front(); }
  /// A rank that waited for another, which had returned or was lost, may have waited in a call that
  /// the other had made with another root.
  bool nobody_failed() const;
  bool operator==(const Verdict&) const = default;
};

/// The root cause; nullopt where nobody failed. The order in which the facts became known changes
/// nothing. These rules hold (docs/operations.md):
///
/// * A rank whose claim blames others is their victim, and so on from them. The end of such a chain
///   is a cause.
/// * Among causes a rank that failed by itself comes first, the earliest of them. One that died of
///   a signal from outside comes before one that exited within a second of it.
/// * If ranks disagree on a call, those are wrong that differ from more than half of all whose call
///   is known, including those that have returned from it. Without such a majority all of those
///   are named that told of it.
/// * A chain that closes has no end: there the more certain of two claims counts, and what somebody
///   lost is the least certain.
/// * The exit code is the cause's own. If the cause did not fail itself, it is the code of the
///   first rank that failed for it.
std::optional<Verdict> judge(const Facts& facts);

/// Whether the cause failed, but says itself that it lost another rank, which may be elsewhere.
bool lost_somebody(const Verdict& cause, const std::optional<Claim>& of_cause);

/// Those who may wait for a rank that left are told this.
inline constexpr const char* left_text = "exited with 0 before the others";
/// "rank 3 on h2".
using NameOfRank = std::function<std::string(int rank)>;
/// "rank 3 on h2 was killed by SIGKILL", "rank 1 on h2 did not come: stopped by a signal".
std::string sentence_of(const Verdict& verdict, const NameOfRank& name);

}  // namespace dlaunch
