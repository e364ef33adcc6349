// A ring from end to end: every size, many laps, a source that is held, and ends that cannot be
// trusted.
#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/shm/rings.hpp"
#include "runtime/segment/remote_barrier.hpp"
#include "tests/unit/collectives/ring_pair.hpp"

#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>

using namespace dlaunch;
using namespace dlaunch::transport;

namespace {

/// The rings of a rank, and what comes by them.
struct Reading final : Sources {
  Reading(std::shared_ptr<Segment> segment, std::shared_ptr<Wakeup> bell, std::size_t set,
          int local, int size)
      : rings({std::move(segment), std::move(bell), set, local, size},
              {poller, inbox, on_control, *this}) {}
  bool has(int from) const override { return found.contains(from); }
  void add(int from, ReceivingEnd&) override { found.insert(from); }

  Poller poller;
  Inbox inbox;
  const OnControl on_control = [](int, const Header&, BytesView) {};
  std::set<int> found;
  Rings rings;
};

/// With messages of all sizes.
void move_by_two_threads(Pair& pair, bool has_remote_barriers) {
  constexpr int messages = 3000;
  const auto size_at = [](int i) {
    return static_cast<std::size_t>(i % 50 == 0 ? 300000 + i : i * 31 % 3000);
  };
  const auto wait_for = [&](Wakeup& bell, const auto& moved) {
    for (int i = 0; i < 1000; ++i) {
      if (moved()) return;
    }
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < deadline) {
      bell.lie_down();
      if (has_remote_barriers) remote_barrier();
      if (moved()) break;
      pollfd polled{bell.fd(), POLLIN, 0};
      REQUIRE(::poll(&polled, 1, 60000) == 1);  // Nobody rang: a wake-up was lost.
      bell.clear();
    }
    bell.get_up();
  };
  std::jthread writing([&] {
    for (int i = 0; i < messages; ++i) {
      const Bytes data = pattern(size_at(i), static_cast<std::size_t>(i));
      const Header header = header_of(data.size());
      std::size_t sent = 0;
      while (sent < sizeof header + data.size()) {
        wait_for(pair.writers_bell, [&] { return pair.writer->write_some(header, data, sent); });
      }
    }
  });
  int wrong = 0;
  for (int i = 0; i < messages; ++i) {
    Bytes into(size_at(i));
    Receive receive = receive_of(into);
    if (!pair.reader.take(receive)) pair.inbox.post(receive);
    while (receive.pending()) wait_for(pair.readers_bell, [&] { return pair.pump(); });
    wrong += into == pattern(into.size(), static_cast<std::size_t>(i)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("messages of every size around a line, a piece and the capacity go through a ring") {
  Pair pair;
  std::size_t seed = 0;
  for (std::size_t bytes = 0; bytes < 200; ++bytes) pair.move(bytes, ++seed);
  for (const std::size_t around :
       {std::size_t{1} << 10, std::size_t{16} << 10, std::size_t{32} << 10, Ring::capacity / 2,
        Ring::capacity - ring_line_bytes, Ring::capacity, 2 * Ring::capacity, std::size_t{1} << 20,
        std::size_t{3} << 20}) {
    for (std::size_t bytes = around - 66; bytes <= around + 66; bytes += 6) {
      pair.move(bytes, ++seed);
    }
  }
}

TEST_CASE("a whole message is written at once or not at all, at every place of the ring") {
  Pair pair;
  std::mt19937 random(7);
  std::size_t seed = 0;
  for (int lap = 0; lap < 200; ++lap) {
    std::vector<Bytes> sent;
    for (;;) {
      Bytes data = pattern(random() % 9000, ++seed);
      if (!pair.writer->write(header_of(data.size()), data)) break;
      sent.push_back(std::move(data));
    }
    REQUIRE_FALSE(sent.empty());
    for (const Bytes& data : sent) {
      Bytes into(data.size());
      Receive receive = receive_of(into);
      REQUIRE(pair.reader.take(receive));
      CHECK(into == data);
    }
    CHECK_FALSE(pair.reader.has_news());
  }
}

TEST_CASE("what is taken straight from the ring is what is wanted, and whole") {
  Pair pair;
  Bytes into(100), other(101);
  Receive wanted = receive_of(into, 5);
  CHECK_FALSE(pair.reader.take(wanted));  // Nothing is there.
  REQUIRE(pair.writer->write(header_of(100, 5), pattern(100, 1)));
  Receive another_tag = receive_of(into, 6), another_size = receive_of(other, 5);
  CHECK_FALSE(pair.reader.take(another_tag));
  CHECK_FALSE(pair.reader.take(another_size));
  CHECK(pair.reader.take(wanted));
  CHECK(wanted.source == 0);
  CHECK(wanted.header.tag == 5);
  // A part of a message is left to the long way.
  Bytes big(Ring::capacity);
  std::size_t sent = 0;
  REQUIRE(pair.writer->write_some(header_of(big.size()), big, sent));
  Receive partial = receive_of(big);
  CHECK_FALSE(pair.reader.take(partial));
  CHECK(partial.state == Receive::State::waiting);
}

TEST_CASE("control messages arrive between data, wherever the ring wraps") {
  Pair pair;
  std::size_t seed = 0;
  for (int i = 0; i < 300; ++i) {
    Header control;
    control.kind = Kind::status;
    const Bytes payload = pattern(static_cast<std::size_t>(i * 37 % 4097), ++seed);
    control.bytes = payload.size();
    REQUIRE(pair.writer->write(control, payload));
    pair.move(5000, ++seed);
    REQUIRE(pair.controls.size() == 1);
    CHECK(pair.controls.back() == payload);
    pair.controls.clear();
  }
}

TEST_CASE("a source that is held is not read, and goes on when somebody receives") {
  Pair pair(1000);
  const Bytes data = pattern(Ring::capacity + 5000, 3);
  const Header header = header_of(data.size());
  std::size_t sent = 0;
  pair.writer->write_some(header, data, sent);
  CHECK(pair.pump());
  CHECK_FALSE(pair.pump());  // It waits; nothing moves, so a rank may sleep over it.
  CHECK_FALSE(pair.writer->write_some(header, data, sent));
  Bytes into(data.size());
  Receive receive = receive_of(into);
  pair.inbox.post(receive);
  for (int i = 0; i < 100 && receive.pending(); ++i) {
    pair.pump();
    pair.writer->write_some(header, data, sent);
  }
  CHECK(receive.state == Receive::State::done);
  CHECK(into == data);
}

TEST_CASE("an empty message that is held behind a full inbox is taken, and what follows goes on") {
  Pair pair(0);
  REQUIRE(pair.writer->write(header_of(0), {}));
  pair.pump();
  CHECK_FALSE(pair.pump());
  Bytes nothing;
  Receive empty = receive_of(nothing);
  pair.inbox.post(empty);
  CHECK(empty.state == Receive::State::done);
  pair.move(10, 1);
}

TEST_CASE("a ring ends behind what was written, in the middle of a message or not") {
  Pair pair;
  REQUIRE(pair.writer->write(header_of(3), pattern(3, 1)));
  Bytes data(1u << 20), first(3), second(1u << 20);
  std::size_t sent = 0;
  pair.writer->write_some(header_of(data.size()), data, sent);
  pair.writer.reset();
  Receive whole = receive_of(first), part = receive_of(second);
  pair.inbox.post(whole);
  pair.inbox.post(part);
  CHECK(pair.pump());
  while (pair.pump()) {
  }
  CHECK(whole.state == Receive::State::done);
  CHECK(part.state == Receive::State::filling);
  CHECK(pair.reader.ended());
  CHECK(pair.reader.reason() == "it closed the connection");
  CHECK_FALSE(pair.pump());
  pair.inbox.withdraw(part);
}

TEST_CASE("a writer that cannot be believed is not read any more") {
  Pair pair;
  const auto check_refused = [&] {
    while (pair.pump()) {
    }
    CHECK(pair.reader.ended());
    CHECK(pair.reader.reason() == "it sent something that is no message of ours");
  };
  SUBCASE("it says that it wrote more than fits") {
    pair.ring().written.store(Ring::capacity + 64);
    check_refused();
  }
  SUBCASE("it takes back what it wrote") {
    pair.move(1000, 1);
    pair.ring().written.store(64);
    check_refused();
  }
  SUBCASE("what it wrote is no header") {
    std::memset(pair.ring().data, 0x5a, 4096);
    pair.ring().written.store(4096);
    check_refused();
  }
  SUBCASE("it wrote a part of a line") {
    // Behind the payload, which ends in that line, lies what looks like another message.
    Bytes into(Ring::capacity * 2);
    Receive never = receive_of(into, 9);
    pair.inbox.post(never);
    const Header first = header_of(100), second = header_of(into.size(), 9);
    std::memcpy(pair.ring().data, &first, sizeof first);
    std::memcpy(pair.ring().data + 192, &second, sizeof second);
    pair.ring().written.store(64 + 100);
    check_refused();
    CHECK(never.pending());
    pair.inbox.withdraw(never);
  }
  SUBCASE("it takes back a part of a line, and no more") {
    pair.move(1000, 1);
    pair.ring().written.fetch_sub(1);
    check_refused();
  }
  SUBCASE("its control message is longer than any is") {
    Header control;
    control.kind = Kind::failure;
    control.bytes = control_bytes_max + 1;
    std::memcpy(pair.ring().data, &control, sizeof control);
    pair.ring().written.store(64);
    check_refused();
  }
}

TEST_CASE("a length without end holds the source and takes no memory") {
  Pair pair;
  Header header = header_of(0);
  header.bytes = ~std::uint64_t{0};
  std::memcpy(pair.ring().data, &header, sizeof header);
  pair.ring().written.store(Ring::capacity);
  Bytes into(100);
  Receive receive = receive_of(into);
  CHECK_FALSE(pair.reader.take(receive));
  pair.pump();
  CHECK(pair.inbox.is_held(0));
  CHECK_FALSE(pair.pump());
}

TEST_CASE("a reader that cannot be believed, or has ended, is not written to any more") {
  Pair pair;
  CHECK(pair.writer->end() == nullptr);
  SUBCASE("it read what was never written") {
    pair.ring().read.store(1u << 20);
    Bytes data(Ring::capacity);
    std::size_t sent = 0;
    while (pair.writer->write_some(header_of(data.size()), data, sent)) {
    }
    CHECK(pair.writer->end() != nullptr);
  }
  SUBCASE("it has ended") {
    const auto bell = std::make_shared<Wakeup>(pair.segment, 1, 1);
    { Reading rings(pair.segment, bell, 0, 1, 2); }
    REQUIRE(pair.writer->end() != nullptr);
    CHECK(std::string(pair.writer->end()) == "it closed the connection");
  }
}

TEST_CASE("sets of rings know nothing of each other") {
  Pair pair;
  const auto bell = std::make_shared<Wakeup>(pair.segment, 1, 1);
  Reading last(pair.segment, bell, ring_sets - 1, 1, 2);
  REQUIRE(pair.writer->write(header_of(0), {}));
  CHECK_FALSE(last.rings.progress());
  CHECK_FALSE(last.has(0));
  const auto writer =
      std::make_unique<RingWriter>(*pair.segment, pair.writers_bell, ring_sets - 1, 1, 0);
  REQUIRE(writer->write(header_of(0, 5), {}));
  CHECK(last.rings.progress());
  CHECK(last.inbox.last_seen(0)->tag == 5);
  { Reading first(pair.segment, bell, 0, 1, 2); }
  CHECK(pair.writer->end() != nullptr);
  CHECK(writer->end() == nullptr);
}

TEST_CASE("whoever says that it writes is looked at, ranks that do not exist are not") {
  const auto segment = segment_of(3);
  const auto bell = std::make_shared<Wakeup>(segment, 0, 0);
  Reading reading(segment, bell, 0, 0, 3);
  segment->rank(0).readers[0].writers[0].store(~std::uint64_t{0});
  segment->rank(0).readers[0].writers[5].store(~std::uint64_t{0});
  CHECK_FALSE(reading.rings.progress());
  CHECK_FALSE(reading.has(0));
  CHECK(reading.has(1));
  CHECK(reading.has(2));
}

TEST_CASE("two threads move messages of all sizes through a ring, and sleep where they must") {
  Pair pair;
  move_by_two_threads(pair, false);
}

TEST_CASE("the same where the one that goes to sleep executes the fence for both") {
  if (!allow_remote_barriers()) return;  // Where the kernel has none nothing uses them.
  Pair pair;
  for (const int rank : {0, 1}) pair.segment->rank(rank).attached = RankBlock::with_remote_barriers;
  pair.writer.reset();
  pair.ring().written.store(0);  // As if that one had never been.
  pair.writer.emplace(*pair.segment, pair.writers_bell, 0, 1, 0);
  move_by_two_threads(pair, true);
}
