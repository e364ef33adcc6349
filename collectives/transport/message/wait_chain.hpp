#pragma once

#include "collectives/transport/message/message.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::transport {

/// A rank that waits for one other rank in a call.
struct WaitLink {
  int rank = -1;           ///< A rank of the world, as everywhere here.
  std::uint64_t turn = 0;  ///< Tells the rank's waits apart.
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;  ///< 0: a message.
  std::string call;            ///< "barrier #2 [train.cpp:42]".

  bool in_call_of(const WaitLink& other) const {
    return communicator == other.communicator && sequence == other.sequence && call == other.call;
  }
};

/// A chain of ranks each of which waits for the next. It travels from each rank to the one that
/// this rank waits for. When it reaches a rank that it already holds, the ranks from there on wait
/// for each other (K. M. Chandy, J. Misra, L. M. Haas, "Distributed Deadlock Detection", ACM TOCS 1
/// (2), 1983). Data may still have been on its way, so the chain goes around once more before it
/// counts: in the other direction, from each rank to the one that waits for it, behind all data
/// sent before. A plain value.
struct WaitChain {
  enum class Stage : std::uint16_t {
    found = 1,  ///< It grows.
    again,      ///< A ring: each rank checks whether it still waits once all data has come.
    certain,    ///< All ranks still waited.
  };
  Stage stage = Stage::found;
  std::vector<WaitLink> links;

  /// The place of that rank's link; links.size() if it has none.
  std::size_t place_of(int rank) const;
  /// Whether all are in one call, which will then go on.
  bool is_one_call() const;
};

/// nullopt: longer than a control message may be.
std::optional<Bytes> encode(const WaitChain& chain);
std::optional<WaitChain> decode_chain(BytesView payload);

/// The sentence for a ring: "the ranks wait for each other: ranks 3, 2 are in barrier #2 [a.cpp:40]
/// and wait for rank 0; rank 0 is in ...".
std::string to_string(const WaitChain& ring);

}  // namespace dlaunch::transport
