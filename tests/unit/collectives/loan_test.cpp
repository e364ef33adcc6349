// Messages that are lent: copied once, refused, taken back, and ends that cannot be trusted.
#include "collectives/transport/shm/loan.hpp"

#include "tests/unit/collectives/ring_pair.hpp"

#include <cstring>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;

namespace {

/// A pair whose writer lends what is longer than half of the ring.
struct LendingPair : Pair {
  LendingPair() {
    reader_sends = true;
    offer_loans(segment->rank(0));
    writer.emplace(*segment, writers_bell, 0, 1, 0);
  }
};

constexpr std::size_t not_lent_bytes = Ring::capacity / 2, lent_bytes = not_lent_bytes + 1;

}  // namespace

TEST_CASE("what is longer than half of a ring is lent, and copied once, among what is not") {
  LendingPair pair;
  std::size_t seed = 0;
  for (const std::size_t bytes :
       {lent_bytes, Ring::capacity + 1, std::size_t{1} << 20, std::size_t{5} << 20}) {
    pair.move(100, ++seed);
    const std::uint64_t loans = pair.ring().loans.load();
    const std::uint64_t written = pair.ring().written.load();
    pair.move(bytes, ++seed);
    CHECK(pair.ring().loans.load() == loans + 1);
    CHECK(pair.ring().written.load() == written + ring_line_bytes);
  }
  pair.move(not_lent_bytes, ++seed);
  CHECK(pair.ring().loans.load() == 4);
}

TEST_CASE("what is lent is told from what lies in the ring, also with another message behind it") {
  const Bytes data = pattern(lent_bytes, 1), next = pattern(not_lent_bytes, 2);
  LendingPair pair;
  std::size_t sent = 0;
  CHECK_FALSE(pair.writer->write(header_of(lent_bytes), data));
  REQUIRE(pair.writer->write_some(header_of(lent_bytes), data, sent));
  // As a writer of the future might: it goes on before the loan is over.
  Bytes line(ring_line_bytes);
  const Header header = header_of(next.size(), 1);
  std::memcpy(line.data(), &header, sizeof header);
  std::memcpy(pair.ring().data + ring_line_bytes, line.data(), line.size());
  std::memcpy(pair.ring().data + 2 * ring_line_bytes, next.data(), next.size());
  pair.ring().written.store(2 * ring_line_bytes + next.size());
  Bytes into(lent_bytes), into_next(next.size());
  Receive receive = receive_of(into), receive_next = receive_of(into_next, 1);
  SUBCASE("received by a look") { CHECK_FALSE(pair.reader.take(receive)); }
  SUBCASE("handed on") {}
  pair.inbox.post(receive);
  pair.inbox.post(receive_next);
  while (pair.pump()) {
  }
  CHECK(receive.state == Receive::State::done);
  CHECK(into == data);
  CHECK(receive_next.state == Receive::State::done);
  CHECK(into_next == next);
}

TEST_CASE(
    "what is lent is read to where nobody waits for it yet, and stays lent while it is held") {
  const Bytes data = pattern(lent_bytes, 1);
  const Header header = header_of(lent_bytes);
  LendingPair pair;
  std::size_t sent = 0;
  CHECK(pair.writer->write_some(header, data, sent));
  CHECK(sent == sizeof header);
  CHECK_FALSE(pair.writer->write_some(header, data, sent));
  while (pair.pump()) {
  }
  CHECK(pair.writer->write_some(header, data, sent));
  CHECK(sent == sizeof header + lent_bytes);
  Bytes into(lent_bytes);
  Receive receive = receive_of(into);
  pair.inbox.post(receive);
  CHECK(receive.state == Receive::State::done);
  CHECK(into == data);
}

