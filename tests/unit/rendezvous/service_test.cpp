// Jobs by real sockets: agents that say what the test tells them to.
#include "tests/support/agent_peer.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;
using namespace std::chrono_literals;

TEST_CASE("two nodes join, meet in the store, and finish") {
  ServiceThread service;
  AgentPeer early(service.address, "job", 10);
  CHECK(early.welcome().job == "job");
  early.tell(node("a"));
  CHECK(early.hear<message::Standing>().sentence.find("1 of 2") != std::string::npos);
  early.ask(1, wire::Get{"k"});
  CHECK(early.answer<wire::Failed>().sentence == "not admitted to a round yet");
  CHECK_FALSE(service.idle());

  AgentPeer late(service.address, "job", 11);
  late.welcome();
  late.tell(node("b"));
  const auto a = early.hear<message::Admitted>(), b = late.hear<message::Admitted>();
  CHECK(a.admission.incarnation > 0);
  CHECK(a.admission.epoch == 1);
  CHECK(a.admission.world_size == 2);
  CHECK(a.admission.node_rank == 0);
  CHECK(b.admission.node_rank == 1);
  CHECK(b.admission.first_rank == 1);
  CHECK(a.admission.roster->size() == 2);
  CHECK(b.admission.roster->empty());
  early.ask(2, wire::AllGather{"g", 0, 2, {}, {0}, {as_bytes("x")}}, 1);
  late.ask(1, wire::AllGather{"g", 0, 2, {}, {1}, {as_bytes("y")}}, 1);
  CHECK(as_text(early.answer<wire::Gathered>().blobs.at(1)) == "y");
  CHECK(as_text(late.answer<wire::Gathered>().blobs.at(0)) == "x");
  early.tell(message::Heartbeat{});
  early.hear<message::Heartbeat>();

  early.tell(message::Ask{1, 5, message::Ask::all_nodes, 10s, {std::byte{'?'}}});
  const auto asked = late.hear<message::Asked>();
  CHECK(as_text(asked.question) == "?");
  late.tell(message::Answer{1, asked.number, {std::byte{'!'}}});
  const auto answered = early.hear<message::Answered>();
  CHECK(answered.number == 5);
  CHECK(answered.node == 1);
  CHECK(as_text(answered.answer) == "!");
  CHECK(early.hear<message::Answered>().node == message::Answered::no_more);
  // It names another epoch: nobody is asked.
  early.tell(message::Ask{2, 6, message::Ask::all_nodes, 10s, {}});
  CHECK(early.hear<message::Answered>().number == 6);

  early.tell(ended(1));
  late.ask(2, wire::WaitGet{{}, "never"});
  late.tell(ended(1));
  CHECK(early.hear<message::Finished>().exit_code == 0);
  CHECK(late.hear<message::Finished>().exit_code == 0);
  CHECK(late.answer<wire::Failed>().code == Errc::aborted);
  CHECK(service.logged("job", "epoch 1, attempt 0: 2 nodes, 2 ranks"));
  CHECK(service.logged("job", "finished with exit code 0"));
  early.say_goodbye();
  late.say_goodbye();
  CHECK(early.closed_by_service());
  CHECK(late.closed_by_service());
  const auto jobs = service.jobs();
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0].status.state == rendezvous::JobStatus::State::finished);
  CHECK(service.idle());
}

TEST_CASE("jobs can be looked at one by one, by name, and a look is no step") {
  ServiceThread service;
  Pair second(service, "b", 10);
  Pair first(service, "a", 20);
  first.succeed();
  service.on_loop([](rendezvous::Service& live) {
    const auto a = live.job_after("");
    REQUIRE(a);
    CHECK(a->job == "a");
    REQUIRE(a->finish);
    CHECK(a->finish->exit_code == 0);
    const auto b = live.job_after("a");
    REQUIRE(b);
    CHECK(b->job == "b");
    CHECK_FALSE(b->finish);
    REQUIRE(b->status.nodes.size() == 2);
    for (const auto& node : b->status.nodes) CHECK(Clock::now() - node.last_heard < 20s);
    CHECK_FALSE(live.job_after("b"));
    std::uint64_t messages = 0;
    for (const auto count : live.message_times().counts) messages += count;
    CHECK(messages >= 6);  // Four have joined, and two have ended.
    return 0;
  });
  second.succeed();
}

