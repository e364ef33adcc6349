// What agents tell the service of their ranks' calls, and what it keeps of that.
#include "tests/support/agent_peer.hpp"

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;
using namespace std::chrono_literals;
using rendezvous::RankCalls;

namespace {

RankCalls in_call(std::uint64_t sequence, int ranks = 1) {
  return {.ranks = ranks,
          .state = RankCalls::State::waits,
          .call = "all_reduce #" + std::to_string(sequence),
          .communicator = 7,
          .sequence = sequence,
          .age = 4s,
          .reached = {{7, 2, sequence, 4s}}};
}

std::vector<rendezvous::NodeCalls> calls(ServiceThread& service) {
  const auto jobs = service.jobs();
  return jobs.empty() ? std::vector<rendezvous::NodeCalls>() : jobs.front().calls;
}

}  // namespace

TEST_CASE("the service keeps what a node has told last, and who is behind follows") {
  ServiceThread service;
  Pair job(service, "job", 10);
  CHECK(calls(service).empty());  // As from agents that do not know the message.
  // And one that this service does not know is passed over, as this one is by services before.
  job.a.tell(wire::Type{126}, Bytes(9));
  job.a.tell(message::CallsNow{job.epoch, {in_call(4)}});
  job.a.tell(message::CallsNow{job.epoch, {in_call(5)}});
  job.b.tell(message::CallsNow{job.epoch, {in_call(3)}});
  settle(job.a);
  settle(job.b);
  const auto told = calls(service);
  REQUIRE(told.size() == 2);
  const auto lag = rendezvous::judge_lag(told, 2);
  REQUIRE(lag.ranks_behind == 1);
  const auto* last = lag.behind().front();
  CHECK(last->first_rank == job.place_b.admission.first_rank);
  CHECK(last->calls->call == "all_reduce #3");
  CHECK(last->lag.calls == 2);
  job.succeed();
  CHECK(calls(service).empty());
}

TEST_CASE("of another epoch, of ranks that a node does not have, or of none nothing is kept") {
  ServiceThread service;
  Pair job(service, "job", 10);
  for (const auto& wrong :
       {message::CallsNow{job.epoch + 1, {in_call(1)}},
        message::CallsNow{job.epoch, {in_call(1, 2)}},
        message::CallsNow{job.epoch, {in_call(1), in_call(2)}},
        message::CallsNow{job.epoch, {in_call(1, 0)}},
        message::CallsNow{job.epoch, {in_call(1, -2147483647), in_call(1, 2147483647)}}}) {
    job.a.tell(wrong);
    settle(job.a);
    for (const auto& kept : calls(service)) CHECK(kept.calls->empty());
  }
  RankCalls garbled = in_call(1);
  garbled.call = "all\n\x1b[2Jreduce";
  job.a.tell(message::CallsNow{job.epoch, {garbled}});
  settle(job.a);
  REQUIRE(calls(service).size() == 1);
  CHECK(calls(service)[0].calls->front().call == "all??[2Jreduce");
  job.succeed();
}

TEST_CASE("the next epoch begins without what the last one's ranks did") {
  ServiceThread service;
  Pair job(service, "job", 10, node("a", 2, 1), node("b", 2, 1));
  job.a.tell(message::CallsNow{job.epoch, {in_call(1)}});
  settle(job.a);
  CHECK(calls(service).size() == 1);
  for (AgentPeer* agent : {&job.a, &job.b}) agent->tell(ended(job.epoch, Outcome::failed, 3));
  const auto epoch = job.a.hear<message::Admitted>().admission.epoch;
  job.b.hear<message::Admitted>();
  CHECK(epoch > job.epoch);
  CHECK(calls(service).empty());
  // What was under way when it began concerns nobody any more.
  job.a.tell(message::CallsNow{job.epoch, {in_call(2)}});
  settle(job.a);
  CHECK(calls(service).empty());
}

TEST_CASE("what is told counts as memory, and is left out where there is none") {
  rendezvous::ServiceRules rules;
  rules.limits.memory = std::make_shared<store::MemoryBudget>();
  const auto used = [&](ServiceThread& service) {
    return service.on_loop([&](auto&) { return rules.limits.memory->used(); });
  };
  ServiceThread service(rules);
  Pair job(service, "job", 10);
  settle(job.a);
  const auto before = used(service);
  for (int i = 0; i < 3; ++i) job.a.tell(message::CallsNow{job.epoch, {in_call(1)}});
  settle(job.a);
  const auto one = used(service) - before;
  CHECK(one > 50);
  CHECK(one < 500);
  service.on_loop([&](auto&) { return rules.limits.memory->max = before; });
  job.a.tell(message::CallsNow{job.epoch, {in_call(2)}});
  settle(job.a);
  CHECK(calls(service).empty());
  CHECK(used(service) == before);
  CHECK(service.on_loop([](auto& here) { return here.totals().memory_refusals; }) == 1);
  service.on_loop([&](auto&) { return rules.limits.memory->max = ~std::size_t{0}; });
  job.succeed();
}
