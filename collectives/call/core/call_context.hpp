#pragma once

#include "collectives/transport/message/message.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The description of a call, and its names in sentences.
namespace dlaunch {

/// The ranks of one communicator.
struct Group {
  std::string name;
  std::uint64_t id = 0;
  int rank = 0;
  std::vector<int> world_ranks;  ///< This communicator's ranks, in its order.

  int size() const { return static_cast<int>(world_ranks.size()); }
  int world_rank(int rank_here) const { return world_ranks[static_cast<std::size_t>(rank_here)]; }
  int own_world_rank() const { return world_rank(rank); }
  /// The ranks that this one asks and tells directly: all others, or, of many, those at distances
  /// of powers of two, which pass it on. World ranks.
  std::vector<int> others() const;
  /// -1 if it is not in it.
  int rank_of(int world_rank) const;
  /// "rank 2", "rank 1 (rank 5 of the world)".
  std::string name_of(int world_rank) const;
};

/// The facts about one call that sentences use. Borrows; a value.
struct CallContext {
  const Group& group;
  const transport::Fingerprint& fingerprint;
  Clock::duration timeout{};
  CallSite site;
  // A message's: the rank here.
  int peer = any_source;
  int tag = 0;
  /// The program's name for the call, as "ssend", where it is not the operation's.
  const char* name = nullptr;

  bool is_message() const noexcept { return transport::is_message(fingerprint.op); }
  /// "all_reduce #3", "send to rank 1 (tag 7)", with the communicator's name unless "world".
  std::string label() const;
  /// The same with type, count, root and reduction of a collective.
  std::string full_label() const;
  /// "rank 2", the one that makes the call.
  std::string me() const { return "rank " + std::to_string(group.rank); }
  /// " [train.cpp:42]", empty where the call does not know.
  std::string where() const;
  /// The answer to ranks that ask what this one does; `whom`: the world rank it waits for, or -1.
  transport::Doing doing(int whom) const;
};

/// "all_reduce #3".
std::string short_text(const transport::Fingerprint& call);
/// "all_reduce #3 (sum, f32, 8 elements)", "broadcast #1 (i64, 1 element, root 0)".
std::string to_string(const transport::Fingerprint& call);
/// "barrier #2 of 'pair', waiting for rank 1".
std::string to_string(const transport::Doing& doing);
/// "rank 1 aborted the communicator [watchdog.cpp:7]".
std::string aborted_text(int rank, const CallSite& site);
/// "train.cpp:42", empty where it is not known.
std::string place_of(const CallSite& site);
/// " [train.cpp:42]", empty where it is not known.
std::string place_text(const CallSite& site);
std::string place_text(const std::string& place);

}  // namespace dlaunch
