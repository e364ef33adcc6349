#pragma once

#include "launcher/pmi/core/wire.hpp"

#include <dlaunch/store.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dlaunch::launcher::pmi {

// ---- What is to be done, in order. Ranks are local. ----

struct Send {
  int rank = 0;
  std::string bytes;
};
/// Every rank of the node is in this fence. Their new keys go to the other nodes, whose keys come
/// back by fenced().
struct Fence {
  std::uint64_t number = 0;
  Bytes pairs;
};
/// The rank is in MPI_Abort, and ends by itself, or is ended.
struct Abort {
  int rank = 0;
  int exit_code = 0;
};
/// A sentence for the user.
struct Say {
  std::string sentence;
};
/// The rank does not speak PMI; its connection is of no use.
struct HangUp {
  int rank = 0;
};
using Effect = std::variant<Send, Fence, Abort, Say, HangUp>;
using Effects = std::vector<Effect>;

struct Setting {
  std::string job;  ///< A word.
  int first_rank = 0;
  int local_size = 1;
  int world_size = 1;
  /// Keys that are there from the start: PMI_process_mapping.
  std::map<std::string, std::string, std::less<>> given = {};
};

/// Answers what the MPI ranks of one node ask by PMI: their places, keys, fences. The ranks of its
/// own node see a rank's keys at once, those of other nodes after a fence. Total: every command has
/// an answer. Pure; not thread-safe.
class NodeRanks {
 public:
  explicit NodeRanks(Setting setting);

  Effects received(int rank, std::string_view bytes);
  /// The fence is over. Takes the keys of each node, in any order; garbage makes the fence fail.
  Effects fenced(std::uint64_t number, const std::vector<Bytes>& pairs);
  /// The fence will never be over.
  Effects fence_failed(std::uint64_t number, std::string_view why);
  /// The rank's process has ended, and all that it has said was received.
  Effects ended(int rank);

  /// Whether the rank has begun PMI, as MPI_Init does.
  bool has_begun(int rank) const { return of(rank).stage != Stage::silent; }
  /// Whether the rank is between MPI_Init and MPI_Finalize.
  bool is_inside(int rank) const { return of(rank).stage == Stage::inside; }

 private:
  enum class Stage { silent, inside, finalized, aborted };
  struct Rank {
    Stage stage = Stage::silent;
    Version version = Version::one;
    std::string came = {};
    std::optional<Command> in_fence = std::nullopt;  ///< The command to be answered.
    /// A node attribute for which it waits.
    std::optional<Command> waits = std::nullopt;
    bool gone = false;
  };
  const Rank& of(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }
  Rank& of(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  std::string name(int rank) const;

  void carry_out(int rank, const Command& command);
  void carry_out_one(int rank, const Command& command);
  void carry_out_two(int rank, const Command& command);
  void begin(int rank, const Command& command);
  void put(int rank, const Command& command, std::string answer);
  void enter_fence(int rank, const Command& command);
  void look_for_gone();
  void break_fences(std::string why);
  void leave_fence();
  void node_attribute(int rank, const Command& command);
  void abort(int rank, int exit_code, std::string_view message);
  void refuse(int rank, const Command& command, std::string answer, std::string_view what);
  void answer(int rank, const Command& asked, Command command);
  void say(std::string sentence) { effects_.push_back(Say{std::move(sentence)}); }
  std::string_view look_up(std::string_view key, bool& found) const;

  const Setting setting_;
  std::vector<Rank> ranks_;
  std::map<std::string, std::string, std::less<>> keys_;
  std::map<std::string, std::string, std::less<>> node_attributes_;
  std::map<std::string, std::string> unsent_;  ///< Put since the last fence.
  std::size_t bytes_ = 0;                      ///< All that was put.
  std::uint64_t fence_ = 0;                    ///< The number of the next fence.
  bool is_out_ = false;  ///< Every rank is in the fence, and the other nodes are awaited.
  std::string broken_;   ///< Why no fence can be passed any more; empty: they can.
  Effects effects_;      ///< The effects of the call being answered.
};

/// "rank 3 called MPI_Abort, code 2: no data", "rank 3: MPI_Comm_spawn is refused: ...".
std::string abort_text(std::string_view rank, int exit_code, std::string_view message);
std::string refusal_text(std::string_view rank, std::string_view what);

/// The contents of a fence's message.
Bytes packed(const std::map<std::string, std::string>& pairs);
std::optional<std::map<std::string, std::string>> unpacked(BytesView bytes);

/// "(vector,(0,2,4),(2,1,3))", by which MPI knows which ranks share a node: each triple is a first
/// node, a number of nodes, and the ranks of each. Empty where it is longer than a value may be.
std::string process_mapping(const std::vector<int>& ranks_of_nodes);

}  // namespace dlaunch::launcher::pmi
