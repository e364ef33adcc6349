#pragma once

#include "runtime/base/os/ticks.hpp"
#include "runtime/segment/bias.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace dlaunch {

class Segment;

/// The flight recorder: a rank's calls leave their records where its agent and the other ranks of
/// its node can read them, even if the rank is stopped or dead. Written by the threads of one
/// process, read by anybody at any time; flight_log.hpp interprets it. Zeros mean "nothing".
struct FlightRing {
  /// One call, on a cache line of its own. All fields are atomic words, since a reader may come at
  /// any time.
  struct alignas(64) Record {
    /// Its place in the rank's history modulo 2^32, below its traffic. Written last.
    std::atomic<std::uint64_t> number;
    std::atomic<std::uint64_t> who;   ///< Communicator's hash, group, site: 32, 16, 16 bits.
    std::atomic<std::uint64_t> what;  ///< The result of Call::pack.
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> argument;
    std::atomic<std::uint64_t> began;  ///< In ticks.
    /// In ticks, even; odd: it failed. 0: under way. A call that takes next to no time ends as it
    /// began.
    std::atomic<std::uint64_t> ended;
  };
  /// A call that waits for long. Its record may be overwritten meanwhile by calls of other threads.
  struct alignas(128) Wait {
    std::atomic<std::uint64_t> turn;  ///< Never the same twice; 0: nobody waits here.
    std::atomic<std::uint64_t> since;
    std::atomic<std::int32_t> whom;  ///< A rank of the world; -1: any.
    std::atomic<std::uint32_t> taken;
    Record call;
  };
  /// How far a communicator's calls have come.
  struct Progress {
    std::atomic<std::uint64_t> begun;  ///< Number of the last collective.
    /// Collectives with a root, after which a rank may go on before the others have come: how many
    /// began, and a digest of all of them, the same on all ranks that have made the same ones.
    std::atomic<std::uint64_t> rooted, digest;
    /// 1: a call failed because ranks differ in their calls, or this one's was wrong: the program
    /// has heard of it.
    std::atomic<std::uint32_t> heard;
    std::atomic<std::int32_t> size;  ///< The communicator's.
  };
  struct Group {
    std::atomic<std::uint64_t> communicator;  ///< 0: never used, or about to be. Written last.
    /// Its place among those that have ended, from 1; 0: it has not. Kept for its name and its
    /// count until the place is wanted for another.
    std::atomic<std::uint64_t> ended;
    Progress progress;
    std::atomic<std::int32_t> rank;
    /// A call that waits for longer is told; 0: as the launcher has it, less: never.
    std::atomic<std::int64_t> stuck_after_ms;
    std::array<std::atomic<char>, 40> name;
  };
  /// A communicator without a group. Either none was left when it was made; or it has ended and
  /// another has taken its group, while its calls with a root, or what was heard of them, still
  /// count.
  struct Other {
    std::atomic<std::uint64_t> communicator;  ///< 0: free, or about to be used. Written last.
    Progress progress;
  };
  using Text = std::array<std::atomic<char>, 40>;
  using Word = std::array<std::atomic<char>, 24>;

  static constexpr std::size_t records_max = 256;
  static constexpr std::size_t waits_max = 8;
  static constexpr std::size_t groups_max = 32;
  static constexpr std::size_t others_max = 512;
  static constexpr std::size_t sites_max = 128;
  static constexpr std::size_t ops_max = 32, dtypes_max = 24, reductions_max = 16;
  static constexpr std::size_t purposes_max = 32;
  /// In a call's traffic the lowest 16 bits are its part, and the five from here on its purpose.
  static constexpr int purpose_shift = 26;
  /// The highest of these bits, a shadow's: its call is meant to meet the call that it shadows.
  static constexpr std::uint32_t shadow_bit = 1u << 30;
  /// The number in place of a group or a site for which there is no room.
  static constexpr std::uint16_t none = 0xffff;

  alignas(128) std::atomic<std::uint64_t> begun;  ///< Number of the last record.
  alignas(128) std::atomic<std::uint32_t> ready;  ///< 1: a process has begun to record.
  std::atomic<std::int32_t> pid;                  ///< As the process itself sees it.
  std::atomic<std::uint64_t> process_started;  ///< /proc/PID/stat's start time: whose the pid is.
  std::atomic<std::uint64_t> ticks_then, ns_then;  ///< The same moment on both clocks.
  std::atomic<std::uint32_t> writing;              ///< A thread of the process adds a text.
  std::atomic<std::uint32_t> sites_used;
  std::atomic<std::uint64_t> groups_ended;
  std::atomic<std::uint32_t> others_used;  ///< Number of entries that have ever been used.
  std::atomic<std::uint64_t> turns;
  std::array<Word, ops_max> ops;
  std::array<Word, dtypes_max> dtypes;
  std::array<Word, reductions_max> reductions;
  std::array<Word, purposes_max> owners, purposes;
  /// A bit for each purpose whose text goes on with the call's part.
  std::atomic<std::uint32_t> purposes_with_part;
  std::array<Text, sites_max> sites;
  std::array<Group, groups_max> groups;
  std::array<Wait, waits_max> waits;
  std::array<Record, records_max> records;
  std::array<Other, others_max> others;
};
static_assert(sizeof(FlightRing::Record) == 64);
static_assert(sizeof(FlightRing::Other) == 40);