TEST_CASE("a loan that is refused comes by the ring, and no more are made") {
  LendingPair pair;
  SUBCASE("the process is another one") { pair.segment->rank(0).lender.number.fetch_add(1); }
  SUBCASE("there is no such process") { pair.segment->rank(0).lender.pid.store(-1); }
  SUBCASE("its number lies nowhere") { pair.segment->rank(0).lender.address.store(64); }
  pair.move(lent_bytes, 1);
  CHECK(pair.ring().loans.load() == (Ring::refused | 1));
  pair.move(1u << 20, 2);
  CHECK(pair.ring().loans.load() == (Ring::refused | 1));
}

TEST_CASE("a reader that has nothing to send, and a processor, has the writer copy, too") {
  LendingPair pair;
  pair.reader_sends = false;
  pair.move(1u << 20, 1);
  CHECK(pair.ring().loans.load() == (Ring::declined | 1));
  pair.move(lent_bytes, 2);  // It is too short for that.
  CHECK(pair.ring().loans.load() == 2);
  pair.reader_sends = true;
  pair.move(1u << 20, 3);
  CHECK(pair.ring().loans.load() == 3);
}

TEST_CASE("what was read before the reader ended is sent, and no more") {
  LendingPair pair;
  const Bytes data = pattern(lent_bytes, 1);
  std::size_t sent = 0;
  REQUIRE(pair.writer->write_some(header_of(lent_bytes), data, sent));
  const auto leave = [&] { pair.segment->rank(1).readers[0].ended.store(1); };
  SUBCASE("read") {
    while (pair.pump()) {
    }
    leave();
    CHECK(pair.writer->end() == nullptr);  // Not yet: the loan is over, and nobody has looked.
    CHECK(pair.writer->write_some(header_of(lent_bytes), data, sent));
    CHECK(sent == sizeof(Header) + lent_bytes);
  }
  SUBCASE("not read") { leave(); }
  CHECK(pair.writer->end() != nullptr);
}

TEST_CASE("what a writer takes back while it is lent is not received") {
  LendingPair pair;
  Bytes data = pattern(lent_bytes, 1), into(lent_bytes);
  Receive receive = receive_of(into);
  pair.inbox.post(receive);
  std::size_t sent = 0;
  REQUIRE(pair.writer->write_some(header_of(lent_bytes), data, sent));
  pair.writer.reset();
  data.clear();
  data.shrink_to_fit();
  while (pair.pump()) {
  }
  CHECK(pair.reader.ended());
  CHECK(receive.state == Receive::State::filling);
  CHECK(pair.ring().loans.load() == 0);
  pair.inbox.withdraw(receive);
}

TEST_CASE("a lender and a borrower believe each other no nonsense") {
  LendingPair pair;
  const auto write_header = [&](Header header, std::uint64_t place) {
    std::memcpy(pair.ring().data, &header, sizeof header);
    std::memcpy(pair.ring().data + sizeof header, &place, sizeof place);
    pair.ring().written.store(ring_line_bytes);
  };
  SUBCASE("a short message is lent") {
    write_header(header_of(1000), 64);
    while (pair.pump()) {
    }
    CHECK(pair.reader.reason() == "it sent something that is no message of ours");
  }
  SUBCASE("what is lent lies nowhere") {
    Bytes into(lent_bytes);
    Receive receive = receive_of(into);
    pair.inbox.post(receive);
    write_header(header_of(lent_bytes), 64);
    while (pair.pump()) {
    }
    CHECK(pair.reader.reason() == "its memory could not be read to the end of a message");
    CHECK(receive.pending());
    pair.inbox.withdraw(receive);
  }
  SUBCASE("the reader says that it read what was never lent") {
    const Bytes data = pattern(lent_bytes, 1);
    std::size_t sent = 0;
    REQUIRE(pair.writer->write_some(header_of(lent_bytes), data, sent));
    pair.ring().loans.store(7);
    CHECK_FALSE(pair.writer->write_some(header_of(lent_bytes), data, sent));
    REQUIRE(pair.writer->end() != nullptr);
    CHECK(std::string(pair.writer->end()) == "it read what was never written to it");
  }
}
