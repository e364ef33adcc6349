#include "runtime/segment/segment.hpp"

#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr std::uint64_t segment_magic = 0x314745534e4c4421;
/// The version of the memory's layout; a process with another one could not read it.
constexpr std::uint32_t layout_version = 10;
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t arena_bytes_max = std::size_t{16} << 30;
constexpr std::size_t arena_bytes_min = std::size_t{1} << 20;
/// The limit of address space, of which sanitizers leave less than there is.
constexpr std::size_t arenas_bytes_max = std::size_t{256} << 30;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

constexpr const char* what = "the node's shared memory: ";

Error failed(const char* step) {
  return Error(Errc::internal, std::string(what) + step + ": " + errno_text(errno));
}
Error refused(const std::string& why) { return Error(Errc::refused, what + why); }

/// Not executable where the kernel knows that (6.3), since some systems insist on it.
unique_fd new_memfd() {
#ifdef MFD_NOEXEC_SEAL
  constexpr unsigned not_executable = MFD_NOEXEC_SEAL;
#else
  constexpr unsigned not_executable = 0x0008;
#endif
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  unique_fd fd(::memfd_create("dlaunch", flags | not_executable));
  if (!fd && errno == EINVAL) fd = unique_fd(::memfd_create("dlaunch", flags));
  if (!fd) throw failed("memfd_create");
  return fd;
}

/// A limit on the size of files counts here, too. It is read first, since exceeding it raises
/// SIGXFSZ, which would end us.
std::size_t file_bytes_max() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) throw failed("getrlimit");
  return static_cast<std::size_t>(limit.rlim_cur);  // RLIM_INFINITY is the most there is.
}

}  // namespace

/// The head, in the first page or pages, followed by the world ranks.
struct Segment::Header {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t oversubscribed;
  std::uint64_t id;
  std::uint64_t job;
  std::uint64_t epoch;
  std::uint64_t arena_bytes;
  std::uint64_t ranks;

  const std::int32_t* world_ranks() const {
    return reinterpret_cast<const std::int32_t*>(this + 1);
  }
};

Segment::Places Segment::places_of(std::size_t ranks, std::size_t arena_bytes) {
  Places places{};
  places.blocks = round_up(sizeof(Header) + ranks * sizeof(std::int32_t), page_bytes);
  places.flights = round_up(places.blocks + ranks * sizeof(RankBlock), page_bytes);
  places.rings = round_up(places.flights + ranks * sizeof(FlightRing), page_bytes);
  places.arenas = round_up(places.rings + ring_sets * ranks * ranks * sizeof(Ring), page_bytes);
  places.end = places.arenas + ranks * arena_bytes;
  return places;
}

std::shared_ptr<Segment> Segment::create(const SegmentPlan& plan) {
  const std::size_t ranks = plan.world_ranks.size();
  if (ranks == 0 || ranks > segment_ranks_max) {
    throw Error(Errc::internal, what + std::to_string(ranks) + " ranks, where 1 to " +
                                    std::to_string(segment_ranks_max) + " are possible");
  }
  unique_fd fd = new_memfd();
  std::size_t arena_bytes = plan.arena_bytes != 0
                                ? plan.arena_bytes
                                : std::min(arena_bytes_max, arenas_bytes_max / ranks);
  arena_bytes = round_up(arena_bytes, page_bytes);
  const auto bytes = [&] { return places_of(ranks, arena_bytes).end; };
  const std::size_t most = file_bytes_max();
  while (bytes() > most && arena_bytes > arena_bytes_min) {
    arena_bytes = round_up(arena_bytes / 2, page_bytes);
  }
  if (bytes() > most) {
    throw Error(Errc::internal, what + std::string("files may have no more than ") +
                                    std::to_string(most) + " bytes here (ulimit -f)");
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes())) != 0) throw failed("ftruncate");
  Header header{};
  header.magic = segment_magic;
  header.layout = layout_version;
  header.oversubscribed = plan.oversubscribed ? 1 : 0;
  header.id = random_number();
  header.job = plan.job;
  header.epoch = plan.epoch;
  header.arena_bytes = arena_bytes;
  header.ranks = ranks;
  std::vector<std::byte> first(sizeof header + ranks * sizeof(std::int32_t));
  std::memcpy(first.data(), &header, sizeof header);
  std::memcpy(first.data() + sizeof header, plan.world_ranks.data(), first.size() - sizeof header);
  if (::pwrite(fd.get(), first.data(), first.size(), 0) != static_cast<ssize_t>(first.size())) {
    throw failed("write");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw failed("sealing");
  }
  return adopt(std::move(fd));
}

std::shared_ptr<Segment> Segment::adopt(unique_fd fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw failed("fstat");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw refused("it is not sealed");
  Header header{};
  if (::pread(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic != segment_magic) {
    throw refused("it is not one of dlaunch's");
  }
  if (header.layout != layout_version) {
    throw refused("another version of dlaunch made it (layout " + std::to_string(header.layout) +
                  ", this is " + std::to_string(layout_version) +
                  "): use one version on all of a node");
  }
  if (header.ranks == 0 || header.ranks > segment_ranks_max || header.arena_bytes > bytes ||
      places_of(header.ranks, header.arena_bytes).end != bytes) {
    throw refused("its size does not fit its header");
  }
  void* base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED) throw failed("mmap");
  // Keeps this much address space out of core files, which would take long to write while others
  // wait for the news. If the kernel does not take the advice, nothing else is lost.
  static_cast<void>(::madvise(base, bytes, MADV_DONTDUMP));
  return std::shared_ptr<Segment>(new Segment(std::move(fd), static_cast<std::byte*>(base), bytes));
}

