#pragma once

#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/message/message.hpp"
#include "runtime/base/buffer_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

namespace dlaunch::transport {

/// A receive somebody waits for. Owned by whoever posted it; stays in place until it is no longer
/// pending() or was withdrawn.
struct Receive {
  enum class State { waiting, filling, done, mismatched };

  Kind kind = Kind::collective;
  std::uint64_t communicator = 0;
  int from = any_source;  ///< World rank; any_source for messages.
  int tag = any_tag;      ///< Messages only.
  Fingerprint expected;   ///< Collectives: all of it; messages: dtype and count.
  std::span<std::byte> into;
  /// The ranks any_source stands for, as world ranks.
  std::span<const int> sources;

  State state = State::waiting;
  int source = any_source;  ///< The rank whose message it took.
  Header header;            ///< That message's, once it is not waiting any more.

  bool pending() const { return state == State::waiting || state == State::filling; }
};

/// Whether the receive would take the message, and whether that holds what is expected.
bool fits(const Receive& receive, const Header& header);

/// Brings arriving messages and posted receives together. Pure: no socket, no clock. A message that
/// nobody waits for yet is parked, up to a limit per source; beyond it the source is held: its
/// connection is not read until there is room or a receive for it. Not thread-safe.
class Inbox {
 public:
  /// `parked_bytes_max` is for each source.
  explicit Inbox(std::size_t parked_bytes_max = 16u << 20) : parked_bytes_max_(parked_bytes_max) {}

  /// Takes a parked message at once if one fits.
  void post(Receive& receive);
  /// Afterwards the receive and its buffer are not touched any more; a message half-received into
  /// it is read to its end and dropped.
  void withdraw(Receive& receive);

  /// Nobody waits for anything, and nothing of this rank is parked or under way: a receive may take
  /// the next message straight from its receiving end.
  bool is_clear(int from) const {
    if (!posted_.empty()) return false;
    const Source& s = source(from);
    return !s.active && s.parked.empty();
  }
  /// It did.
  void note_taken(int from, const Header& header) { source(from).last_seen = header; }
  /// A receive of at least so many bytes waits for a message of this rank, and of no other.
  bool awaits(int from, std::size_t bytes) const;

  // ---- What the receiving end of `from` does. ----

  /// A data message begins; its payload follows through room and advance.
  void begin(int from, const Header& header);
  /// Room for the next bytes of the payload; empty while held, and when no payload is due.
  std::span<std::byte> room(int from);
  /// `bytes` were written where room said.
  void advance(int from, std::size_t bytes);
  /// A message has begun and is not complete.
  bool is_receiving(int from) const { return source(from).active; }
  bool is_held(int from);
  /// A message has begun, and nobody takes it.
  bool is_stalled(int from) const {
    const Source& s = source(from);
    return s.active && s.target == nullptr && !s.parking && !s.dropping;
  }
  /// Copies a whole message in, without limit: what a rank sends to itself.
  void deliver(int from, const Header& header, BytesView payload);

  /// The header of the first message a receive with these arguments would take, and its source.
  std::optional<std::pair<int, Header>> peek(std::uint64_t communicator, int from, int tag,
                                             std::span<const int> sources) const;
  /// The source and header of the first parked message of a collective of that communicator which
  /// `is_it`; looks at all.
  std::optional<std::pair<int, Header>> find_parked(
      std::uint64_t communicator, const std::function<bool(const Header&)>& is_it) const;
  /// The last data message that began from this rank.
  const std::optional<Header>& last_seen(int from) const { return source(from).last_seen; }

 private:
  struct Parked {
    Header header;
    std::uint64_t arrival = 0;
    BufferPool::Buffer data;
  };
  struct Source {
    // The message under way.
    bool active = false;
    Header header;
    std::uint64_t arrival = 0;
    std::size_t got = 0;
    Receive* target = nullptr;  ///< Its payload goes there,
    bool parking = false;       ///< or into parked.back(),
    bool dropping = false;      ///< or nowhere. None of the three: held.

    std::list<Parked> parked;
    std::size_t parked_bytes = 0;
    std::optional<Header> last_seen;
  };

  Source& source(int from) { return sources_.get(from); }
  const Source& source(int from) const {
    const Source* known = sources_.find(from);
    return known != nullptr ? *known : unknown_;
  }
  bool try_take(Receive& receive, int from);
  std::optional<int> first_arrival(const Receive& receive) const;
  void finish(Source& s);

  std::size_t parked_bytes_max_;
  BufferPool buffer_pool_;  ///< Room for parked messages; outlives them.
  ByRank<Source> sources_;  ///< The ranks from which something has come.
  Source unknown_;          ///< Stands for the others.
  std::list<Receive*> posted_;
  std::vector<std::byte> drain_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace dlaunch::transport
