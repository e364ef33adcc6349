#pragma once

#include "collectives/transport/message/match_table.hpp"
#include "collectives/transport/message/message.hpp"
#include "runtime/base/intrusive_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dlaunch::transport {

/// A state that changes under the mesh's lock and that its owner may read without the lock. The
/// owner then sees everything done before the change, and nothing of the owner's is touched after
/// the last change.
template <class State>
class ObservedState {
 public:
  ObservedState(State state) noexcept : state_(state) {}  // NOLINT: it stands for the state.
  ObservedState(const ObservedState& other) noexcept : state_(State{other}) {}
  ObservedState& operator=(const ObservedState& other) noexcept { return *this = State{other}; }
  ObservedState& operator=(State state) noexcept {
    state_.store(state, std::memory_order_release);
    return *this;
  }
  operator State() const noexcept { return state_.load(std::memory_order_acquire); }

 private:
  std::atomic<State> state_;
};

/// A receive somebody waits for. Owned by whoever posted it; stays in place until it is no longer
/// pending() or was withdrawn.
struct Receive {
  /// answering: it has the message, and the sender is about to be told (is_synchronous).
  enum class State { waiting, filling, answering, done, mismatched, too_long };

  /// Not "= default", by which a Receive() would be cleared as a whole first.
  Receive() noexcept {}

  Kind kind = Kind::collective;
  std::uint64_t communicator = 0;
  int from = any_source;  ///< World rank; any_source for messages.
  int tag = any_tag;      ///< Messages only.
  Fingerprint expected;   ///< Collectives: all of it; messages: dtype and count.
  bool up_to = false;     ///< Messages only: one of fewer elements is taken, too.
  /// Messages only: it takes none, and is done once one is there that no other receive has taken.
  bool is_probe = false;
  std::span<std::byte> into;
  /// The ranks any_source stands for, as world ranks.
  std::span<const int> sources;

  ObservedState<State> state = State::waiting;
  int source = any_source;  ///< The rank whose message it took.
  Header header;            ///< The message's header, once it has met one.

  // The inbox's.
  std::uint64_t posted_at = 0;  ///< Its number among all that were posted.
  ListPlace<Receive> place = {};

  bool pending() const {
    const State now = state;
    return now == State::waiting || now == State::filling || now == State::answering;
  }
  /// The ranks one of which it waits for.
  std::span<const int> awaited() const {
    return from == any_source ? sources : std::span(&from, 1);
  }
  /// Neither source nor tag is "any".
  bool is_exact() const { return from != any_source && (kind != Kind::message || tag != any_tag); }
};

/// The key of a receive that is exact.
inline MatchKey key_of(const Receive& receive) noexcept {
  return {receive.kind, receive.from, receive.kind == Kind::message ? receive.tag : 0,
          receive.communicator};
}

/// Whether the receive would take the message, which has the expected contents and needs no
/// confirmation.
bool fits(const Receive& receive, const Header& header);
/// Whether a receive of that kind, communicator and tag is what the message is for.
bool is_meant_for(const Header& header, Kind kind, std::uint64_t communicator, int tag);
/// Whether they agree: on a collective, in the whole call; on a message, in its contents.
bool agrees(const Receive& receive, const Header& header);
/// The state of a receive whose message does not agree with it.
Receive::State refusal(const Receive& receive, const Header& header);
bool listens_to(const Receive& receive, int from);

}  // namespace dlaunch::transport
