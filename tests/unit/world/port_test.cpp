#include "runtime/base/os/socket.hpp"
#include "tests/support/skipped.hpp"

#include <dlaunch/error.hpp>
#include <dlaunch/port.hpp>

#include <set>

#include <doctest/doctest.h>
#include <netinet/in.h>

using namespace dlaunch;

TEST_CASE("a listener is bound once and kept; a second one names its owner") {
  Listener first;
  CHECK(first.port() > 0);
  CHECK_FALSE(is_free_port(first.port()));
  try {
    Listener second(first.port());
    FAIL("bound twice");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::refused);
    CHECK(std::string(error.what()).find("pid " + std::to_string(::getpid())) != std::string::npos);
  }
  const int port = first.port();
  Listener moved(std::move(first));
  CHECK(moved.port() == port);
  const unique_fd released(moved.release());
  CHECK(moved.fd() == -1);
  CHECK_FALSE(is_free_port(port));
}

TEST_CASE("a port is free again when its listener is gone") {
  int port = 0;
  {
    const Listener listener;
    port = listener.port();
  }
  CHECK(is_free_port(port));
}

TEST_CASE("bound without listening is busy") {
  const unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
  CHECK_FALSE(is_free_port(local_address(fd.get()).port()));
}

TEST_CASE("a listener for IPv6 alone is busy") {
  try {
    const Listener listener(0, "::1");
    CHECK_FALSE(is_free_port(listener.port()));
  } catch (const Error& error) {
    testing::skipped(std::string("this machine has no IPv6: ") + error.what());
  }
}

TEST_CASE("a listener on another loopback address is busy") {
  const Listener listener(0, "127.0.0.5");
  CHECK_FALSE(is_free_port(listener.port()));
}

TEST_CASE("a port out of range is misuse") {
  for (const int port : {-1, 65536, 1 << 20}) {
    CHECK_THROWS_AS(is_free_port(port), Error);
    CHECK_THROWS_AS(Listener{port}, Error);
  }
  CHECK(is_free_port(0));
}

TEST_CASE("free ports that are kept never clash") {
  std::vector<Listener> listeners;
  std::set<int> ports;
  for (int i = 0; i < 200; ++i) {
    listeners.push_back(find_free_port());
    ports.insert(listeners.back().port());
  }
  CHECK(ports.size() == listeners.size());
}
