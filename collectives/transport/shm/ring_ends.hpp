#pragma once

#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/transport.hpp"
#include "collectives/transport/shm/loan.hpp"
#include "collectives/transport/shm/stores.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dlaunch::transport {

/// Messages in a ring begin at multiples of this, so that a header lies in one cache line. A
/// payload of up to `inline_bytes_max` follows in the same line. For a longer payload its address
/// follows if it is lent, or 0: then the payload begins with the next line, and fills up its last
/// one.
constexpr std::size_t ring_line_bytes = 64;
constexpr std::size_t inline_bytes_max = ring_line_bytes - sizeof(Header);
static_assert(inline_bytes_max >= sizeof(std::uint64_t));
/// A shorter message's writer need not wait for the reader as long as the ring has room for it, and
/// two copies of it, one of which may be streamed, cost no more than a loan.
constexpr bool may_be_lent(std::uint64_t payload) { return payload > Ring::capacity / 2; }

/// Tells the reader that it has to look at the ring of that local rank.
void note_writer(RankBlock::Reader& reader, int from) noexcept;

/// The sending end of a ring. The other end is another process, so its words are checked before
/// they are believed. Not thread-safe.
class RingWriter final : public SendingEnd {
 public:
  /// All are borrowed; `to` and `from` are local ranks.
  RingWriter(Segment& segment, Wakeup& bell, std::size_t set, int to, int from);
  /// Nothing follows; what was written can still be read.
  ~RingWriter() override;
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  bool write(const Header& header, BytesView payload) noexcept override;
  bool write_some(const Header& header, BytesView payload, std::size_t& sent) noexcept override;
  std::size_t lent_bytes() const noexcept override { return is_lent_ ? lent_ : 0; }
  const char* end() const noexcept override;

 private:
  void look() noexcept;
  std::size_t room() noexcept;
  void copy_in(const std::byte* data, std::size_t bytes) noexcept;
  void put_header(const Header& header, BytesView payload, bool lends) noexcept;
  bool is_lent_still(std::size_t& sent, std::size_t total) noexcept;
  void publish() noexcept;

  Ring& ring_;
  RankBlock& receiver_;
  RankBlock::Reader& reader_;
  Wakeup& bell_;
  int to_;
  const bool is_fenced_;  ///< One of the two ends has no remote barriers (remote_barrier.hpp).
  std::uint64_t position_ = 0;  ///< Written, published or not.
  std::uint64_t read_ = 0;      ///< By the receiver, as far as known.
  bool lends_;                  ///< Until the receiver refuses it.
  bool is_lent_ = false;        ///< The message under way,
  std::size_t lent_ = 0;        ///< and the bytes of its payload.
  std::uint64_t loans_ = 0;     ///< Settled ones.
  StoreChoice stores_;
  bool nonsense_ = false;  ///< The receiver claims to have read bytes that were never written.
};

/// The receiving end of a ring, with the same caution. Not thread-safe.
class RingReader final : public ReceivingEnd {
 public:
  /// All are borrowed; `to` and `from` are local ranks, `from_rank` is the sender's in the world,
  /// and `is_sending` says whether this rank has messages to send at the time.
  RingReader(Segment& segment, Wakeup& bell, std::size_t set, int to, int from, int from_rank,
             const bool& is_sending);

  int from() const noexcept { return from_rank_; }
  bool ended() const noexcept override { return ended_; }
  const std::string& reason() const noexcept override { return reason_; }
  /// Whether there is something to read.
  bool has_news() const noexcept { return (ring_.written.load() & ~Ring::closed) != read_; }

  /// Whether pump() may find something to do, its sender's end included.
  bool needs_pump() const noexcept {
    return ring_.written.load() != read_ || under_ != Under::nothing;
  }
  bool pump(Inbox& inbox, const OnControl& on_control) override;
  /// Takes the next message if it is the one that is wanted and is there as a whole; nobody else
  /// must be waiting for it. Returns whether it did.
  bool take(Receive& receive);
  bool take_soon(Receive& receive, const LookLimit& limit) override;
  bool hand_on_whole(Inbox& inbox) override;
  /// False: a waiting rank spins on all rings anyway.
  bool is_worth_looking() const noexcept override { return false; }
  /// False: all that a process wrote before its end is already in its rings.
  bool has_left_something() const noexcept override { return !ended_ && has_news(); }

 private:
  enum class Under { nothing, data, control };

  std::size_t available();
  std::size_t look();
  const std::byte* at(std::uint64_t position) const noexcept {
    return ring_.data + position % Ring::capacity;
  }
  void copy_out(std::byte* to, std::size_t bytes) const noexcept;
  void take_whole(Receive& receive);
  bool is_whole_here(std::size_t there) const noexcept;
  bool begin(Inbox& inbox);
  bool move_data(Inbox& inbox);
  bool move_control(const OnControl& on_control);
  std::size_t move_payload(std::byte* to, std::size_t bytes);
  std::size_t take_lent(std::byte* to, std::size_t bytes);
  void settle_loan(std::uint64_t marks);
  void free_read() noexcept;
  void end(const char* why);

  Ring& ring_;
  Wakeup& bell_;
  int from_;
  int from_rank_;
  int spins_;                  ///< Before a receive goes the long way.
  std::uint64_t freed_ = 0;    ///< The part of what was read that the sender knows.
  std::uint64_t written_ = 0;  ///< As last seen, with the mark of the end.
  Under under_ = Under::nothing;
  Header header_;  ///< The header of the message under way.
  std::array<std::byte, inline_bytes_max> inline_{};
  std::size_t left_ = 0;  ///< Bytes of its payload still to come.
  const RankBlock& sender_;
  const bool& is_sending_;
  const bool shares_processors_;
  std::uint64_t lent_at_ = 0;   ///< The place of its payload, where that is lent.
  std::uint64_t borrowed_ = 0;  ///< Bytes borrowed so far.
  std::uint64_t loans_ = 0;     ///< Settled ones.
  Bytes control_;               ///< Its payload so far.
  bool ended_ = false;
  std::string reason_;
};

}  // namespace dlaunch::transport
