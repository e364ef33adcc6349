// What operators' actions do to jobs, by real sockets.
#include "rendezvous/service/actions.hpp"
#include "rendezvous/service/job_journal.hpp"
#include "tests/support/agent_peer.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;
using namespace std::chrono_literals;

namespace {

using Kind = rendezvous::Action::Kind;
using Result = rendezvous::ActionOutcome::Result;

rendezvous::ActionOutcome act(ServiceThread& service, Kind kind, const std::string& job = "",
                              const std::string& node = "", const std::string& reason = "") {
  return service.on_loop([&](rendezvous::Service& live) {
    return live.act({kind, job, node, reason, "ada", "127.0.0.1:9"});
  });
}

}  // namespace

TEST_CASE("a job that is stopped ends on all its nodes, which hear by whom") {
  ServiceThread service;
  Pair job(service, "job", 10);
  const auto outcome = act(service, Kind::stop, "job", "", "the cluster is moved");
  CHECK(outcome.result == Result::done);
  CHECK(outcome.sentence == "the job ends with exit code 143");
  for (AgentPeer* agent : {&job.a, &job.b}) {
    const auto finished = agent->hear<message::Finished>();
    CHECK(finished.exit_code == 143);
    CHECK(finished.sentence == "stopped by operator 'ada': the cluster is moved");
  }
  CHECK(service.logged("job",
                       "action stop by operator 'ada': the cluster is moved (from 127.0.0.1:9): "
                       "done: the job ends with exit code 143"));
  const auto again = act(service, Kind::stop, "job");
  CHECK(again.result == Result::not_now);
  CHECK(again.sentence == "the job has ended with exit code 143");
  CHECK(act(service, Kind::drain, "job").result == Result::not_now);
  CHECK(act(service, Kind::evict, "job", "a").result == Result::not_now);
  CHECK(act(service, Kind::stop, "none").result == Result::no_job);
  CHECK(service.logged("none",
                       "action stop by operator 'ada' (from 127.0.0.1:9): refused: there "
                       "is no such job"));
  const auto totals = service.on_loop([](rendezvous::Service& live) { return live.totals(); });
  CHECK(totals.actions_done == 1);
  CHECK(totals.actions_refused == 4);
}

TEST_CASE("a job that is drained lets nobody in, and goes on to its end") {
  ServiceThread service;
  AgentPeer early(service.address, "early", 1);
  early.welcome();
  early.tell(node("a"));
  early.hear<message::Standing>();
  const auto too_early = act(service, Kind::drain, "early");
  CHECK(too_early.result == Result::not_now);
  CHECK(too_early.sentence.find("none of its epochs runs now") == 0);

  Pair job(service, "job", 10, node("a", 2, 1), node("b", 2, 1));
  CHECK(act(service, Kind::drain, "job").sentence ==
        "no node is let in, and no epoch begins after epoch " + std::to_string(job.epoch));
  CHECK(act(service, Kind::drain, "job").sentence == "it is being drained already");
  AgentPeer late(service.address, "job", 20);
  late.welcome();
  late.tell(node("c", 2, 1));
  const auto refused = late.hear<message::Refused>();
  CHECK(refused.exit_code == 69);
  CHECK(refused.reason == "the job 'job' is being drained by operator 'ada': no node is let in");
  job.succeed();
}

TEST_CASE("a job that is removed ends, and its name is free") {
  ServiceThread service;
  Pair job(service, "job", 10);
  CHECK(act(service, Kind::remove, "job").sentence ==
        "the job ends with exit code 143, and nothing is kept of it");
  CHECK(job.a.hear<message::Finished>().sentence == "removed by operator 'ada'");
  CHECK(job.b.hear<message::Finished>().exit_code == 143);
  CHECK(service.jobs().empty());
  // What its nodes still say is nobody's.
  job.a.tell(ended(job.epoch));
  job.a.say_goodbye();
  job.b.hang_up();
  CHECK(job.a.closed_by_service());
  Pair next(service, "job", 20);
  CHECK(next.epoch > job.epoch);
  next.succeed();
  CHECK(act(service, Kind::remove, "job").result == Result::done);
  CHECK(service.jobs().empty());
}

TEST_CASE("a node that is evicted is told why, also when it was away, and the others go on") {
  ServiceThread service;
  Pair job(service, "job", 10, node("a", 2, 1), node("b", 2, 1));
  job.b.hang_up();
  const auto outcome = act(service, Kind::evict, "job", "b", "bad memory");
  CHECK(outcome.result == Result::done);
  CHECK(outcome.sentence == "it counts as lost");
  CHECK(job.a.hear<message::Stopped>().reason ==
        "node b is lost: evicted by operator 'ada': bad memory");
  job.a.tell(ended(job.epoch, Outcome::stopped));
  AgentPeer back(service.address, "job", 11);
  back.welcome();
  back.tell(node("b", 2, 1));
  const auto refused = back.hear<message::Refused>();
  CHECK(refused.exit_code == 79);
  CHECK(refused.reason == "this node was evicted by operator 'ada': bad memory");
  CHECK(act(service, Kind::evict, "job", "b").result == Result::no_node);
  AgentPeer other(service.address, "job", 12);
  other.welcome();
  other.tell(node("c", 2, 1));
  CHECK(other.hear<message::Admitted>().admission.attempt == 1);

  Pair fixed(service, "fixed", 20);
  CHECK(act(service, Kind::evict, "fixed", "b").sentence == "it counts as lost");
  CHECK(fixed.b.hear<message::Refused>().reason == "this node was evicted by operator 'ada'");
  fixed.a.hear<message::Stopped>();
  fixed.a.tell(ended(fixed.epoch, Outcome::stopped));
  CHECK(fixed.a.hear<message::Finished>().sentence == "node b is lost: evicted by operator 'ada'");
}

