#include "collectives/transport/shm/ring_ends.hpp"

#include "runtime/base/os/relax.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace dlaunch::transport {
namespace {

/// The pieces in which a long payload is published, so that reader and writer copy at the same
/// time.
constexpr std::size_t piece_bytes = 16u << 10;
/// The steps in which the writer learns of room: each costs both sides a cache line.
constexpr std::size_t freed_bytes = 32u << 10;
/// The bytes of one ring that are read before the others get their turn.
constexpr std::size_t turn_bytes_max = 1u << 20;
/// From this size on two processors that copy by the ring are faster than one that borrows.
constexpr std::size_t declined_bytes_min = 1u << 20;
/// Looks before a receive takes the long way; fewer where ranks share processors.
constexpr int spins_max = 512;
constexpr int spins_max_crowded = 16;

/// What a reader says of a loan beside the number of settled ones.
constexpr std::uint64_t loan_marks = Ring::declined | Ring::refused;

constexpr std::uint64_t up_to_line(std::uint64_t bytes) {
  return (bytes + ring_line_bytes - 1) / ring_line_bytes * ring_line_bytes;
}
constexpr std::uint64_t down_to_line(std::uint64_t bytes) {
  return bytes / ring_line_bytes * ring_line_bytes;
}

/// The size with the header.
constexpr std::size_t bytes_in_ring(std::size_t payload) {
  return ring_line_bytes + (payload > inline_bytes_max ? up_to_line(payload) : 0);
}

}  // namespace

void note_writer(RankBlock::Reader& reader, int from) noexcept {
  const auto bit = static_cast<unsigned>(from);
  reader.writers[bit / 64].fetch_or(std::uint64_t{1} << bit % 64);
}

// ---- Writing. ----

RingWriter::RingWriter(Segment& segment, Wakeup& bell, std::size_t set, int to, int from)
    : ring_(segment.ring(set, to, from)),
      receiver_(segment.rank(to)),
      reader_(receiver_.readers[set]),
      bell_(bell),
      to_(to),
      is_fenced_(receiver_.attached.load() != RankBlock::with_remote_barriers ||
                 segment.rank(from).attached.load() != RankBlock::with_remote_barriers),
      lends_(segment.rank(from).lender.pid.load() != 0) {
  note_writer(reader_, from);
}

RingWriter::~RingWriter() {
  ring_.written.store(position_ | Ring::closed);
  // The program may overwrite the lent memory after this, and not before.
  if (is_lent_) std::atomic_thread_fence(std::memory_order_seq_cst);
  bell_.ring_if_asleep(to_);
}

const char* RingWriter::end() const noexcept {
  if (nonsense_) return "it read what was never written to it";
  if (reader_.ended.load() == 0) return nullptr;
  // Its last word may be that it has read what was lent, which write_some() finds first.
  const bool was_read = is_lent_ && (ring_.loans.load() & ~loan_marks) != loans_;
  return was_read ? nullptr : closed_text;
}

void RingWriter::look() noexcept { read_ = down_to_line(ring_.read.load()); }

/// Always whole lines.
std::size_t RingWriter::room() noexcept {
  const std::uint64_t used = position_ - read_;
  if (used <= Ring::capacity) return Ring::capacity - used;
  nonsense_ = true;
  return 0;
}

void RingWriter::copy_in(const std::byte* data, std::size_t bytes) noexcept {
  const std::size_t at = position_ % Ring::capacity;
  const std::size_t first = std::min(bytes, Ring::capacity - at);
  copy_for_reader(stores_, ring_.data + at, data, first);
  if (first < bytes) std::memcpy(ring_.data, data + first, bytes - first);
  position_ += up_to_line(bytes);
}

/// The next message's line, which its reader has read, comes to this core meanwhile.
static void prefetch_to_write(const std::byte* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*line));  // The builtin emits it for some processors only.
#else
  __builtin_prefetch(line, 1);
#endif
}