Segment::Segment(unique_fd fd, std::byte* base, std::size_t bytes)
    : fd_(std::move(fd)),
      base_(base),
      bytes_(bytes),
      size_(static_cast<int>(header().ranks)),
      places_(places_of(header().ranks, header().arena_bytes)),
      arena_bytes_(header().arena_bytes),
      arenas_(header().ranks) {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    arenas_[i].free.emplace(places_.arenas + i * arena_bytes_, arena_bytes_);
  }
}

Segment::~Segment() { ::munmap(base_, bytes_); }

const Segment::Header& Segment::header() const noexcept {
  return *std::launder(reinterpret_cast<const Header*>(base_));
}

std::uint64_t Segment::id() const noexcept { return header().id; }
std::uint64_t Segment::job() const noexcept { return header().job; }
std::uint64_t Segment::epoch() const noexcept { return header().epoch; }
bool Segment::oversubscribed() const noexcept { return header().oversubscribed != 0; }
int Segment::world_rank(int local) const noexcept { return header().world_ranks()[local]; }

int Segment::local_of(int world_rank) const noexcept {
  const auto* ranks = header().world_ranks();
  const auto* found = std::find(ranks, ranks + size_, world_rank);
  return found == ranks + size_ ? -1 : static_cast<int>(found - ranks);
}

RankBlock& Segment::rank(int local) noexcept {
  const std::size_t index = static_cast<std::size_t>(local);
  return *std::launder(
      reinterpret_cast<RankBlock*>(base_ + places_.blocks + index * sizeof(RankBlock)));
}

FlightRing& Segment::flight(int local) noexcept {
  const std::size_t index = static_cast<std::size_t>(local);
  return *std::launder(
      reinterpret_cast<FlightRing*>(base_ + places_.flights + index * sizeof(FlightRing)));
}

Ring& Segment::ring(std::size_t set, int to, int from) noexcept {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t index =
      (set * ranks + static_cast<std::size_t>(to)) * ranks + static_cast<std::size_t>(from);
  return *std::launder(reinterpret_cast<Ring*>(base_ + places_.rings + index * sizeof(Ring)));
}

bool RankBlock::post(std::uint64_t key, std::uint64_t value, std::uint32_t reader_count) noexcept {
  for (Notice& notice : notices) {
    // Other threads of the rank post, too: the one that changes it from 0 has the place.
    std::uint32_t none = 0;
    if (!notice.readers.compare_exchange_strong(none, reader_count)) continue;
    notice.value.store(value);
    notice.key.store(key);
    return true;
  }
  return false;
}

std::optional<std::uint64_t> RankBlock::read(std::uint64_t key) noexcept {
  for (Notice& notice : notices) {
    if (notice.key.load() != key || notice.readers.load() == 0) continue;
    const std::uint64_t value = notice.value.load();
    notice.readers.fetch_sub(1);
    return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Segment::allocate(int local, std::size_t bytes) {
  if (bytes > arena_bytes_) return std::nullopt;
  const std::size_t alignment = bytes >= page_bytes ? page_bytes : line_pair_bytes;
  const std::size_t length = round_up(std::max<std::size_t>(bytes, 1), alignment);
  Arena& own = arenas_[static_cast<std::size_t>(local)];
  const std::lock_guard lock(own.mutex);
  own.sweep();
  // First fit: allocations are few and live long.
  for (const auto& [begin, available] : own.free) {
    const std::uint64_t first = begin, end = begin + available;
    const std::uint64_t at = round_up(first, alignment);
    if (at + length > end) continue;
    own.free.erase(first);
    if (at > first) own.free.emplace(first, at - first);
    if (at + length < end) own.free.emplace(at + length, end - (at + length));
    own.used.emplace(at, length);
    return at;
  }
  return std::nullopt;
}

void Segment::Arena::release(std::uint64_t offset) {
  auto node = used.extract(offset);
  if (!node) return;
  const auto at = free.insert(std::move(node)).position;
  const auto joins = [](auto left, auto right) {
    return left->first + left->second == right->first;
  };
  if (const auto next = std::next(at); next != free.end() && joins(at, next)) {
    at->second += next->second;
    free.erase(next);
  }
  if (at == free.begin()) return;
  if (const auto before = std::prev(at); joins(before, at)) {
    before->second += at->second;
    free.erase(at);
  }
}

void Segment::Arena::sweep() {
  std::erase_if(retired, [&](const auto& entry) {
    const bool unused = entry.second->load() == 0;
    if (unused) release(entry.first);
    return unused;
  });
}

void Segment::free(int local, std::uint64_t offset) noexcept {
  Arena& own = arenas_[static_cast<std::size_t>(local)];
  const std::lock_guard lock(own.mutex);
  own.release(offset);
}

void Segment::free_when_unused(int local, std::uint64_t offset,
                               const std::atomic<std::uint32_t>& users) {
  Arena& own = arenas_[static_cast<std::size_t>(local)];
  const std::lock_guard lock(own.mutex);
  own.retired.emplace(offset, &users);
}

std::optional<std::uint64_t> Segment::offset_of(const void* data,
                                                std::size_t bytes) const noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address < base + places_.arenas || address >= base + bytes_) return std::nullopt;
  if (bytes > base + bytes_ - address) return std::nullopt;
  return address - base;
}

}  // namespace dlaunch
