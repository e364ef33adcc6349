// A round that has to tell more nodes than one turn of its job can: what happens meanwhile.
#include "rendezvous/service/actions.hpp"
#include "tests/support/agent_peer.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <sys/ioctl.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

constexpr int nodes = 300;

std::string id_of(int i) { return "n" + std::to_string(1000 + i); }

/// A job whose first round has closed, but for its last node's join.
struct BigJob {
  explicit BigJob(ServiceThread& service, int max_restarts = 0) : restarts(max_restarts) {
    for (int i = 0; i < nodes; ++i) {
      peers.emplace_back(service.address, "big", static_cast<std::uint64_t>(1 + i)).welcome();
      if (i + 1 < nodes) peers.back().tell(node(id_of(i), nodes, restarts));
    }
    // Nothing else is said then.
    const std::string last_words = std::to_string(nodes - 1) + " of " + std::to_string(nodes);
    for (int i = 0; i + 1 < nodes; ++i) {
      while (peers[static_cast<std::size_t>(i)].hear<message::Standing>().sentence.find(
                 last_words) != 0) {
        continue;
      }
    }
  }
  void complete() { peers.back().tell(node(id_of(nodes - 1), nodes, restarts)); }

  std::deque<AgentPeer> peers;
  int restarts;
};

/// Has the round close and `act` happen as soon as its first nodes are told, on the service's
/// thread. Returns how many of the others had heard something by then.
template <class Act>
std::ptrdiff_t close_and(ServiceThread& service, BigJob& job, Act act) {
  std::promise<std::ptrdiff_t> told;
  bool closed = false;
  service.on_loop([&](rendezvous::Service&) {
    service.on_line = [&](const rendezvous::LogLine& line) {
      if (line.event != rendezvous::LogLine::Event::epoch || std::exchange(closed, true)) return;
      // The job's turn is over by the time when the first nodes are told.
      const auto over = Clock::now() + std::chrono::milliseconds(10);
      while (Clock::now() < over) continue;
      service.post([&](rendezvous::Service& live) {
        const auto heard = std::ranges::count_if(
            job.peers, [](const AgentPeer& each) { return each.has_something_to_read(); });
        act(live);
        told.set_value(heard);
      });
    };
  });
  job.complete();
  return told.get_future().get();
}

}  // namespace

TEST_CASE("all nodes of a big round hear of it, and some have not yet when the first act on it") {
  ServiceThread service;
  BigJob job(service);
  const auto told = close_and(service, job, [&](rendezvous::Service&) {
    job.peers.front().tell(ended(1));  // Whatever epoch it has been told of: it is the first one.
  });
  CHECK(told > 0);
  CHECK(told < nodes);
  for (int i = 0; i < nodes; ++i) {
    AgentPeer& each = job.peers[static_cast<std::size_t>(i)];
    const auto place = each.hear<message::Admitted>().admission;
    CHECK(place.epoch == 1);
    CHECK(place.node_rank == i);
    if (i > 0) each.tell(ended(1));
  }
  for (AgentPeer& each : job.peers) CHECK(each.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("a node that is evicted before it is told of its round is told, and goes") {
  ServiceThread service;
  BigJob job(service, 1);
  rendezvous::ActionOutcome outcome;
  const auto told = close_and(service, job, [&](rendezvous::Service& live) {
    outcome = live.act({rendezvous::Action::Kind::evict, "big", id_of(nodes - 1), "", "ada", "it"});
  });
  CHECK(told < nodes);
  CHECK(outcome.sentence == "it counts as lost");
  for (AgentPeer& each : job.peers) CHECK(each.hear<message::Admitted>().admission.epoch == 1);
  CHECK(job.peers.back().hear<message::Refused>().reason ==
        "this node was evicted by operator 'ada'");
  job.peers.pop_back();
  for (AgentPeer& each : job.peers) CHECK(each.hear<message::Stopped>().epoch == 1);
}

TEST_CASE("a node whose connection breaks before it is told of its round has its place") {
  ServiceThread service;
  BigJob job(service);
  const auto told =
      close_and(service, job, [&](rendezvous::Service&) { job.peers.back().hang_up(); });
  CHECK(told < nodes);
  AgentPeer again(service.address, "big", nodes);
  again.welcome();
  again.tell(node(id_of(nodes - 1), nodes));
  CHECK(again.hear<message::Admitted>().admission.node_rank == nodes - 1);
  job.peers.pop_back();
  for (AgentPeer& each : job.peers) {
    CHECK(each.hear<message::Admitted>().admission.epoch == 1);
    each.tell(ended(1));
  }
  again.tell(ended(1));
  CHECK(again.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("a job that is removed before all nodes of its round are told ends on all of them") {
  ServiceThread service;
  BigJob job(service);
  const auto told = close_and(service, job, [&](rendezvous::Service& live) {
    live.act({rendezvous::Action::Kind::remove, "big", "", "", "ada", "it"});
  });
  CHECK(told < nodes);
  for (AgentPeer& each : job.peers) CHECK(each.hear<message::Finished>().exit_code == 143);
  CHECK(service.jobs().empty());
}
