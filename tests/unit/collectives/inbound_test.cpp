// The receiving end of a connection, over a pair of sockets.
#include "collectives/transport/tcp/inbound_connection.hpp"
#include "runtime/base/os/socket.hpp"

#include <cstring>
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

Receive receive_of(std::vector<std::byte>& into, int tag) {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = 1;
  receive.from = 0;
  receive.tag = tag;
  receive.expected = message_of(into.size());
  receive.into = into;
  return receive;
}

void append(Bytes& to, const Header& header, std::size_t payload) {
  const auto* at = reinterpret_cast<const std::byte*>(&header);
  to.insert(to.end(), at, at + sizeof header);
  to.resize(to.size() + payload, std::byte{7});
}

}  // namespace

TEST_CASE("what a rank sent before it closed its connection arrives, whoever reads the end") {
  auto [mine, theirs] = socket_pair();
  Bytes sent;
  append(sent, make_header(Kind::message, 1, message_of(8), 8, 0), 8);
  append(sent, make_header(Kind::message, 1, message_of(8), 8, 1), 8);
  Header notice;
  notice.kind = Kind::failure;
  notice.bytes = 5;
  append(sent, notice, 5);
  REQUIRE(::send(theirs.get(), sent.data(), sent.size(), 0) == static_cast<ssize_t>(sent.size()));
  theirs.reset();

  InboundConnection connection(std::move(mine), 0);
  Inbox inbox;
  std::size_t notices = 0;
  const OnControl on_control = [&](int, const Header&, BytesView payload) {
    if (payload.size() == 5) ++notices;
  };
  std::vector<std::byte> first(8), second(8), long_one(4096);
  Receive taken = receive_of(first, 0), wanted = receive_of(long_one, 2);
  REQUIRE(connection.take(taken));
  CHECK_FALSE(connection.take(wanted));  // There is less than it wants, so it reads on, to the end.
  CHECK_FALSE(connection.ended());
  REQUIRE(connection.held());
  while (!connection.ended()) REQUIRE(connection.pump(inbox, on_control));
  CHECK(connection.reason() == "it closed the connection");
  CHECK(notices == 1);
  Receive late = receive_of(second, 1);
  inbox.post(late);
  CHECK(late.state == Receive::State::done);
}

TEST_CASE("an end is told when all before it was handed on, and not while a source is held") {
  auto [mine, theirs] = socket_pair();
  InboundConnection connection(std::move(mine), 0);
  Inbox inbox;
  const OnControl on_control = [](int, const Header&, BytesView) {};
  SUBCASE("it had said nothing") {
    theirs.reset();
    std::vector<std::byte> into(8);
    Receive receive = receive_of(into, 0);
    CHECK_FALSE(connection.take(receive));
    CHECK(connection.held());
  }
  SUBCASE("in the midst of a message") {
    Bytes sent;
    append(sent, make_header(Kind::message, 1, message_of(800), 800, 0), 100);
    REQUIRE(::send(theirs.get(), sent.data(), sent.size(), 0) > 0);
    theirs.reset();
  }
  while (!connection.ended()) REQUIRE(connection.pump(inbox, on_control));
  CHECK(connection.reason() == "it closed the connection");
}
