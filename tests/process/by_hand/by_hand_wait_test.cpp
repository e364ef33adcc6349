// Ranks started by hand that wait: what they say of it, and of what answers in rank 0's place.
#include "runtime/base/os/socket.hpp"
#include "tests/process/by_hand/by_hand_start.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>

TEST_CASE("who waits is told after a few seconds for whom, and why") {
  SUBCASE("nobody listens there yet") {
    const int port = free_port();
    Process one = start("env://", four(port, 1, 2), "meet");
    const std::string where = "127.0.0.1:" + std::to_string(port);
    one.read_until("dlaunch: rank 1 waits for rank 0's store at " + where +
                   ", for up to 30 s: connecting to " + where +
                   ": connection refused (nothing listens there)\n");
    Process zero = start("env://", four(port, 0, 2), "meet");
    CHECK(one.wait() == 0);
    CHECK(zero.wait() == 0);
  }
  SUBCASE("not all ranks are there") {
    const int port = free_port();
    Process zero = start("env://", four(port, 0, 3), "meet");
    Process two = start("env://", four(port, 2, 3), "meet");
    zero.read_until(
        "dlaunch: rank 0 waits for all ranks, for up to 30 s: rank 1 of 3 did not come");
    Process one = start("env://", four(port, 1, 3), "meet");
    CHECK(zero.wait() == 0);
    CHECK(one.wait() == 0);
    CHECK(two.wait() == 0);
    CHECK_FALSE(contains(two.output(), "waits for"));
  }
  SUBCASE("there is no meeting file") {
    const MeetingPath meeting;
    Process one = start(meeting.url(1, 2), {}, "meet");
    one.read_until(
        "dlaunch: rank 1 waits for rank 0, for up to 30 s: rank 0 has not written the "
        "meeting file '" +
        meeting.path + "'; is it started, and does it see this file?\n");
    Process zero = start(meeting.url(0, 2), {}, "meet");
    CHECK(one.wait() == 0);
    CHECK(zero.wait() == 0);
  }
}

TEST_CASE("an address that is silent: a firewall, a program that says nothing") {
  using namespace std::chrono_literals;
  // A listener with a full queue drops what comes, as a firewall does.
  const auto listener = dlaunch::listen_tcp(dlaunch::resolve("127.0.0.1", 0).at(0), 0);
  const dlaunch::Address at = dlaunch::local_address(listener.get());
  std::string why = "connected, but it does not answer; is it one, and is the port right?";
  std::vector<dlaunch::unique_fd> full;
  SUBCASE("filtered") {
    why = "connecting to " + at.to_string() + ": no answer (host down, or filtered by a firewall)";
    try {
      const auto until = dlaunch::Clock::now() + 5s;
      while (full.size() < 8) {
        full.push_back(dlaunch::connect_tcp(at, std::min(until, dlaunch::Clock::now() + 200ms)));
      }
    } catch (const dlaunch::Error&) {
    }
  }
  SUBCASE("accepted, without a word") {}
  Process one = start("env://", four(at.port(), 1, 2), "meet", "3500");
  one.read_until("dlaunch: rank 1 waits for rank 0's store at " + at.to_string() +
                 ", for up to 3500 ms: " + why + "\n");
  CHECK(one.wait() == 1);
  CAPTURE(one.output());
  CHECK(contains(one.output(), "error "));
  CHECK(contains(one.output(), "rank 1"));
  CHECK(contains(one.output(), "rank 0's store at " + at.to_string()));
  CHECK(one.output().rfind(why) > one.output().find("error "));
}

TEST_CASE("a program that answers lines alone is named by its answer, once it is given up") {
  const dlaunch::unique_fd listener = dlaunch::listen_tcp(dlaunch::resolve("127.0.0.1", 0).at(0));
  const dlaunch::Address at = dlaunch::local_address(listener.get());
  Process one = start("env://", four(at.port(), 1, 2), "meet", "200");
  const dlaunch::unique_fd peer(::accept(listener.get(), nullptr, nullptr));
  char byte = 0;
  while (byte != '\n') REQUIRE(::recv(peer.get(), &byte, 1, 0) == 1);
  const std::string_view answer = "HTTP/1.1 400 Bad Request\r\n";
  REQUIRE(::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(answer.size()));
  CHECK(one.wait() == 1);
  CHECK(one.output() == "error unreachable: rank 1, joining rank 0's store at " + at.to_string() +
                            ": what answers there is not dlaunch (it says "
                            "'HTTP/1.1 400 Bad Request'); is the port right?\n");
}

TEST_CASE("what answers at the address is another program: it is named, with what it says") {
  const dlaunch::unique_fd listener = dlaunch::listen_tcp(dlaunch::resolve("127.0.0.1", 0).at(0));
  const std::string where = dlaunch::local_address(listener.get()).to_string();
  Process one = start("env://", four(dlaunch::local_address(listener.get()).port(), 1, 2), "meet");
  const dlaunch::unique_fd peer(::accept(listener.get(), nullptr, nullptr));
  const std::string_view banner = "SSH-2.0-OpenSSH_9.2p1\r\n";
  REQUIRE(::send(peer.get(), banner.data(), banner.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(banner.size()));
  CHECK(one.wait() == 1);
  CHECK(one.output() == "error unreachable: rank 1, joining rank 0's store at " + where +
                            ": what answers there is not dlaunch (it says "
                            "'SSH-2.0-OpenSSH_9.2p1'); is the port right?\n");
}