/// The names of what records hold as numbers, by number.
struct FlightWords {
  std::span<const char*const> ops, dtypes, reductions;
  /// By purpose: whose call it is ("join's shadow "), and what for ("who is here").
  std::span<const char*const> owners{}, purposes{};
  /// A bit for each purpose whose text goes on with the call's part.
  std::uint32_t purposes_with_part = 0;
};

/// The 32 bits of its communicator's id that a record keeps.
std::uint64_t flight_hash(std::uint64_t communicator) noexcept;

/// Writes a rank's flight ring: in the node's segment, or in memory of its own where there is none.
/// Any thread of the rank's process may record; recording never fails, and waits once at most: a
/// moment, when a second thread begins to record. A call costs some fifty instructions, among them
/// a look at the processor's clock, and a line of the cache.
class Flight {
 public:
  /// How a call was made.
  enum class Kind : std::uint8_t {
    call,
    start,  ///< Starts a message, which goes on when this has ended.
    wait,   ///< For a started message.
    aside,  ///< Counted apart from the communicator's collectives.
  };
  struct Call {
    std::uint64_t what = 0;      ///< The result of pack().
    std::uint64_t sequence = 0;  ///< 0 for messages.
    std::uint64_t count = 0;
    std::uint64_t argument = 0;  ///< A hash of other terms that must agree; the tag of a message.
    std::uint32_t traffic = 0;   ///< Its purpose, as its library packs it; 0: the program's own.

    /// `place`: root or peer, a rank of the communicator; -1: none, or any. It lies in the bits
    /// from 16 to 47, the others above: differences below are nobody's, which makes for short
    /// hashes.
    static constexpr std::uint64_t pack(std::uint8_t op, std::uint8_t dtype, std::uint8_t reduction,
                                        std::int32_t place) noexcept {
      return std::uint64_t{static_cast<std::uint32_t>(place)} << place_bit |
             std::uint64_t{op} << op_bit | std::uint64_t{dtype} << dtype_bit |
             std::uint64_t{reduction} << reduction_bit;
    }
    static constexpr int place_bit = 16, op_bit = 48, dtype_bit = 53, reduction_bit = 58,
                         kind_bit = 62;
    /// The same call, made so.
    constexpr Call as(Kind kind) const noexcept {
      Call call = *this;
      call.what |= std::uint64_t{static_cast<std::uint8_t>(kind)} << kind_bit;
      return call;
    }
  };
  static_assert(FlightRing::ops_max <= 32 && FlightRing::dtypes_max <= 32 &&
                FlightRing::reductions_max <= 16);
  /// A communicator, as far as its calls are recorded.
  struct Place {
    std::uint64_t who = ~std::uint64_t{0};
    FlightRing::Progress* progress = nullptr;  ///< The progress of its group, or of what it has.

    /// A collective with a root begins. For the thread that makes the call.
    void count_rooted(const Call& call) const noexcept {
      constexpr auto relaxed = std::memory_order_relaxed;
      progress->rooted.store(progress->rooted.load(relaxed) + 1, relaxed);
      progress->digest.store(digest_of(progress->digest.load(relaxed), call), relaxed);
    }
  };
  /// The digest of the calls whose digest is `before`, and this one.
  static std::uint64_t digest_of(std::uint64_t before, const Call& call) noexcept {
    const std::uint64_t sum = call.count * 0x2c1b3c6d9e3779b9U + call.what +
                              (call.argument ^ call.sequence * 0x94d049bb133111ebU);
    return std::rotl((before ^ sum) * 0x9e3779b97f4a7c15U, 29);
  }

  Flight(std::shared_ptr<Segment> segment, int local, const FlightWords& words);
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// This process has registered for remote barriers: from here on one of its threads records
  /// without a locked instruction, until another one records, too.
  static void favour_one_thread() noexcept;

  /// Adds a communicator, until leave; its description stays readable afterwards for as long as
  /// there is room.
  Place join(std::uint64_t communicator, std::string_view name, int rank, int size) noexcept;
  void leave(const Place& place) noexcept;
  /// How long its calls may wait before the launcher tells of them; 0: as it likes, less: never.
  void limit_waits(const Place& place, std::chrono::milliseconds stuck_after) noexcept;

  /// One call while it lasts. It ends as failed unless done() is called. The text at `file` must
  /// stay in place.
  class Entry {
   public:
    [[gnu::always_inline]] Entry(Flight& flight, const Place& place, const Call& call,
                                 const char* file, int line) noexcept
        : ring_(*flight.ring_),
          number_(next_number(ring_, call)),
          who_(place.who & flight.site(file, line)),
          began_(ticks()),
          is_long_(call.count >= short_count) {
      write(record(), {number_, who_, began_, 0}, call);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      if (number_ != 0) end(1);
    }
    void done() noexcept {
      end(0);
      number_ = 0;
    }

