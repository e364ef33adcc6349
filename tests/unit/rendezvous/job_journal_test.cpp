#include "rendezvous/service/job_journal.hpp"

#include "tests/support/agent_peer.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::test;

namespace {

/// One node makes a world of its own and succeeds; returns where it was admitted.
message::Admitted run_job(ServiceThread& service, const std::string& job, std::uint64_t session) {
  AgentPeer agent(service.address, job, session);
  agent.welcome();
  message::Join join;
  join.offer = {"node", "host", 1, std::nullopt, {"127.0.0.1:1"}};
  agent.tell(join);
  const auto admitted = agent.hear<message::Admitted>();
  message::WorkersEnded ended;
  ended.epoch = admitted.admission.epoch;
  ended.outcome = rendezvous::WorkersEnded::Outcome::succeeded;
  agent.tell(ended);
  CHECK(agent.hear<message::Finished>().exit_code == 0);
  return admitted;
}

}  // namespace

TEST_CASE("a service that comes after another never uses an epoch again") {
  MemoryJournal journal;
  std::uint64_t epoch = 0, incarnation = 0;
  for (std::uint64_t session = 1; session <= 3; ++session) {
    ServiceThread service({}, &journal);
    const auto admitted = run_job(service, "a", session);
    CHECK(admitted.admission.epoch > epoch);
    CHECK(admitted.admission.incarnation > incarnation);
    epoch = admitted.admission.epoch;
    incarnation = admitted.admission.incarnation;
    const auto totals = service.on_loop([](Service& of) { return of.totals(); });
    CHECK(totals.jobs_opened == 1);
    CHECK(totals.rounds_closed == 1);
    CHECK(totals.restarts == 0);
    CHECK(totals.refusals == 0);
  }
  REQUIRE(journal.load().size() == 1);
  CHECK(journal.load().front() == JobRecord{"a", incarnation, epoch, 0});
  // Another job's epochs go on, too: the service gives each number once.
  ServiceThread service({}, &journal);
  CHECK(run_job(service, "b", 9).admission.epoch > epoch);
}

TEST_CASE("what is forgotten leaves its numbers behind") {
  MemoryJournal journal;
  CHECK(journal.load().empty());
  journal.job_opened("a", 1);
  journal.epoch_closed("a", 5);
  journal.job_opened("b", 2);
  journal.epoch_closed("b", 3);
  journal.job_finished("a", 7);
  CHECK(journal.load() == std::vector<JobRecord>{{"a", 1, 5, 7}, {"b", 2, 3, std::nullopt}});
  journal.job_forgotten("b");
  journal.job_forgotten("a");
  journal.job_forgotten("nobody");
  CHECK(journal.load() == std::vector<JobRecord>{{"", 2, 5, std::nullopt}});
  journal.job_opened("a", 3);
  CHECK(journal.load().back() == JobRecord{"a", 3, 0, std::nullopt});
}

TEST_CASE("new limits hold from now on") {
  ServiceRules rules;
  rules.jobs_max = 0;
  ServiceThread service(rules);
  AgentPeer refused(service.address, "a", 1);
  refused.welcome();
  message::Join join;
  join.offer = {"node", "host", 1, std::nullopt, {"127.0.0.1:1"}};
  refused.tell(join);
  CHECK(refused.hear<message::Refused>().reason.find("which is the limit") != std::string::npos);
  rules.jobs_max = 1;
  service.on_loop([&](Service& of) {
    of.change(rules);
    return of.totals().refusals == 1;
  });
  run_job(service, "a", 2);
}

TEST_CASE("a node that was away at its job's end and over a restart is told how it ended") {
  MemoryJournal journal;
  message::Join join = node("a", 1);
  {
    ServiceThread service({}, &journal);
    join.holding = run_job(service, "a", 1).admission;
  }
  ServiceThread service({}, &journal);
  AgentPeer agent(service.address, "a", 7);
  agent.welcome();
  agent.tell(join);
  const auto finished = agent.hear<message::Finished>();
  CHECK(finished.exit_code == 0);
  CHECK(finished.sentence.find("the job ended with exit code 0 while this node was away") == 0);
  // The id is free for others.
  CHECK(run_job(service, "a", 8).admission.epoch > join.holding->epoch);
}

TEST_CASE("an id that was in use before a restart is its nodes' first") {
  MemoryJournal journal;
  message::Join a = node("a"), b = node("b");
  {
    ServiceThread service({}, &journal);
    const Pair pair(service, "j", 1);
    a.holding = pair.place_a.admission;
    b.holding = pair.place_b.admission;
  }
  ServiceThread service({}, &journal);
  AgentPeer early(service.address, "j", 9), gone(service.address, "j", 10);
  for (AgentPeer* agent : {&early, &gone}) {
    agent->welcome();
    agent->tell(node("early"));
    CHECK(agent->hear<message::Standing>().sentence.find(
              "waits for the nodes of the job that runs under this id") != std::string::npos);
  }
  gone.hang_up();
  AgentPeer first(service.address, "j", 1), second(service.address, "j", 2);
  first.welcome();
  first.tell(a);
  second.welcome();
  second.tell(b);
  CHECK(early.hear<message::Refused>().reason.find("job 'j'") != std::string::npos);
  first.tell(ended(a.holding->epoch));
  second.tell(ended(b.holding->epoch));
  CHECK(first.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("others wait for those nodes no longer than their own keep-alive says") {
  MemoryJournal journal;
  {
    ServiceThread service({}, &journal);
    const Pair pair(service, "j", 1);
  }
  ServiceThread service({}, &journal);
  AgentPeer agent(service.address, "j", 9);
  agent.welcome();
  message::Join join = node("other", 1);
  join.rules.liveness = Liveness::of(std::chrono::milliseconds(100), 5);
  const auto began = Clock::now();
  agent.tell(join);
  agent.hear<message::Admitted>();
  CHECK(Clock::now() - began < Liveness().comes_back_within() - std::chrono::seconds(3));
}
