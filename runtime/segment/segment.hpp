#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/flight.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace dlaunch {

/// The alignment at which two items share neither a cache line nor the pair of lines that is
/// fetched at once.
constexpr std::size_t line_pair_bytes = 128;

/// The ranks that a segment is for. A plain value.
struct SegmentPlan {
  std::uint64_t job = 0;  ///< Hash of the job's id.
  std::uint64_t epoch = 0;
  std::vector<std::int32_t> world_ranks;  ///< Those of the node's local ranks, in their order.
  bool oversubscribed = false;            ///< More ranks than processors they may use.
  /// The arena of each rank; 0: a sensible size. Memory counts only when it is written.
  std::size_t arena_bytes = 0;
};

constexpr std::size_t segment_ranks_max = 4096;
/// Every mesh that the ranks make from one world needs rings of its own, as long as there are any;
/// later ones do without. They are address space, and memory only where something is written.
constexpr std::size_t ring_sets = 4;

/// A rank's block, through which it and the others of its node tell each other small things.
struct RankBlock {
  /// A bit for each of the rank's bells behind which a thread sleeps, or is about to. A rank that
  /// has something for this one rings them.
  alignas(line_pair_bytes) std::atomic<std::uint32_t> asleep;
  /// Not 0 as soon as the rank has mapped the segment and will use it.
  static constexpr std::uint32_t plain = 1, with_remote_barriers = 2;
  std::atomic<std::uint32_t> attached;

  /// The process that lends memory of messages. To recognise it, `number`, which no other process
  /// knows, lies in it at `address`. `pid` is written last; it is 0 as long as nothing is lent.
  struct Lender {
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint64_t> address, number;
  };
  Lender lender;

  /// A message of this rank to some others, each of which reads it once: a number under a key.
  struct Notice {
    std::atomic<std::uint64_t> key;  ///< 0: free. Written last.
    std::atomic<std::uint64_t> value;
    std::atomic<std::uint32_t> readers;  ///< The readers that have not read it yet; 0 frees it.
  };
  static constexpr std::size_t notices_max = 64;
  alignas(line_pair_bytes) Notice notices[notices_max];

  /// For any thread of the rank itself; false if there is no room now. A key is used once.
  bool post(std::uint64_t key, std::uint64_t value, std::uint32_t readers) noexcept;
  /// For one of the readers; nullopt if it is not there yet.
  std::optional<std::uint64_t> read(std::uint64_t key) noexcept;

  /// The state of the rings that the rank reads, for each set.
  struct Reader {
    /// A bit for each local rank that has begun to write to it, or has ended, so that it need not
    /// look at all rings.
    alignas(line_pair_bytes) std::atomic<std::uint64_t> writers[segment_ranks_max / 64];
    /// 1 once it reads them no more, and writes to no others.
    std::atomic<std::uint32_t> ended;
  };
  Reader readers[ring_sets];
};

/// One for each ordered pair of ranks in each set: a stream of bytes, written by one, read by the
/// other. `written` and `read` only grow; a byte's place is its number modulo the capacity. The
/// highest bit of `written` says that nothing follows. Messages longer than `capacity` may be lent:
/// only their headers are written, and the reader counts in `loans` those that it has settled.
struct Ring {
  static constexpr std::size_t capacity = 256u << 10;
  static constexpr std::uint64_t closed = std::uint64_t{1} << 63;
  // Marks in `loans`: the last payload (declined), or all further ones (refused), should come
  // through the ring.
  static constexpr std::uint64_t declined = std::uint64_t{1} << 62;
  static constexpr std::uint64_t refused = std::uint64_t{1} << 63;
  alignas(line_pair_bytes) std::atomic<std::uint64_t> written;
  alignas(line_pair_bytes) std::atomic<std::uint64_t> read;
  std::atomic<std::uint64_t> loans;
  alignas(line_pair_bytes) std::byte data[capacity];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Memory that the ranks of one node share: a sealed memfd, without a name that could collide or
/// stay behind. It holds for each rank a block and a flight ring, sets of rings with one for each
/// ordered pair, and for each rank an arena from which it alone allocates; all of it begins as
/// zeros. A process maps it once: ranks that are threads of one process share the object. Places
/// are offsets, since every process has addresses of its own. All calls may come from any thread;
/// what the memory means is agreed among those who use it.
class Segment {
 public:
  /// Throws Error{internal} naming the step that failed.
  static std::shared_ptr<Segment> create(const SegmentPlan& plan);
  /// Maps one that was received. Throws Error{refused} if it is not a segment of this build, or is
  /// not sealed (its maker could shrink it under us), Error{internal} if it cannot be mapped.
  static std::shared_ptr<Segment> adopt(unique_fd fd);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// To be handed on; CLOEXEC.
  int fd() const noexcept { return fd_.get(); }
  /// Differs between any two segments.
  std::uint64_t id() const noexcept;
  std::uint64_t job() const noexcept;
  std::uint64_t epoch() const noexcept;
  bool oversubscribed() const noexcept;

  int size() const noexcept { return size_; }  ///< Local ranks.
  int world_rank(int local) const noexcept;
  /// -1 if it is not on this node.
  int local_of(int world_rank) const noexcept;

  RankBlock& rank(int local) noexcept;
  FlightRing& flight(int local) noexcept;
  Ring& ring(std::size_t set, int to, int from) noexcept;

  /// Memory from the arena of this rank, aligned to pages from 4 KiB on, else to 128 bytes; its
  /// content is not defined. nullopt: the arena is full.
  std::optional<std::uint64_t> allocate(int local, std::size_t bytes);
  /// Frees what allocate returned to this process.
  void free(int local, std::uint64_t offset) noexcept;
  /// Frees it once `users`, which lies in the freed memory itself, is 0; allocate checks that.
  void free_when_unused(int local, std::uint64_t offset, const std::atomic<std::uint32_t>& users);
  std::byte* at(std::uint64_t offset) const noexcept { return base_ + offset; }
  /// The place of these bytes in the segment; nullopt if they are not all in its arenas.
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const noexcept;

 private:
  struct Header;
  struct Places {
    std::size_t blocks, flights, rings, arenas, end;
  };
  /// Kept outside of the shared memory, since only one process allocates.
  struct Arena {
    std::mutex mutex;
    std::map<std::uint64_t, std::size_t> free, used;  ///< Offset to length.
    std::map<std::uint64_t, const std::atomic<std::uint32_t>*> retired;

    void release(std::uint64_t offset);
    void sweep();
  };

  Segment(unique_fd fd, std::byte* base, std::size_t bytes);
  static Places places_of(std::size_t ranks, std::size_t arena_bytes);
  const Header& header() const noexcept;

  unique_fd fd_;
  std::byte* base_;
  std::size_t bytes_;
  int size_;
  Places places_;
  std::size_t arena_bytes_;
  std::vector<Arena> arenas_;
};

}  // namespace dlaunch