/// Copies word by word: see make_header. The accesses are atomic lest the compiler join them.
static void copy_words(std::byte* line, const Header& header) noexcept {
  auto* to = reinterpret_cast<Word*>(line);
  for (const Word& word : std::span(reinterpret_cast<const Word*>(&header), sizeof header / 8)) {
    __atomic_store_n(to++, __atomic_load_n(&word, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
}

void RingWriter::put_header(const Header& header, BytesView payload, bool lends) noexcept {
  std::byte* line = ring_.data + position_ % Ring::capacity;
  copy_words(line, header);
  if (payload.size() > inline_bytes_max) {
    const std::uint64_t place = lends ? reinterpret_cast<std::uintptr_t>(payload.data()) : 0;
    std::memcpy(line + sizeof header, &place, sizeof place);
  } else if (!payload.empty()) {
    std::memcpy(line + sizeof header, payload.data(), payload.size());
  }
  position_ += ring_line_bytes;
}

/// Either this rank sees the sleeper, or the sleeper sees the data. Where possible, a receiver that
/// goes to sleep executes the fence for both.
void RingWriter::publish() noexcept {
  if (is_fenced_) {
    ring_.written.store(position_);
  } else {
    ring_.written.store(position_, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  const auto order = is_fenced_ ? std::memory_order_seq_cst : std::memory_order_relaxed;
  if (receiver_.asleep.load(order) != 0) [[unlikely]]
    bell_.ring_if_asleep(to_);
}

bool RingWriter::write(const Header& header, BytesView payload) noexcept {
  if (lends_ && may_be_lent(payload.size())) return false;
  const std::size_t needed = bytes_in_ring(payload.size());
  if (room() < needed) look();
  if (room() < needed) return false;
  put_header(header, payload, false);
  if (payload.size() > inline_bytes_max) {
    for (; payload.size() > piece_bytes; payload = payload.subspan(piece_bytes)) {
      copy_in(payload.data(), piece_bytes);
      publish();
    }
    copy_in(payload.data(), payload.size());
  }
  publish();
  prefetch_to_write(ring_.data + position_ % Ring::capacity);
  return true;
}

/// Settles the loan of the message under way; a refused one continues through the ring.
bool RingWriter::is_lent_still(std::size_t& sent, std::size_t total) noexcept {
  const std::uint64_t loans = ring_.loans.load();
  if ((loans & ~loan_marks) == loans_) return true;
  is_lent_ = false;
  nonsense_ = nonsense_ || (loans & ~loan_marks) != ++loans_;
  lends_ = (loans & Ring::refused) == 0;
  if ((loans & loan_marks) == 0) sent = total;
  return nonsense_;
}

bool RingWriter::write_some(const Header& header, BytesView payload, std::size_t& sent) noexcept {
  const std::size_t before = sent;
  const std::size_t total = sizeof header + payload.size();
  std::uint64_t published = position_;
  if (is_lent_ && is_lent_still(sent, total)) return false;
  while (sent < total) {
    if (room() < piece_bytes) look();
    const std::size_t there = room();
    if (there == 0) break;
    if (sent == 0) {
      is_lent_ = lends_ && may_be_lent(payload.size());
      lent_ = payload.size();
      put_header(header, payload, is_lent_);
      sent = payload.size() <= inline_bytes_max ? total : sizeof header;
      if (is_lent_) break;
      continue;
    }
    const std::size_t part = std::min({total - sent, there, piece_bytes});
    copy_in(payload.data() + (sent - sizeof header), part);
    sent += part;
    publish();
    published = position_;
  }
  if (position_ != published) publish();
  return sent != before;
}

// ---- Reading. ----

RingReader::RingReader(Segment& segment, Wakeup& bell, std::size_t set, int to, int from,
                       int from_rank, const bool& is_sending)
    : ReceivingEnd(segment.ring(set, to, from).written, Ring::closed),
      ring_(segment.ring(set, to, from)),
      bell_(bell),
      from_(from),
      from_rank_(from_rank),
      spins_(segment.oversubscribed() ? spins_max_crowded : spins_max),
      sender_(segment.rank(from)),
      is_sending_(is_sending),
      shares_processors_(segment.oversubscribed()) {
  const bool has_left = sender_.readers[set].ended.load() != 0;
  if (has_left && ring_.written.load() == 0) end(left_text);
}

void RingReader::end(const char* why) {
  ended_ = true;
  reason_ = why;
}

/// Bytes that were written and not read; looks again if there are none.
std::size_t RingReader::available() {
  const std::uint64_t known = (written_ & ~Ring::closed) - read_;
  return known > 0 ? known : look();
}

std::size_t RingReader::look() {
  written_ = ring_.written.load();
  const std::uint64_t end_of_it = written_ & ~Ring::closed;
  const std::uint64_t unread = end_of_it - read_;
  // The reader goes from line to line like the writer; otherwise it could overtake it.
  if (unread > Ring::capacity || end_of_it % ring_line_bytes != 0) {
    written_ = read_;
    end(no_message_text);
    return 0;
  }
  if (unread == 0 && (written_ & Ring::closed) != 0) end(closed_text);
  return unread;
}

void RingReader::copy_out(std::byte* to, std::size_t bytes) const noexcept {
  const std::size_t first = std::min(bytes, Ring::capacity - read_ % Ring::capacity);
  std::memcpy(to, at(read_), first);
  if (first < bytes) std::memcpy(to + first, ring_.data, bytes - first);
}

/// Tells the sender of its room.
void RingReader::free_read() noexcept {
  const std::uint64_t read = down_to_line(read_);
  if (read - freed_ < freed_bytes) return;
  freed_ = read;
  ring_.read.store(read);
  bell_.ring_if_asleep(from_);
}

bool RingReader::take(Receive& receive) {
  if (under_ != Under::nothing || ended_) return false;
  const std::size_t there = available();
  if (there < ring_line_bytes) return false;
  std::memcpy(&header_, at(read_), sizeof header_);
  if (!is_plausible(header_) || !fits(receive, header_) || !is_whole_here(there)) return false;
  take_whole(receive);
  return true;
}

/// Whether the next message, whose header was read, lies in the ring to its end. Its length comes
/// from outside: it is compared before anything is added to it.
bool RingReader::is_whole_here(std::size_t there) const noexcept {
  if (header_.bytes > Ring::capacity || bytes_in_ring(header_.bytes) > there) return false;
  if (!may_be_lent(header_.bytes)) return true;
  std::uint64_t lent_at = 0;
  std::memcpy(&lent_at, at(read_) + sizeof header_, sizeof lent_at);
  return lent_at == 0;
}

/// Whether the next message, whose header was read, is the wanted one.
void RingReader::take_whole(Receive& receive) {
  const std::size_t bytes = header_.bytes;  // That many are there, and fit.
  if (bytes <= inline_bytes_max) {
    if (bytes > 0) std::memcpy(receive.into.data(), at(read_) + sizeof header_, bytes);
    read_ += ring_line_bytes;
  } else {
    read_ += ring_line_bytes;
    copy_out(receive.into.data(), bytes);
    read_ += up_to_line(bytes);
  }
  free_read();
  receive.source = from_rank_;
  receive.header = header_;
  receive.state = Receive::State::done;
}

bool RingReader::take_soon(Receive& receive, const LookLimit& limit) {
  for (int i = 0; !has_news(); ++i) {
    if (i == spins_ || limit.is_over()) return false;
    relax();
  }
  return take(receive);
}

bool RingReader::hand_on_whole(Inbox& inbox) {
  if (under_ != Under::nothing || ended_) return false;
  const std::size_t there = available();
  if (there < ring_line_bytes) return false;
  std::memcpy(&header_, at(read_), sizeof header_);
  // The next message's line comes from the sender's cache while this one is matched.
  if (there > ring_line_bytes) __builtin_prefetch(at(read_ + ring_line_bytes));
  const bool is_data = header_.kind == Kind::collective || header_.kind == Kind::message;
  if (!is_plausible(header_) || !is_data || !is_whole_here(there)) return false;
  Receive* const receive = inbox.claim(from_rank_, header_);
  if (receive == nullptr) return false;
  take_whole(*receive);
  return true;
}

/// Reads a header, if there is one; its contents are not trusted.
bool RingReader::begin(Inbox& inbox) {
  if (available() == 0) return false;
  std::memcpy(&header_, at(read_), sizeof header_);
  std::memcpy(inline_.data(), at(read_) + sizeof header_, inline_.size());
  if (!is_plausible(header_)) {
    end(no_message_text);
    return true;
  }
  read_ += ring_line_bytes;
  free_read();
  left_ = header_.bytes;
  const bool is_data = header_.kind == Kind::collective || header_.kind == Kind::message;
  under_ = is_data ? Under::data : Under::control;
  lent_at_ = 0;
  if (left_ > inline_bytes_max) std::memcpy(&lent_at_, inline_.data(), sizeof lent_at_);
  if (lent_at_ != 0 && !(is_data && may_be_lent(left_))) {
    end(no_message_text);
    return true;
  }
  if (is_data) inbox.begin(from_rank_, header_);
  return true;
}

void RingReader::settle_loan(std::uint64_t marks) {
  lent_at_ = 0;
  ring_.loans.store(++loans_ | marks);
  bell_.ring_if_asleep(from_);
}

/// Copies lent data. A rank that sends nothing itself leaves half of the work of a long message to
/// the sender, which has a processor for it.
///
/// A writer that takes back its loan first says that nothing follows, so data that was read before
/// that is valid.
std::size_t RingReader::take_lent(std::byte* to, std::size_t bytes) {
  const std::uint64_t offset = header_.bytes - left_;
  const std::size_t part = std::min({bytes, left_, turn_bytes_max});
  if (offset == 0 && !is_sending_ && !shares_processors_ && header_.bytes >= declined_bytes_min) {
    settle_loan(Ring::declined);
    return 0;
  }
  const auto borrowed = offset == 0 ? borrow_first(sender_, lent_at_, {to, part})
                        : borrow(sender_, lent_at_ + offset, {to, part}) ? Borrowed::all
                                                                         : Borrowed::lost;
  if (borrowed == Borrowed::refused) {
    settle_loan(Ring::refused);
    return 0;
  }
  if (borrowed == Borrowed::lost) {
    end("its memory could not be read to the end of a message");
    return 0;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if ((ring_.written.load() & Ring::closed) != 0) {
    end(closed_text);
    return 0;
  }
  borrowed_ += part;
  left_ -= part;
  if (left_ == 0) settle_loan(0);
  return part;
}

std::size_t RingReader::move_payload(std::byte* to, std::size_t bytes) {
  if (lent_at_ != 0) return take_lent(to, bytes);
  std::size_t part = std::min(bytes, left_);
  if (header_.bytes <= inline_bytes_max) {
    std::memcpy(to, inline_.data() + (header_.bytes - left_), part);
  } else {
    part = std::min(part, available());
    copy_out(to, part);
    read_ += part;
    if (part == left_) read_ = up_to_line(read_);
    free_read();
  }
  left_ -= part;
  return part;
}

/// Moves payload; stops if the inbox holds the source, or no more was written.
bool RingReader::move_data(Inbox& inbox) {
  bool moved = false;
  while (left_ > 0) {
    const auto room = inbox.room(from_rank_);
    if (room.empty()) return moved;
    const std::size_t part = move_payload(room.data(), room.size());
    if (part == 0) return moved;
    inbox.advance(from_rank_, part);
    moved = true;
    if (lent_at_ != 0) return true;  // One part is a turn.
  }
  // An empty message that was held may fit by now.
  if (header_.bytes == 0) inbox.is_held(from_rank_);
  if (inbox.is_receiving(from_rank_)) return moved;
  under_ = Under::nothing;
  return true;
}

bool RingReader::move_control(const OnControl& on_control) {
  bool moved = false;
  while (left_ > 0) {
    const std::size_t old = control_.size();
    control_.resize(header_.bytes);
    const std::size_t part = move_payload(control_.data() + old, control_.size() - old);
    control_.resize(old + part);
    if (part == 0) return moved;
    moved = true;
  }
  under_ = Under::nothing;
  const Bytes payload = std::exchange(control_, {});
  on_control(from_rank_, header_, payload);
  return true;
}

bool RingReader::pump(Inbox& inbox, const OnControl& on_control) {
  if (ended_) return false;
  bool moved = false;
  const std::uint64_t turn = read_ + borrowed_ + turn_bytes_max;
  while (!ended_ && read_ + borrowed_ < turn) {
    bool more = false;
    switch (under_) {
      case Under::nothing:
        more = hand_on_whole(inbox) || begin(inbox);
        break;
      case Under::data:
        more = move_data(inbox);
        break;
      case Under::control:
        more = move_control(on_control);
        break;
    }
    if (!more) break;
    moved = true;
  }
  return moved || ended_;
}

}  // namespace dlaunch::transport