TEST_CASE("a job whose only node is evicted while it gathers ends, and says who did it") {
  ServiceThread service;
  AgentPeer alone(service.address, "job", 1);
  alone.welcome();
  alone.tell(node("a"));
  alone.hear<message::Standing>();
  CHECK(act(service, Kind::evict, "job", "a", "bad memory").result == Result::done);
  alone.hear<message::Refused>();
  alone.hang_up();
  CHECK(service.logged("job",
                       "all its nodes have gone; node 'a' was evicted by operator 'ada': bad "
                       "memory"));
}

TEST_CASE("a service that is drained takes no new job until it is resumed") {
  ServiceThread service;
  Pair job(service, "job", 10);
  CHECK(act(service, Kind::drain_all).sentence ==
        "no new job is taken until it is resumed; 1 job may end");
  CHECK(act(service, Kind::drain_all).sentence == "it takes no new jobs already");
  CHECK(service.on_loop([](rendezvous::Service& live) { return live.draining(); }));
  AgentPeer late(service.address, "late", 20);
  late.welcome();
  late.tell(node("a", 1));
  CHECK(late.hear<message::Refused>().reason.find("is being drained") != std::string::npos);
  CHECK(act(service, Kind::resume_all).sentence == "new jobs are taken again");
  CHECK(act(service, Kind::resume_all).sentence == "it takes new jobs already");
  job.succeed();
  Pair next(service, "late", 30);
  next.succeed();
  service.on_loop([](rendezvous::Service& live) {
    live.drain([] {}, 1ms);
    return 0;
  });
  CHECK(service.logged("", "action resume-all"));
}

TEST_CASE("drains outlive the service, and end with what they are about") {
  rendezvous::MemoryJournal journal;
  message::Join a = node("a", 2, 1), b = node("b", 2, 1);
  std::uint64_t epoch = 0;
  {
    ServiceThread service({}, &journal);
    const Pair job(service, "job", 10, a, b);
    epoch = job.epoch;
    a.holding = job.place_a.admission;
    b.holding = job.place_b.admission;
    CHECK(act(service, Kind::drain, "job", "", "maintenance").result == Result::done);
    CHECK(act(service, Kind::drain_all).result == Result::done);
  }
  // Twice: what the second knows it has from the first.
  for (int start = 0; start < 2; ++start) {
    ServiceThread service({}, &journal);
    CHECK(service.on_loop([](rendezvous::Service& live) {
      return live.draining() && live.drained_before() == "drained by operator 'ada'";
    }));
    AgentPeer late(service.address, "late", 20);
    late.welcome();
    late.tell(node("x", 1));
    CHECK(late.hear<message::Refused>().reason.find("is being drained") != std::string::npos);
    // Its nodes have a place in it; others have not.
    AgentPeer first(service.address, "job", 10), second(service.address, "job", 11);
    first.welcome();
    first.tell(a);
    CHECK(service.logged("job",
                         "the job is being drained by operator 'ada': maintenance; it goes "
                         "on to the end of epoch " +
                             std::to_string(epoch)));
    AgentPeer other(service.address, "job", 12);
    other.welcome();
    other.tell(node("c", 2, 1));
    CHECK(other.hear<message::Refused>().reason.find(
              "is being drained by operator 'ada': maintenance: no node is let in") !=
          std::string::npos);
    second.welcome();
    second.tell(b);
    CHECK(service.logged("job", "goes on with all 2 nodes"));
    if (start == 0) continue;
    // A failure: there would be a restart left.
    first.tell(ended(epoch, Outcome::failed, 3));
    second.hear<message::Stopped>();
    second.tell(ended(epoch, Outcome::stopped));
    CHECK(first.hear<message::Finished>().exit_code == 3);
    CHECK(act(service, Kind::resume_all).sentence == "new jobs are taken again");
  }
  ServiceThread service({}, &journal);
  CHECK_FALSE(service.on_loop([](rendezvous::Service& live) { return live.draining(); }));
  Pair job(service, "job", 30, node("a", 2, 1), node("b", 2, 1));
  CHECK_FALSE(service.jobs().front().status.draining);
  job.succeed();
}

TEST_CASE("a job that takes the id of one that was drained and is gone is not drained") {
  rendezvous::MemoryJournal journal;
  {
    ServiceThread service({}, &journal);
    const Pair job(service, "job", 10);
    CHECK(act(service, Kind::drain, "job").result == Result::done);
    CHECK(journal.load().front().drained == "being drained by operator 'ada'");
    // As it begins anew under its id.
    CHECK(act(service, Kind::stop, "job").result == Result::done);
    CHECK_FALSE(service.on_loop(
        [&](rendezvous::Service&) { return journal.load().front().drained.has_value(); }));
    Pair next(service, "job", 20);
    CHECK_FALSE(service.jobs().front().status.draining);
    next.succeed();
  }
}