    /// flight_hash of its id.
    std::uint64_t communicator() const noexcept { return who_ >> 32; }

   private:
    friend class Flight;
    FlightRing::Record& record() const noexcept {
      return ring_.records[number_ % FlightRing::records_max];
    }
    void end(std::uint64_t failed) noexcept {
      // The record may have been overwritten since.
      if (record().number.load(std::memory_order_relaxed) != number_) return;
      const std::uint64_t now = is_long_ ? ticks() : began_;
      record().ended.store((now & ~std::uint64_t{1}) | failed, std::memory_order_relaxed);
    }
    /// The fewest elements whose time is worth a look at the clock, unless they are waited for.
    static constexpr std::uint64_t short_count = 1024;

    FlightRing& ring_;
    std::uint64_t number_, who_, began_;
    bool is_long_;
  };

  /// A call that is over by now, and took next to no time.
  [[gnu::always_inline]] void note(const Place& place, const Call& call, const char* file,
                                   int line) noexcept {
    const std::uint64_t number = next_number(*ring_, call), now = ticks();
    write(ring_->records[number % FlightRing::records_max],
          {number, place.who & site(file, line), now, now & ~std::uint64_t{1}}, call);
  }

  const FlightRing& ring() const noexcept { return *ring_; }

  /// While it lives, readers find the call among those that wait.
  class Waiting {
   public:
    /// `whom`: a rank of the world; -1: any. A null entry waits unseen.
    Waiting(Entry* entry, const Call& call, int whom) noexcept;
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting();

   private:
    FlightRing::Wait* wait_ = nullptr;
  };

 private:
  static constexpr int sites_bits = 7;

  /// A site's number in the lowest bits, all other bits set. It is looked up by the text's address,
  /// so the text itself is read only once. A site has two places, so that it seldom takes another's
  /// again and again. No site's key is 0, which is what an empty place has.
  std::uint64_t site(const char* file, int line) noexcept {
    const std::uint64_t key = (reinterpret_cast<std::uintptr_t>(file) +
                               static_cast<std::uint64_t>(line) * 0x9e3779b9U + 1) *
                              0x9e3779b97f4a7c15U;
    const std::size_t first = key >> (64 - sites_bits);
    std::uint64_t known = known_sites_[first].load(std::memory_order_relaxed);
    if ((known ^ key) >> 16 != 0) [[unlikely]] {
      known = known_sites_[first ^ 1].load(std::memory_order_relaxed);
      if ((known ^ key) >> 16 != 0) return new_site(key, file, line);
    }
    return known | ~std::uint64_t{0xffff};
  }
  /// What a record has beside its call.
  struct Frame {
    std::uint64_t number, who, began, ended;
  };
  /// Every word is stored with release: a reader that sees one of them also sees that the number
  /// was counted.
  [[gnu::always_inline]] static void write(FlightRing::Record& to, const Frame& frame,
                                           const Call& call) noexcept {
    constexpr auto release = std::memory_order_release;
    to.who.store(frame.who, release);
    to.what.store(call.what, release);
    to.sequence.store(call.sequence, release);
    to.count.store(call.count, release);
    to.argument.store(call.argument, release);
    to.began.store(frame.began, release);
    to.ended.store(frame.ended, release);
    to.number.store(frame.number, release);
  }
  [[gnu::always_inline]] static std::uint64_t next_number(FlightRing& ring,
                                                          const Call& call) noexcept {
    return static_cast<std::uint32_t>(next_number(ring.begun)) | std::uint64_t{call.traffic} << 32;
  }
  /// Counts a record, and gives its number. Calls of two threads may get one number when the second
  /// one begins to record, and at no other time: then one of them is not in the log.
  [[gnu::always_inline]] static std::uint64_t next_number(
      std::atomic<std::uint64_t>& begun) noexcept {
    if (!favoured_.enter()) return next_number_of_many(begun);
    const std::uint64_t number = begun.load(std::memory_order_relaxed) + 1;
    begun.store(number, std::memory_order_relaxed);
    favoured_.leave();
    return number;
  }
  static std::uint64_t next_number_of_many(std::atomic<std::uint64_t>& begun) noexcept;
  static void meet() noexcept;
  std::uint16_t add_site(std::string_view text) noexcept;
  std::uint64_t new_site(std::uint64_t key, const char* file, int line) noexcept;
  Place join_others(std::uint64_t communicator, int size) noexcept;

  /// The process's, whatever it records: more than one of its Flights may write to a ring.
  static Bias favoured_;

  std::shared_ptr<Segment> segment_;
  std::unique_ptr<FlightRing> own_;
  FlightRing* ring_;
  FlightRing::Progress spare_{};  ///< For communicators for which there was no room.
  /// The upper 48 bits of a site's key, and its number.
  std::array<std::atomic<std::uint64_t>, std::size_t{1} << sites_bits> known_sites_{};
};

}  // namespace dlaunch
