// The receiving end of a connection, over a pair of sockets.
#include "collectives/transport/tcp/inbound_connection.hpp"
#include "runtime/base/os/socket.hpp"
#include "tests/support/expect.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::transport;

namespace {

Fingerprint message_of(std::size_t bytes) {
  Fingerprint call;
  call.op = Op::send;
  call.dtype = DType::u8;
  call.count = bytes;
  return call;
}

Receive receive_of(std::vector<std::byte>& into, int tag, int from = 0) {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = 1;
  receive.from = from;
  receive.tag = tag;
  receive.expected = message_of(into.size());
  receive.into = into;
  return receive;
}

void append(Bytes& to, const Header& header, std::size_t payload, int value = 7) {
  const auto* at = reinterpret_cast<const std::byte*>(&header);
  to.insert(to.end(), at, at + sizeof header);
  to.resize(to.size() + payload, static_cast<std::byte>(value));
}

void append_message(Bytes& to, std::size_t bytes, int tag) {
  append(to, make_header(Kind::message, 1, message_of(bytes), bytes, tag), bytes, tag);
}

void append_notice(Bytes& to, std::size_t bytes) {
  Header notice;
  notice.kind = Kind::failure;
  notice.bytes = bytes;
  append(to, notice, bytes);
}

void send_all(const unique_fd& socket, const Bytes& bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

/// A rank's connections, which are read as a transport reads them.
class Reader final : private Sources {
 public:
  explicit Reader(std::size_t parked_bytes_max = 1u << 20) : inbox(parked_bytes_max) {}

  Inbox inbox;
  InboundConnection::Unfinished unfinished;
  std::vector<std::size_t> notices;  ///< How long they were.
  bool fails = false;                ///< At the next notice.

  InboundConnection& connect(unique_fd socket) {
    const int from = static_cast<int>(connections_.size());
    return connections_.emplace_back(Surroundings{poller_, inbox, on_control_, *this},
                                     std::move(socket), from, unfinished);
  }
  /// What was left, and what descriptors tell of. Returns whether there was anything.
  bool look() {
    bool moved = false;
    for (InboundConnection* each : std::exchange(unfinished, {})) moved = each->go_on() || moved;
    return poller_.wait(0, [](const auto& wait) { return wait(); }) || moved;
  }

 private:
  bool has(int) const override { return false; }
  void add(int, ReceivingEnd&) override {}

  Poller poller_;
  const OnControl on_control_ = [this](int, const Header&, BytesView payload) {
    notices.push_back(payload.size());
    if (std::exchange(fails, false)) throw std::runtime_error("the store is gone");
  };
  std::deque<InboundConnection> connections_;
};

}  // namespace

TEST_CASE("what a rank sent before it closed its connection arrives, whoever reads the end") {
  auto [mine, theirs] = socket_pair();
  Bytes sent;
  append_message(sent, 8, 0);
  append_message(sent, 8, 1);
  append_notice(sent, 5);
  send_all(theirs, sent);
  theirs.reset();

  Reader reader;
  InboundConnection& connection = reader.connect(std::move(mine));
  std::vector<std::byte> first(8), second(8), long_one(4096);
  Receive taken = receive_of(first, 0), wanted = receive_of(long_one, 2);
  REQUIRE(connection.take(taken));
  CHECK_FALSE(connection.take(wanted));  // There is less than it wants, so it reads on, to the end.
  CHECK_FALSE(connection.ended());
  REQUIRE(reader.unfinished.size() == 1);
  while (!connection.ended()) REQUIRE(reader.look());
  CHECK(connection.reason() == "it closed the connection");
  CHECK(reader.notices == std::vector<std::size_t>{5});
  Receive late = receive_of(second, 1);
  reader.inbox.post(late);
  CHECK(late.state == Receive::State::done);
}

TEST_CASE("an end is told when all before it was handed on") {
  auto [mine, theirs] = socket_pair();
  Reader reader;
  InboundConnection& connection = reader.connect(std::move(mine));
  SUBCASE("it had said nothing") {
    theirs.reset();
    std::vector<std::byte> into(8);
    Receive receive = receive_of(into, 0);
    CHECK_FALSE(connection.take(receive));
    CHECK(reader.unfinished.size() == 1);
  }
  SUBCASE("in the midst of a message") {
    Bytes sent;
    append_message(sent, 800, 0);
    sent.resize(sizeof(Header) + 100);
    send_all(theirs, sent);
    theirs.reset();
  }
  SUBCASE("after a message of which was told before") {
    Bytes sent;
    append_message(sent, 800, 0);
    send_all(theirs, sent);
    CHECK(reader.look());
    CHECK_FALSE(reader.look());
    theirs.reset();
  }
  while (!connection.ended()) REQUIRE(reader.look());
  CHECK(connection.reason() == "it closed the connection");
  CHECK_FALSE(reader.look());
}

TEST_CASE("a receive that looks again and again reads no more than the buffer has room for") {
  auto [mine, theirs] = socket_pair();
  Reader reader;
  InboundConnection& connection = reader.connect(std::move(mine));
  Bytes sent;
  append_message(sent, 100000, 1);
  send_all(theirs, sent);
  std::vector<std::byte> little(8), into(100000);
  Receive other = receive_of(little, 2), receive = receive_of(into, 1);
  other.up_to = true;
  for (int i = 0; i < 3; ++i) CHECK_FALSE(connection.take(other));
  CHECK_FALSE(connection.ended());
  reader.inbox.post(receive);
  while (receive.pending()) REQUIRE(reader.look());
  CHECK(into.back() == std::byte{1});
}

TEST_CASE("a receive of up to so much takes what is shorter straight from the buffer") {
  auto [mine, theirs] = socket_pair();
  Reader reader;
  InboundConnection& connection = reader.connect(std::move(mine));
  Bytes sent;
  append_message(sent, 3, 1);
  append_message(sent, 0, 1);
  append_message(sent, 9, 1);
  send_all(theirs, sent);
  std::vector<std::byte> into(8);
  Receive receive = receive_of(into, 1);
  receive.up_to = true;
  REQUIRE(connection.take(receive));
  CHECK(receive.header.count == 3);
  CHECK(into[2] == std::byte{1});
  CHECK(into[3] == std::byte{0});
  REQUIRE(connection.take(receive));
  CHECK(receive.header.count == 0);
  receive.state = Receive::State::waiting;
  CHECK_FALSE(connection.take(receive));  // It is too long.
  CHECK(receive.pending());
}

TEST_CASE("what is behind a message that is held is read when that is taken; nothing tells of it") {
  auto [mine, theirs] = socket_pair();
  Reader reader(300);  // Room for one of them.
  InboundConnection& connection = reader.connect(std::move(mine));
  Bytes sent;
  append_message(sent, 100, 0);
  append_message(sent, 100, 1);
  append_notice(sent, 5);
  send_all(theirs, sent);
  bool closes = false;
  SUBCASE("and its sender goes on") {}
  SUBCASE("and its sender has closed") { closes = true; }
  if (closes) theirs.reset();
  CHECK(reader.look());
  CHECK_FALSE(reader.look());
  CHECK(reader.notices.empty());
  CHECK_FALSE(connection.ended());

  std::vector<std::byte> into(100);
  Receive receive = receive_of(into, 0);
  reader.inbox.post(receive);
  CHECK(receive.state == Receive::State::done);
  CHECK(reader.look());
  CHECK(reader.notices.size() == 1);
  CHECK(connection.ended() == closes);
}

TEST_CASE("where handing on fails, the rest comes later, and other connections' at once") {
  Reader reader;
  std::vector<unique_fd> senders;
  Bytes sent;
  append_notice(sent, 5);
  append_message(sent, 8, 0);
  for (int from = 0; from < 3; ++from) {
    auto [mine, theirs] = socket_pair();
    reader.connect(std::move(mine));
    send_all(theirs, sent);
    senders.push_back(std::move(theirs));
  }
  reader.fails = true;
  CHECK_THROWS_WITH(reader.look(), "the store is gone");
  const auto arrived = [&](int from) { return reader.inbox.peek(1, from, 0, {}).has_value(); };
  CHECK(arrived(0) + arrived(1) + arrived(2) == 2);
  CHECK(reader.look());
  CHECK(arrived(0) + arrived(1) + arrived(2) == 3);
  CHECK(reader.notices.size() == 3);
}

namespace {

/// A rank that sends some messages in pieces, and closes behind the last or before.
struct Sender {
  int rank = 0;
  unique_fd socket;
  Bytes stream;
  std::size_t sent = 0;
  std::vector<std::size_t> sizes;  ///< Sizes of messages whose header, at least, is sent.
  int complete = 0;                ///< So many of them are sent as a whole.

