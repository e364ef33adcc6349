// The memory that ranks share: who may have it, and how each rank allocates from its part.
#include "runtime/segment/segment.hpp"

#include "tests/support/expect.hpp"

#include <dlaunch/error.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

using testing::contains;

constexpr std::size_t arena = 64u << 10;
constexpr std::size_t page = 4096;

SegmentPlan plan_of(std::vector<std::int32_t> ranks) {
  return {.job = 5, .epoch = 9, .world_ranks = std::move(ranks), .arena_bytes = arena};
}

unique_fd copy_of(int fd) { return unique_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::string refusal(unique_fd fd, Errc code = Errc::refused) {
  try {
    Segment::adopt(std::move(fd));
  } catch (const Error& error) {
    CHECK(error.errc() == code);
    return error.what();
  }
  return "";
}

/// A file in memory with these bytes, then zeros.
unique_fd file_with(const std::string& begin, std::size_t size, int seals) {
  unique_fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  REQUIRE(::pwrite(fd.get(), begin.data(), begin.size(), 0) == static_cast<ssize_t>(begin.size()));
  if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

std::string first_bytes(const Segment& segment, std::size_t bytes) {
  std::string text(bytes, '\0');
  REQUIRE(::pread(segment.fd(), text.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  return text;
}

/// The code that `program` returns in a forked child; -signal if one ends it.
int in_child(int (*program)()) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(program());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void limit_files(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace

TEST_CASE("a segment says whose it is") {
  SegmentPlan plan = plan_of({4, 6, 5});
  plan.oversubscribed = true;
  const auto segment = Segment::create(plan);
  CHECK(segment->size() == 3);
  CHECK(segment->job() == 5);
  CHECK(segment->epoch() == 9);
  CHECK(segment->oversubscribed());
  CHECK(segment->world_rank(1) == 6);
  CHECK(segment->local_of(5) == 2);
  CHECK(segment->local_of(1) == -1);
  CHECK(segment->id() != Segment::create(plan)->id());
  CHECK((::fcntl(segment->fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_FALSE(Segment::create(plan_of({0, 1}))->oversubscribed());
  CHECK_THROWS_AS(Segment::create(plan_of({})), Error);
}

TEST_CASE("two mappings are one memory, which begins as zeros") {
  const auto one = Segment::create(plan_of({0, 1}));
  const auto two = Segment::adopt(copy_of(one->fd()));
  CHECK(two->id() == one->id());
  CHECK(two->world_rank(1) == 1);
  CHECK(one->rank(1).asleep.load() == 0);
  one->rank(1).asleep.store(7);
  CHECK(two->rank(1).asleep.load() == 7);
  CHECK(two->rank(0).asleep.load() == 0);
  one->ring(0, 1, 0).written.store(3);
  one->ring(0, 1, 0).data[Ring::capacity - 1] = std::byte{9};
  CHECK(two->ring(0, 1, 0).written.load() == 3);
  CHECK(two->ring(0, 1, 0).data[Ring::capacity - 1] == std::byte{9});
  CHECK(two->ring(0, 0, 1).written.load() == 0);
  CHECK(two->ring(0, 1, 1).read.load() == 0);
  const auto at = one->allocate(0, 100).value();
  std::memset(one->at(at), 5, 100);
  CHECK(two->at(at)[99] == std::byte{5});
}

TEST_CASE("each rank allocates from its own arena, and what is freed becomes one again") {
  const auto segment = Segment::create(plan_of({0, 1}));
  const auto first = segment->allocate(0, 1).value();
  const auto second = segment->allocate(0, 129).value();
  const auto third = segment->allocate(0, page).value();
  const auto other = segment->allocate(1, arena).value();
  CHECK(second == first + 128);
  CHECK(third % page == 0);
  CHECK(third >= second + 256);
  CHECK(other == first + arena);
  CHECK_FALSE(segment->allocate(1, 1));
  CHECK_FALSE(segment->allocate(0, arena));
  CHECK_FALSE(segment->allocate(0, ~std::size_t{0}));
  // In an order that joins with what follows, with what precedes, and with both.
  segment->free(0, third);
  segment->free(0, first);
  segment->free(0, second);
  segment->free(0, second);      // Nothing of ours any more.
  segment->free(0, other + 16);  // Never was.
  CHECK(segment->allocate(0, arena) == first);
  segment->free(1, other);
  CHECK(segment->allocate(1, 0) == other);
}

TEST_CASE("what somebody still uses is not given away") {
  const auto segment = Segment::create(plan_of({0}));
  const auto at = segment->allocate(0, arena).value();
  auto& users = *new (segment->at(at)) std::atomic<std::uint32_t>(1);
  segment->free_when_unused(0, at, users);
  CHECK_FALSE(segment->allocate(0, 1));
  users.store(0);
  CHECK(segment->allocate(0, arena) == at);
}

TEST_CASE("notices that two threads of a rank post at once are both read") {
  const auto segment = Segment::create(plan_of({0, 1}));
  RankBlock& block = segment->rank(0);
  constexpr std::uint64_t rounds = 5000;
  std::atomic<std::uint64_t> arrived{0};
  // A lost message never comes.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto wait_until = [&](const auto& holds) {
    while (!holds() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  };
  const auto post_all = [&](std::uint64_t first_key) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      ++arrived;
      wait_until([&] { return arrived >= 2 * (i + 1); });
      wait_until([&] { return block.post(first_key + i, i, 1); });
    }
  };
  std::uint64_t read = 0;
  {
    const std::jthread one(post_all, 1), other(post_all, 1 + rounds);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      for (const std::uint64_t key : {1 + i, 1 + rounds + i}) {
        std::optional<std::uint64_t> value;
        wait_until([&] { return (value = block.read(key)).has_value(); });
        if (value == i) ++read;
      }
    }
  }
  CHECK(read == 2 * rounds);
}

TEST_CASE("offsets are of the arenas alone") {
  const auto segment = Segment::create(plan_of({0, 1}));
  const auto first = segment->allocate(0, arena).value();
  const auto last = segment->allocate(1, arena).value() + arena - 1;
  CHECK(segment->offset_of(segment->at(first), 1) == first);
  CHECK(segment->offset_of(segment->at(last), 1) == last);
  CHECK(segment->offset_of(segment->at(last), 0) == last);
  CHECK_FALSE(segment->offset_of(segment->at(last), 2));
  CHECK_FALSE(segment->offset_of(segment->at(last), ~std::size_t{0}));
  CHECK_FALSE(segment->offset_of(segment->at(first - 1), 1));
  CHECK_FALSE(segment->offset_of(&first, sizeof first));
}

TEST_CASE("what is not a sealed segment of this build is refused") {
  const auto good = Segment::create(plan_of({0, 1}));
  const std::string header = first_bytes(*good, page);
  const std::size_t size = static_cast<std::size_t>(::lseek(good->fd(), 0, SEEK_END));
  CHECK(refusal(file_with(header, size, F_SEAL_SHRINK)).empty());
  CHECK(contains(refusal(file_with(header, size, 0)), "not sealed"));
  CHECK(contains(refusal(file_with(header, size, F_SEAL_GROW)), "not sealed"));
  CHECK(contains(refusal(unique_fd(::open("/dev/zero", O_RDWR))), "not sealed"));
  CHECK(contains(refusal(file_with("", size, F_SEAL_SHRINK)), "not one of dlaunch's"));
  CHECK(contains(refusal(file_with("", 0, F_SEAL_SHRINK)), "not one of dlaunch's"));
  CHECK(contains(refusal(file_with(header, size - page, F_SEAL_SHRINK)), "does not fit"));
  CHECK(contains(refusal(file_with(header, size + page, F_SEAL_SHRINK)), "does not fit"));
  std::string newer = header;
  ++newer[8];  // The layout's version.
  CHECK(contains(refusal(file_with(newer, size, F_SEAL_SHRINK)), "another version"));
  CHECK(contains(refusal(unique_fd(), Errc::internal), "fstat"));
}

TEST_CASE("nobody can shrink a segment under its users") {
  const auto segment = Segment::create(plan_of({0, 1}));
  CHECK(::ftruncate(segment->fd(), 0) != 0);
  CHECK(::fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("a limit on the size of files makes it smaller, or is named; it never kills") {
  CHECK(in_child([] {
          limit_files(64u << 20);
          SegmentPlan plan = plan_of({0, 1});
          plan.arena_bytes = 0;
          const auto segment = Segment::create(plan);
          return segment->allocate(1, 8u << 20) && !segment->allocate(0, 64u << 20) ? 0 : 1;
        }) == 0);
  CHECK(in_child([] {
          limit_files(1u << 20);
          try {
            Segment::create(plan_of({0, 1}));
          } catch (const Error& error) {
            return contains(error.what(), "ulimit -f") ? 0 : 1;
          }
          return 2;
        }) == 0);
}

TEST_CASE("without address space there is none") {
  CHECK(in_child([] {
          SegmentPlan plan = plan_of({0, 1});
          plan.arena_bytes = std::size_t{1} << 46;
          try {
            Segment::create(plan);
          } catch (const Error& error) {
            return contains(error.what(), "mmap") ? 0 : 1;
          }
          return 2;
        }) == 0);
}