TEST_CASE("a failure stops the others, and the next epoch's store is empty") {
  ServiceThread service;
  Pair job(service, "job", 10, node("a", 2, 1), node("b", 2, 1));
  job.b.ask(1, wire::Set{"k", as_bytes("v")}, 1);
  job.b.answer<wire::Done>();
  job.b.ask(2, wire::WaitGet{{}, "never"}, 1);
  job.a.tell(message::WorkerFailed{1, failed_fact(0)});
  const auto stop = job.b.hear<message::Stopped>();
  CHECK(stop.epoch == 1);
  CHECK(stop.cause == rendezvous::Stop::Cause::failure);
  job.a.tell(ended(1, Outcome::failed, 3));
  job.b.tell(ended(1, Outcome::stopped));
  const auto again = job.b.hear<message::Admitted>();
  CHECK(again.admission.epoch == 2);
  CHECK(again.admission.attempt == 1);
  CHECK(job.b.answer<wire::Failed>().code == Errc::aborted);
  job.b.ask(3, wire::Get{"k"}, 1);
  CHECK(job.b.answer<wire::Failed>().sentence == "a message of epoch 1 came in epoch 2");
  job.b.ask(4, wire::Get{"k"}, 2);
  job.b.answer<wire::Absent>();
  CHECK(service.logged("job", "epoch 1 is stopped"));
}

TEST_CASE("a node whose connection breaks and does not come back is lost") {
  ServiceThread service;
  Pair job(service, "job", 10, impatient("a"), impatient("b"));
  job.a.ask(1, wire::Barrier{"b", 0, 2, {}, {0}}, 1);
  job.b.hang_up();
  const auto lost = job.a.hear<message::RanksLost>();
  CHECK(lost.first_rank == 1);
  CHECK(lost.count == 1);
  CHECK(lost.host == "host-b");
  const auto failed = job.a.answer<wire::Failed>();
  CHECK(failed.code == Errc::peer_lost);
  CHECK(failed.sentence.find("rank 1 on host-b is lost") != std::string::npos);
  job.a.hear<message::Stopped>();
  job.a.tell(ended(1, Outcome::stopped));
  CHECK(job.a.hear<message::Finished>().exit_code != 0);
  CHECK(service.logged("job", "rank 1 on host-b lost"));
}

