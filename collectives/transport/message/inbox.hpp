#pragma once

#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/message/match_table.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/receive.hpp"
#include "runtime/base/intrusive_list.hpp"
#include "runtime/base/pools.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

namespace dlaunch::transport {

/// Brings arriving messages and posted receives together. Pure: no socket, no clock. A message that
/// nobody waits for yet is parked, up to a limit per source; beyond it the source is held: its
/// connection is not read until there is room or a receive for it, or somebody waits for what may
/// lie behind it. Not thread-safe.
class Inbox {
 public:
  /// `parked_bytes_max` is for each source.
  explicit Inbox(std::size_t parked_bytes_max = 16u << 20) : parked_bytes_max_(parked_bytes_max) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox();

  /// Takes a parked message at once if one fits; a probe finds it.
  void post(Receive& receive);
  /// A receive that has a message whose sender waits for the receiver, one at a time; null when
  /// there are no more. The caller tells the sender, then completes the receive.
  Receive* next_answering();
  bool has_answering() const { return !answering_.empty(); }
  /// Afterwards the receive and its buffer are not touched any more; a message half-received into
  /// it is read to its end and dropped.
  void withdraw(Receive& receive);

  /// Whether nobody waits for this rank and nothing of it is parked or under way, so that a receive
  /// may take the next message straight from its receiving end.
  bool is_clear(int from) const {
    if (!posted_for_any_.empty()) return false;
    const Source& s = source(from);
    return !s.active && s.awaited == 0 && s.parked.empty();
  }
  /// The same of all ranks.
  bool is_clear() const {
    return posted_for_any_.empty() && posted_.empty() && parked_.empty() && under_way_ == 0;
  }
  /// The receives that wait for messages of this rank alone.
  std::size_t awaited(int from) const { return source(from).awaited; }
  /// Takes a parked message that is there as a whole, and with which the receive agrees, where one
  /// is the first that fits; else posts nothing. A parked message is wanted by no posted receive.
  bool take_parked(Receive& receive);
  /// Whether there are posted receives.
  bool is_awaited() const;
  /// The receive that takes this message of `from`, which is there as a whole, and is posted no
  /// more; null if none does, or another is under way. The caller fills and completes it.
  Receive* claim(int from, const Header& header);
  /// Notes that a receive took this message so.
  void note_taken(int from, const Header& header) { source(from).last_seen = header; }
  /// The size from which messages are worth reading straight to their destination.
  static constexpr std::size_t long_bytes = 16u << 10;
  /// Whether a receive of that many bytes waits for this rank alone.
  bool awaits_long(int from) const { return source(from).long_awaited > 0; }

  // ---- What the receiving end of `from` does. ----

  /// A data message begins; its payload follows through room and advance.
  void begin(int from, const Header& header);
  /// Room for the next bytes of the payload; empty while held, and when no payload is due.
  std::span<std::byte> room(int from);
  /// `bytes` were written where room said.
  void advance(int from, std::size_t bytes);
  /// Whether a message has begun and is not complete.
  bool is_receiving(int from) const { return source(from).active; }
  bool is_held(int from);
  /// Somebody waits and has not found what they need, from one of these ranks if there are any. A
  /// message at which one of them is held is parked even beyond the limit, as what lies behind it
  /// may be awaited; so is one of each rank to which a posted receive or probe listens. So a
  /// program may receive in any order, and wait for its receives in any order, whatever the sizes
  /// are; it then needs the memory.
  void look_past(std::span<const int> ranks);
  /// Whether a message has begun and nobody takes it.
  bool is_stalled(int from) const { return is_stalled(source(from)); }
  /// Copies a whole message in, without limit: what a rank sends to itself.
  void deliver(int from, const Header& header, BytesView payload);

  /// The header of the first message a receive with these arguments would take, and its source.
  std::optional<std::pair<int, Header>> peek(std::uint64_t communicator, int from, int tag,
                                             std::span<const int> sources) const;
  /// A message that was set apart.
  struct Apart {
    int from = -1;
    std::uint64_t arrival = 0;  ///< Its number among all that came.
    Header header;
  };
  /// Sets that message apart: no receive takes it but take_apart's, until it was put back.
  std::optional<Apart> set_apart(std::uint64_t communicator, int from, int tag,
                                 std::span<const int> sources);
  /// For a receive that fits, in place of post.
  void take_apart(Receive& receive, const Apart& message);
  /// Puts it back to its place: the first receive that waits for it takes it.
  void put_back(const Apart& message);
  /// This communicator has ended, and has no receives any more: what has come for it and what still
  /// comes is dropped, save messages that are set apart. The last thousand are remembered.
  void forget(std::uint64_t communicator);
  /// The source and header of the first parked message of a collective of that communicator which
  /// `is_it`; looks at all.
  std::optional<std::pair<int, Header>> find_parked(
      std::uint64_t communicator, const std::function<bool(const Header&)>& is_it) const;
  /// The last data message that began from this rank.
  const std::optional<Header>& last_seen(int from) const { return source(from).last_seen; }