  // At the receiving end.
  InboundConnection* connection = nullptr;
  int next = 0;  ///< To be received.
  std::vector<std::byte> into;
  Receive receive;
  bool is_posted = false;

  bool is_over() const { return next == complete && connection->ended(); }
  void write(std::size_t bytes) {
    const BytesView part = BytesView(stream).subspan(sent, std::min(bytes, stream.size() - sent));
    const ssize_t n = ::send(socket.get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<std::size_t>(n);
    if (sent == stream.size()) socket.reset();
  }
  void arrived() {
    CHECK(into == std::vector<std::byte>(into.size(), static_cast<std::byte>(next)));
    is_posted = false;
    ++next;
  }
};

}  // namespace

TEST_CASE("whatever is sent in whichever pieces, all of it arrives, and then the end") {
  const int seeds = testing::is_full() ? 1000 : 60;
  for (int seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::size_t max) {
      return std::uniform_int_distribution<std::size_t>(0, max)(random);
    };
    std::vector<Sender> senders(1 + draw(5));
    int ranks = 0;
    Reader reader(seed % 3 == 0 ? 1u << 20 : 2048);  // With little room they are held.
    for (Sender& each : senders) {
      auto [mine, theirs] = socket_pair();
      each.connection = &reader.connect(std::move(mine));
      each.rank = ranks++;
      each.socket = std::move(theirs);
      std::vector<std::size_t> ends;
      for (std::size_t left = draw(8); left > 0; --left) {
        each.sizes.push_back(draw(3) == 0 ? draw(70'000) : draw(300));
        append_message(each.stream, each.sizes.back(), static_cast<int>(each.sizes.size()) - 1);
        ends.push_back(each.stream.size());
      }
      if (draw(2) == 0) each.stream.resize(draw(each.stream.size()));
      while (!ends.empty() &&
             ends.back() - each.sizes.back() > each.stream.size()) {  // Not even a header.
        ends.pop_back();
        each.sizes.pop_back();
      }
      each.complete = static_cast<int>(std::count_if(
          ends.begin(), ends.end(), [&](std::size_t end) { return end <= each.stream.size(); }));
    }
    const auto receive_next = [&](Sender& from) {
      const auto place = static_cast<std::size_t>(from.next);
      if (from.is_posted || place == from.sizes.size()) return;
      from.into.assign(from.sizes[place], std::byte{0xff});
      from.receive = receive_of(from.into, from.next, from.rank);
      const bool takes = from.into.size() < InboundConnection::direct_bytes_min && seed % 2 == 0;
      if (takes && reader.inbox.is_clear(from.rank) && from.connection->take(from.receive)) {
        return from.arrived();
      }
      from.is_posted = true;
      reader.inbox.post(from.receive);
    };
    int steps = 0;
    while (
        !std::all_of(senders.begin(), senders.end(), [](const auto& s) { return s.is_over(); })) {
      REQUIRE(++steps < 100'000);
      Sender& one = senders[draw(senders.size() - 1)];
      switch (draw(2)) {
        case 0:
          if (one.socket) one.write(1 + draw(20'000));
          break;
        case 1:
          reader.look();
          break;
        default:
          receive_next(one);
      }
      for (Sender& each : senders) {
        if (each.is_posted && each.receive.state == Receive::State::done) each.arrived();
      }
    }
    for (Sender& each : senders) {
      CHECK(each.connection->reason() == "it closed the connection");
      if (each.is_posted) reader.inbox.withdraw(each.receive);
    }
  }
}