TEST_CASE("a node that comes back under its session goes on where it was") {
  ServiceThread service;
  Pair job(service, "job", 10);
  job.b.ask(1, wire::Add{"n", 1}, 1);
  CHECK(job.b.answer<wire::Number>().value == 1);
  SUBCASE("after its connection broke") { job.b.hang_up(); }
  SUBCASE("while the old connection still seems to be there") {}
  AgentPeer back(service.address, "job", 11);
  back.ask(1, wire::Add{"n", 1}, 1);  // Right behind HELLO.
  CHECK(back.welcome().epoch == 1);
  CHECK(back.answer<wire::Number>().value == 1);
  auto join = node("b");
  join.holding = rendezvous::Holding{1, 1, 0, 1, 2, 1, 2};
  back.tell(join);
  back.ask(2, wire::Barrier{"b", 0, 2, {}, {1}}, 1);
  job.a.ask(1, wire::Barrier{"b", 0, 2, {}, {0}}, 1);
  job.a.answer<wire::Done>();
  back.answer<wire::Done>();
  job.a.tell(ended(1));
  back.tell(ended(1));
  CHECK(job.a.hear<message::Finished>().exit_code == 0);
  CHECK(back.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("two jobs do not see each other") {
  ServiceThread service;
  Pair one(service, "one", 10), two(service, "two", 20);
  one.a.ask(1, wire::Set{"k", as_bytes("of one")});
  one.a.answer<wire::Done>();
  two.a.ask(1, wire::Get{"k"});
  two.a.answer<wire::Absent>();
  one.succeed();
  two.a.ask(2, wire::Set{"k", as_bytes("of two")});
  two.a.answer<wire::Done>();
  // A session is one job's.
  AgentPeer thief(service.address, "one", 20);
  CHECK(thief.unwelcome().sentence == "this session belongs to another job");
  // A tool looks around in a job that exists.
  AgentPeer tool(service.address, "two", 0);
  tool.welcome();
  tool.ask(1, wire::Get{"k"});
  CHECK(as_text(tool.answer<wire::Found>().value) == "of two");
  AgentPeer lost(service.address, "three", 0);
  CHECK(lost.unwelcome().sentence == "there is no job 'three' here");
  AgentPeer nameless(service.address, "", 5);
  CHECK(nameless.unwelcome().sentence.find("--rdzv-id") != std::string::npos);
  two.succeed();
}

TEST_CASE("one more than the job takes waits, and takes the place of one that is lost") {
  ServiceThread service;
  Pair job(service, "job", 10, impatient("a", 2, 3), impatient("b", 2, 3));
  AgentPeer late(service.address, "job", 12);
  late.welcome();
  late.tell(impatient("c", 2, 3));
  late.hear<message::Standing>();
  late.ask(1, wire::Get{"k"});
  CHECK(late.answer<wire::Failed>().sentence == "not admitted to a round yet");
  job.b.hang_up();
  job.a.hear<message::Stopped>();
  job.a.tell(ended(1, Outcome::stopped));
  const auto a = job.a.hear<message::Admitted>(), c = late.hear<message::Admitted>();
  CHECK(a.admission.epoch > 1);
  CHECK(c.admission.epoch == a.admission.epoch);
  late.ask(2, wire::Get{"k"}, c.admission.epoch);
  late.answer<wire::Absent>();
}

TEST_CASE("a job's name is used again: a new incarnation, and its epochs go on") {
  ServiceThread service;
  Pair first(service, "job", 10);
  first.succeed();
  // A node that took part and asks again is told again.
  AgentPeer again(service.address, "job", 10);
  again.welcome();
  again.tell(node("a"));
  CHECK(again.hear<message::Finished>().exit_code == 0);
  Pair second(service, "job", 20);
  CHECK(second.place_a.admission.incarnation > first.place_a.admission.incarnation);
  CHECK(second.epoch == 2);
  first.a.tell(ended(2));  // It is not of this one.
  first.a.hang_up();
  second.succeed();
}

TEST_CASE("a node that missed the end of its job hears of it, and begins no new one") {
  ServiceThread service;
  Pair job(service, "job", 10);
  job.succeed();
  const auto incarnation = job.place_a.admission.incarnation;
  AgentPeer late(service.address, "job", 99);
  late.welcome();
  auto join = node("c");
  join.holding = rendezvous::Holding{incarnation, 1, 0, 1, 2, 1, 2};
  late.tell(join);
  CHECK(late.hear<message::Finished>().exit_code == 0);
  REQUIRE(service.jobs().size() == 1);
  CHECK(service.jobs().at(0).incarnation == incarnation);
}

TEST_CASE("a finished job is forgotten in time, and what comes after is numbered higher") {
  rendezvous::ServiceRules rules;
  rules.remember = std::chrono::milliseconds(1);
  ServiceThread service(rules);
  Pair job(service, "job", 10);
  job.succeed();
  const auto deadline = soon();
  while (!service.jobs().empty() && Clock::now() < deadline) std::this_thread::yield();
  CHECK(service.jobs().empty());
  Pair next(service, "job", 20);
  CHECK(next.epoch == 2);
  CHECK(next.place_a.admission.incarnation > job.place_a.admission.incarnation);
}

TEST_CASE("whoever says anything lives: an agent that uses the store needs no heartbeats") {
  ServiceThread service;
  Pair job(service, "job", 10);
  const auto heard = [&](const std::string& id) {
    const auto jobs = service.jobs();
    REQUIRE(jobs.size() == 1);
    for (const auto& node : jobs[0].status.nodes) {
      if (node.id == id) return node.last_heard;
    }
    return Clock::time_point{};
  };
  const auto a = heard("a"), b = heard("b");
  job.a.ask(1, wire::Count{});
  job.a.answer<wire::Number>();
  CHECK(heard("a") > a);
  CHECK(heard("b") == b);
  job.b.tell(message::Heartbeat{});
  job.b.hear<message::Heartbeat>();
  CHECK(heard("b") > b);
}

TEST_CASE("a node that was silent for too long is given up, and joins anew") {
  ServiceThread service;
  auto a = node("a", 2, 1), b = node("b", 2, 1);
  a.rules.liveness.lease = b.rules.liveness.lease = std::chrono::seconds(1);
  Pair job(service, "job", 10, a, b);
  {
    // The other one lives.
    std::jthread beats([&job](std::stop_token stop) {
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      while (!stop.stop_requested()) {
        job.a.tell(message::Heartbeat{});
        never.wait_for(lock, stop, std::chrono::milliseconds(100), [] { return false; });
      }
    });
    CHECK(service.logged("job", "rank 1 on host-b lost: node b is lost: silent for 1"));
  }
  job.b.tell(message::Heartbeat{});
  auto stop = job.b.hear<message::Stopped>();
  // It may have been told of the other's loss while it was still waited for.
  if (stop.cause == rendezvous::Stop::Cause::membership) stop = job.b.hear<message::Stopped>();
  CHECK(stop.cause == rendezvous::Stop::Cause::evicted);
  job.b.ask(1, wire::Get{"k"});
  CHECK(job.b.answer<wire::Failed>().sentence == "not admitted to a round yet");
  CHECK(service.logged("job", "node b was given up"));
}

TEST_CASE("a service that was started anew takes up what its agents hold") {
  ServiceThread service;
  std::vector<std::unique_ptr<AgentPeer>> agents;
  for (int rank = 0; rank < 2; ++rank) {
    auto& agent = *agents.emplace_back(
        std::make_unique<AgentPeer>(service.address, "job", 10 + std::uint64_t(rank)));
    CHECK(agent.welcome().epoch == (rank == 0 ? 0 : 7));
    auto join = node(rank == 0 ? "a" : "b");
    join.holding = rendezvous::Holding{3, 7, 1, rank, 2, rank, 2};
    agent.tell(join);
    // It sits in the store of its epoch again, which is empty.
    agent.tell(message::Heartbeat{});
    agent.hear<message::Heartbeat>();
    agent.ask(1, wire::Get{"k"}, 7);
    agent.answer<wire::Absent>();
  }
  CHECK(service.jobs().at(0).incarnation == 3);
  for (auto& agent : agents) agent->tell(ended(7));
  for (auto& agent : agents) CHECK(agent->hear<message::Finished>().exit_code == 0);
}

namespace {

/// An agent that comes back to a service that was started again, with a place in epoch 1 of two
/// nodes that an earlier service gave out.
std::unique_ptr<AgentPeer> comes_back(ServiceThread& service, std::uint64_t session, int rank) {
  auto agent = std::make_unique<AgentPeer>(service.address, "job", session);
  agent->welcome();
  auto join = node(rank == 0 ? "a" : "b");
  join.holding = rendezvous::Holding{3, 1, 0, rank, 2, rank, 2};
  agent->tell(join);
  agent->tell(message::Heartbeat{});
  agent->hear<message::Heartbeat>();
  return agent;
}

}  // namespace

TEST_CASE("a job's name is used again before the job is back: the one that runs goes on") {
  ServiceThread service;
  Pair second(service, "job", 20);
  CHECK(second.epoch == 1);
  CHECK(second.place_a.admission.incarnation > 3);
  SUBCASE("the second runs") {
    const auto a = comes_back(service, 10, 0), b = comes_back(service, 11, 1);
    for (AgentPeer* peer : {&second.a, &second.b}) {
      CHECK(peer->hear<message::Stopped>().cause == rendezvous::Stop::Cause::evicted);
      peer->tell(ended(1, Outcome::stopped));
    }
    second.a.tell(node("a"));
    CHECK(second.a.hear<message::Refused>().exit_code == 64);
    CHECK(service.jobs().at(0).incarnation == 3);
    // The store of its epoch is not that of the other's first.
    a->ask(1, wire::Get{"k"}, 1);
    a->answer<wire::Absent>();
    a->tell(ended(1));
    b->tell(ended(1));
    CHECK(a->hear<message::Finished>().exit_code == 0);
    CHECK(b->hear<message::Finished>().exit_code == 0);
  }
  SUBCASE("the second is over") {
    second.succeed();
    const auto a = comes_back(service, 10, 0), b = comes_back(service, 11, 1);
    CHECK(service.jobs().at(0).incarnation == 3);
    a->tell(ended(1));
    b->tell(ended(1));
    CHECK(a->hear<message::Finished>().exit_code == 0);
  }
}

TEST_CASE("a job that everybody has left is over, and the next one has rules of its own") {
  ServiceThread service;
  AgentPeer agent(service.address, "job", 1);
  agent.welcome();
  auto join = impatient("a", 3);
  join.rules.liveness.lease = std::chrono::milliseconds(1);
  agent.tell(join);
  SUBCASE("on purpose, which is told before it hangs up") {
    agent.tell(message::Leave{{0, 130, "stopped by SIGINT"}});
    CHECK(service.logged("job",
                         "finished with exit code 130: node a left: stopped by SIGINT; "
                         "it was the last one"));
  }
  SUBCASE("without a word") {
    agent.hang_up();
    CHECK(service.logged("job", "all its nodes have gone"));
  }
  CHECK(service.jobs().at(0).status.state == rendezvous::JobStatus::State::finished);
  Pair next(service, "job", 10);
  CHECK(next.epoch == 1);
  next.succeed();
}

TEST_CASE("who says goodbye in the middle has left") {
  ServiceThread service;
  Pair job(service, "job", 10);
  SUBCASE("with a reason") { job.b.tell(message::Leave{{0, 143, "stopped by SIGTERM"}}); }
  SUBCASE("without") {}
  job.b.say_goodbye();
  job.a.hear<message::Stopped>();
  job.a.tell(ended(1, Outcome::stopped));
  CHECK(job.a.hear<message::Finished>().exit_code != 0);
}
