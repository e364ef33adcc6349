// How what another processor reads is written: past the caches or as usual, as the writer's own
// times say.
#include "collectives/transport/shm/stores.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t piece = 16u << 10;

/// A processor whose writer takes so long for each piece.
struct Processor {
  Clock::duration cached, streamed;
};
constexpr Processor near{400ns, 700ns}, far{3'200ns, 600ns};

/// Writes so many bytes in pieces; returns how many of them were streamed.
std::size_t write(StoreChoice& choice, const Processor& on, std::size_t bytes) {
  std::size_t streamed = 0;
  for (std::size_t done = 0; done < bytes; done += piece) {
    const auto how = choice.next(piece);
    if (how.streams) streamed += piece;
    if (how.is_timed) choice.note(how.streams, piece, how.streams ? on.streamed : on.cached);
  }
  return streamed;
}

constexpr std::size_t trial = 2 * StoreChoice::trial_bytes, period = StoreChoice::period_bytes;

}  // namespace

TEST_CASE("a writer streams where that is clearly faster, and tries the other way at times") {
  StoreChoice far_writer, near_writer;
  CHECK(write(far_writer, far, trial) < trial);
  CHECK(far_writer.next(piece).streams);
  write(near_writer, near, trial);
  CHECK_FALSE(near_writer.next(piece).streams);
  CHECK(write(far_writer, far, 10 * period) >= 10 * (period - trial));
  const std::size_t tried = write(near_writer, near, 10 * period);
  CHECK(tried > 0);
  CHECK(tried <= 10 * trial);
  StoreChoice hardly;
  write(hardly, {600ns, 500ns}, trial);
  CHECK_FALSE(hardly.next(piece).streams);
}

TEST_CASE("a writer whose readers come near, or go away, changes its way with the next trial") {
  StoreChoice writer;
  for (int i = 0; i < 3; ++i) {
    write(writer, far, period + trial);
    CHECK(writer.streams());
    write(writer, near, period + trial);
    CHECK_FALSE(writer.streams());
  }
}

TEST_CASE("interruptions change nothing, unless nothing was timed without one") {
  StoreChoice writer;
  for (std::size_t done = 0; done < 5 * period; done += piece) {
    const auto how = writer.next(piece);
    if (!how.is_timed) continue;
    writer.note(how.streams, piece, done / piece % 3 == 0 ? 5ms : how.streams ? 700ns : 400ns);
  }
  CHECK_FALSE(writer.streams());
}

TEST_CASE("pieces as long as a trial decide nothing, and break nothing") {
  StoreChoice writer;
  for (int i = 0; i < 1000; ++i) {
    const auto how = writer.next(StoreChoice::trial_bytes * 3);
    CHECK_FALSE(how.streams);
    if (how.is_timed) writer.note(how.streams, 1, 1ns);
  }
}

TEST_CASE("what is streamed arrives, whatever its length and wherever it comes from") {
  std::vector<std::byte> from(5000), ring(5000 + 64), expected;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
  auto* to =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(ring.data()) + 63) / 64 * 64);
  for (const std::size_t shift : {0, 1, 7, 16}) {
    for (const std::size_t place : {0, 16, 48}) {
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 4096, 4900}) {
        std::fill(ring.begin(), ring.end(), std::byte{0xee});
        copy_streamed(to + place, from.data() + shift, bytes);
        CHECK(std::equal(to + place, to + place + bytes, from.data() + shift));
        CHECK(to[place + bytes] == std::byte{0xee});
      }
    }
  }
}

TEST_CASE("a copy for a reader is right at any place") {
  std::vector<std::byte> from(3 * piece), to(3 * piece + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 13 + i / 256);
  StoreChoice choice;
  for (std::size_t turn = 0; turn < 200; ++turn) {
    const std::size_t shift = turn % 40, bytes = turn * 199 % (2 * piece);
    copy_for_reader(choice, to.data() + shift, from.data() + turn, bytes);
    REQUIRE(std::equal(to.begin() + static_cast<std::ptrdiff_t>(shift),
                       to.begin() + static_cast<std::ptrdiff_t>(shift + bytes),
                       from.begin() + static_cast<std::ptrdiff_t>(turn)));
  }
}