 private:
  /// A message that nobody waits for yet.
  struct Parked {
    /// A payload up to this size lies in it, a longer one in memory of the pool.
    static constexpr std::size_t near_bytes = 64;

    int from = -1;
    Header header;
    std::uint64_t arrival = 0;
    bool is_apart = false;
    BufferPool::Buffer far;
    std::array<std::byte, near_bytes> near;
    ListPlace<Parked> by_source, by_key;

    std::span<std::byte> bytes() {
      if (header.bytes > near_bytes) return far.bytes();
      return std::span(near).first(static_cast<std::size_t>(header.bytes));
    }
    friend MatchKey key_of(const Parked& parked) noexcept {
      return transport::key_of(parked.header, parked.from);
    }
  };
  using ParkedList = IntrusiveList<Parked, &Parked::by_source>;
  struct Source {
    // The message under way.
    bool active = false;
    Header header;
    std::uint64_t arrival = 0;
    std::size_t got = 0;
    Receive* target = nullptr;  ///< Its payload goes there,
    bool parking = false;       ///< or into the last that is parked,
    bool dropping = false;      ///< or nowhere. If none of the three: held.
    bool is_apart = false;      ///< Whether the held message is set apart.
    bool is_passed = false;     ///< Whether the held message is looked past.

    ParkedList parked;
    std::size_t parked_bytes = 0;
    std::size_t awaited = 0;       ///< Posted receives for messages of this rank alone;
    std::size_t long_awaited = 0;  ///< for long ones.
    std::optional<Header> last_seen;
  };
  /// A message that has come; `parked` is null for one that is held.
  struct Arrival {
    int from;
    std::uint64_t number;
    Parked* parked;
  };

  Source& source(int from) { return sources_.get(from); }
  const Source& source(int from) const {
    const Source* known = sources_.find(from);
    return known != nullptr ? *known : unknown_;
  }
  static bool is_stalled(const Source& s) {
    return s.active && s.target == nullptr && !s.parking && !s.dropping;
  }
  const Header& header_of(const Arrival& arrival) const {
    return arrival.parked != nullptr ? arrival.parked->header : source(arrival.from).header;
  }
  void answer_probes(const Arrival& arrival);
  template <class List>
  static bool listens(const List& list, int rank);
  void find(Receive& probe, const Arrival& arrival);
  void list(Receive& receive);
  void list_exact(Receive& receive, Source& s);
  void unlist(Receive& receive) noexcept;
  Receive* first_wanting(int from, const Header& header) const;
  std::optional<Arrival> first_arrival(const Receive& receive) const;
  Parked* first_parked(const Receive& receive, int from, const Source& s) const;
  Arrival join(const Apart& message);
  void complete(Receive& receive);
  bool take(Receive& receive, const Arrival& arrival);
  bool has_room(const Source& s) const;
  void park(Source& s, int from);
  void unpark(Source& s, Parked& parked) noexcept;
  void finish(Source& s);

  std::size_t parked_bytes_max_;
  BufferPool buffer_pool_;  ///< Room for parked messages; outlives them.
  ByRank<Source> sources_;  ///< The ranks from which something has come.
  Source unknown_;          ///< Stands for ranks from which nothing has come.
  MatchTable<Parked, &Parked::by_key> parked_;
  MatchTable<Receive, &Receive::place> posted_;
  IntrusiveList<Receive, &Receive::place> posted_for_any_;  ///< Those that are not exact.
  IntrusiveList<Receive, &Receive::place> probes_;          ///< Those that take nothing.
  std::vector<Receive*> answering_;                         ///< In the order of their completion.
  ParkedList spare_;  ///< Spare entries, so that parking allocates nothing.
  std::size_t spares_ = 0;
  std::uint64_t posts_ = 0;
  std::vector<std::byte> drain_;
  std::uint64_t arrivals_ = 0;
  std::size_t under_way_ = 0;  ///< Sources with a message that has begun and is not complete.
  // Communicators that have ended.
  std::unordered_set<std::uint64_t> forgotten_;
  std::deque<std::uint64_t> forgotten_in_order_;
};

}  // namespace dlaunch::transport
