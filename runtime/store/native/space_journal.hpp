#pragma once

#include "runtime/store/core/change_log.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::store {

/// The contents of a namespace when its last server ended.
struct SpaceContents {
  struct Key {
    std::string key;
    Bytes value;
    std::uint64_t owner = 0;  ///< 0: not leased.
    std::chrono::milliseconds lease{};
  };
  struct Round {
    bool gathers = false;
    std::string name;
    std::uint64_t round = 0;
    std::shared_ptr<const Bytes> block;
    std::string too_big;
  };
  /// The answer to a change, so that a client that repeats the change learns that it was carried
  /// out.
  struct Answer {
    std::uint64_t session = 0;
    std::uint64_t request = 0;
    wire::Type type{};
    Bytes payload;
  };
  std::vector<Key> keys;
  std::vector<std::pair<std::string, Bytes>> entries;  ///< Of queues, the first first.
  std::vector<Round> rounds;
  std::vector<Answer> answers;  ///< Of each session in the order in which they were given.
};

/// Keeps one namespace: its changes, and the answers to them, in the order in which they are made.
/// A change and its answer are kept together or not at all.
class SpaceJournal : public ChangeLog {
 public:
  virtual void answered(std::uint64_t session, std::uint64_t request, wire::Type type,
                        BytesView payload) = 0;
  /// The session will not come back: its answers may go.
  virtual void forgot(std::uint64_t session) = 0;
  /// The namespace has ended: nothing of it is needed any more.
  virtual void dropped() = 0;
  /// Why no change can be kept now; empty: it can.
  virtual std::string refusal() const = 0;
};

/// A namespace that outlives its server.
struct KeptSpace {
  SpaceContents contents;
  std::unique_ptr<SpaceJournal> journal;  ///< Null: nothing is kept.
};

}  // namespace dlaunch::store
