#include "launcher/watch/status_socket.hpp"

#include "tests/support/temporary_folder.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

/// A folder for status sockets that is the environment's while it lives.
struct Home {
  Home() { ::setenv("XDG_RUNTIME_DIR", own.path().c_str(), 1); }
  ~Home() { ::unsetenv("XDG_RUNTIME_DIR"); }

  testing::TemporaryFolder own;
};

std::unique_ptr<StatusSocket> agent(boost::asio::io_context& io, const std::string& job = "rr") {
  StatusSocket::Launcher launcher{
      .entry = [] { return JobEntry{}; },
      .ranks = [] { return JobRanks{}; },
      .drain = [] { return JobDrained{}; },
      .store_waits = [] { return JobStoreWaits{}; },
  };
  return std::make_unique<StatusSocket>(
      io, job, "vm", StatusSocket::Answers{[](auto, auto) {}, std::move(launcher)});
}

}  // namespace

TEST_CASE("agents of one name have a place each, and remove their own") {
  const Home home;
  boost::asio::io_context io;
  auto first = agent(io), second = agent(io);
  const StatusFolder folder(false);
  // In the order of the files' names, vm#1234ab.sock and vm.sock.
  auto places = folder.places();
  REQUIRE(places.size() == 2);
  CHECK(places[0].node.starts_with("vm#"));
  CHECK(places[1].node == "vm");
  for (const auto& place : places) CHECK(folder.connect(place));

  first.reset();
  const auto left = folder.places();
  REQUIRE(left.size() == 1);
  CHECK(left[0].node == places[0].node);
  CHECK(folder.connect(left[0]));
  // The plain name is free again.
  auto third = agent(io);
  CHECK(folder.places().size() == 2);
  CHECK(folder.places()[1].node == "vm");

  second.reset();
  third.reset();
  CHECK(folder.places().empty());
  CHECK(::access((folder.path() + "/rr").c_str(), F_OK) != 0);
}

TEST_CASE("the place of a killed agent is another's, and stays it") {
  const Home home;
  const StatusFolder folder(true);
  auto killed = folder.listen({"rr", "vm"});
  CHECK(killed.place.node == "vm");
  killed.listener.reset();
  const auto next = folder.listen({"rr", "vm"});
  CHECK(next.place.node == "vm");
  CHECK(folder.places().size() == 1);
  // The place of this name is no longer its own.
  folder.give_back(killed);
  CHECK(folder.connect(next.place));
  folder.remove_dead();
  CHECK(folder.places().size() == 1);
  folder.give_back(next);
  CHECK(folder.places().empty());
}

TEST_CASE("a name that is too long for a socket's address") {
  const Home home;
  boost::asio::io_context io;
  const auto one = agent(io, std::string(200, 'j')), other = agent(io, std::string(200, 'j'));
  const StatusFolder folder(false);
  REQUIRE(folder.places().size() == 2);
  for (const auto& place : folder.places()) CHECK(folder.connect(place));
}

TEST_CASE("stops that are asked for at the same moment count once") {
  const Home home;
  boost::asio::io_context io;
  const auto stopped = agent(io, "stopped"), drained = agent(io, "drained");
  const StatusFolder folder(false);
  const StatusFolder::Place at_stopped{"stopped", "vm"}, at_drained{"drained", "vm"};
  {
    const std::jthread answering([&] { io.run(); });
    // A question about the others is no stop.
    CHECK_FALSE(ask_to_stop(folder, at_stopped, StatusQuestion::stop_asked));
    CHECK_FALSE(ask_to_stop(folder, at_stopped, StatusQuestion::stop));
    CHECK(ask_to_stop(folder, at_stopped, StatusQuestion::stop));
    CHECK(ask_to_stop(folder, at_stopped, StatusQuestion::stop_asked));
    // A second drain is an agent's own affair.
    ask_to_drain(folder, at_drained);
    CHECK_FALSE(ask_to_stop(folder, at_drained, StatusQuestion::stop_asked));
    CHECK(ask_to_stop(folder, at_drained, StatusQuestion::stop));
    CHECK_FALSE(ask_to_stop(folder, {"none", "vm"}, StatusQuestion::stop));
    io.stop();
  }
}
