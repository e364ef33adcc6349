// The strangers that the service turns away, and why; and how it is drained.
#include "rendezvous/service/actions.hpp"
#include "rendezvous/service/job_journal.hpp"
#include "tests/support/agent_peer.hpp"

#include <future>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

TEST_CASE("an endpoint that is the job gives agents its name, and is finished once") {
  rendezvous::ServiceRules rules;
  rules.only_job = "mine";
  ServiceThread service(rules);
  AgentPeer stranger(service.address, "other", 9);
  CHECK(stranger.unwelcome().sentence == "this rendezvous serves the job 'mine', not 'other'");
  AgentPeer a(service.address, "", 10);
  CHECK(a.welcome().job == "mine");
  a.tell(node("a", 1));
  CHECK(a.hear<message::Admitted>().admission.world_size == 1);
  a.tell(ended(1));
  a.hear<message::Finished>();
  AgentPeer late(service.address, "mine", 11);
  late.welcome();
  late.tell(node("b", 1));
  CHECK(late.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("limits: jobs, nodes, what a node says of itself") {
  rendezvous::ServiceRules rules;
  rules.jobs_max = 1;
  rules.nodes_per_job_max = 2;
  ServiceThread service(rules);
  const auto refused = [&](const std::string& job, std::uint64_t session,
                           const message::Join& join) {
    AgentPeer agent(service.address, job, session);
    agent.welcome();
    agent.tell(join);
    const auto why = agent.hear<message::Refused>();
    CHECK(why.exit_code != 0);
    CHECK(agent.closed_by_service());
    return why.reason;
  };
  CHECK(refused("job", 1, node("a", 3)).find("its limit is 2") != std::string::npos);
  CHECK(service.jobs().empty());
  Pair job(service, "job", 10);
  CHECK(refused("job", 12, node("c")).find("2 nodes already") != std::string::npos);
  CHECK(refused("other", 13, node("a")).find("1 jobs already") != std::string::npos);
  CHECK(service.logged("other", "node a was refused"));
  job.succeed();
  Pair next(service, "other", 20);
  next.succeed();
}

TEST_CASE("a roster of all the nodes fits into a frame") {
  ServiceThread service;
  AgentPeer agent(service.address, "job", 1);
  agent.welcome();
  auto wordy = node("a", 20'000);
  wordy.offer.store_addresses.assign(1, std::string(1000, 'x'));
  agent.tell(wordy);
  CHECK(agent.hear<message::Refused>().reason.find("bytes; the limit is") != std::string::npos);
}

TEST_CASE("names are fit for a log") {
  ServiceThread service;
  AgentPeer job(service.address, "a\nb", 1);
  CHECK(job.unwelcome().sentence.find("control character") != std::string::npos);
  AgentPeer agent(service.address, "job", 2);
  agent.welcome();
  agent.tell(node("a\x1b[2J"));
  CHECK(agent.hear<message::Refused>().reason.find("control character") != std::string::npos);
  CHECK(service.logged("job", "a node was refused"));
  AgentPeer nameless(service.address, "job", 3);
  nameless.welcome();
  nameless.tell(node(""));
  nameless.hear<message::Refused>();
  CHECK(service.jobs().empty());
  CHECK(service.logged("", "refused 127.0.0.1:"));
}

TEST_CASE("the store's limits are each job's") {
  rendezvous::ServiceRules rules;
  rules.limits.keys = 1;
  ServiceThread service(rules);
  Pair one(service, "one", 10), two(service, "two", 20);
  one.a.ask(1, wire::Set{"k", as_bytes("v")});
  one.a.answer<wire::Done>();
  one.a.ask(2, wire::Set{"l", as_bytes("v")});
  CHECK(one.a.answer<wire::Failed>().code == Errc::refused);
  two.a.ask(1, wire::Set{"k", as_bytes("v")});
  two.a.answer<wire::Done>();
  const auto jobs = service.jobs();
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].keys == 1);
  CHECK(jobs[0].bytes == 2);
}

TEST_CASE("limits: times that a node asks for, connections of a job") {
  rendezvous::ServiceRules rules;
  rules.asked_time_max = std::chrono::hours(24);
  rules.connections_per_job_max = 2;
  ServiceThread service(rules);
  {
    AgentPeer patient(service.address, "job", 1);
    patient.welcome();
    auto join = node("a", 1);
    join.rules.liveness.lease = std::chrono::hours(24 * 365 * 100);
    patient.tell(join);
    CHECK(patient.hear<message::Refused>().reason.find("a lease of") == 0);
    CHECK(patient.closed_by_service());
    AgentPeer slow(service.address, "job", 2);
    slow.welcome();
    join = node("a", 1);
    join.rules.join_timeout = std::chrono::hours(25);
    slow.tell(join);
    CHECK(slow.hear<message::Refused>().reason.find("a join timeout of") == 0);
    CHECK(slow.closed_by_service());
  }
  Pair job(service, "crowd", 10);
  AgentPeer third(service.address, "crowd", 12);
  CHECK(third.unwelcome().sentence == "the job has 2 connections already, which is the limit here");
  AgentPeer other(service.address, "other", 20);
  other.welcome();
  const auto refused = service.on_loop([](rendezvous::Service& s) { return s.totals(); }).refused;
  CHECK(refused.at(static_cast<std::size_t>(store::RefusalKind::crowded_job)) == 1);
  job.succeed();
}

TEST_CASE("a node that hangs up while it waits for others holds nothing up") {
  rendezvous::ServiceRules rules;
  rules.jobs_max = 1;
  ServiceThread service(rules);
  auto patient = node("a", 2);
  patient.rules.liveness.lease = patient.rules.liveness.reconnect_grace = std::chrono::hours(20);
  AgentPeer ghost(service.address, "ghost", 1);
  ghost.welcome();
  ghost.tell(patient);
  ghost.hear<message::Standing>();
  ghost.hang_up();
  CHECK(service.logged("ghost", "all its nodes have gone"));
  // It begins anew where it comes back.
  AgentPeer again(service.address, "ghost", 1);
  again.welcome();
  again.tell(patient);
  again.hear<message::Standing>();
}

TEST_CASE("a job to which nobody is connected any more gives its place to another") {
  rendezvous::ServiceRules rules;
  rules.jobs_max = 1;
  rules.deserted_max = {};
  ServiceThread service(rules);
  auto patient = node("a", 1);
  patient.rules.liveness.lease = patient.rules.liveness.reconnect_grace = std::chrono::hours(20);
  AgentPeer ghost(service.address, "ghost", 1);
  ghost.welcome();
  ghost.tell(patient);
  ghost.hear<message::Admitted>();
  AgentPeer early(service.address, "job", 2);
  early.welcome();
  early.tell(node("a", 1));
  CHECK(early.hear<message::Refused>().reason.find("1 jobs already") != std::string::npos);
  ghost.hang_up();
  const auto connections = [](rendezvous::Service& s) { return s.totals().connections; };
  while (service.on_loop(connections) > 0) std::this_thread::yield();
  AgentPeer late(service.address, "job", 3);
  late.welcome();
  late.tell(node("a", 1));
  late.hear<message::Admitted>();
  CHECK(service.logged("ghost", "another job needs its place"));
}

TEST_CASE("who was refused for want of a place has it once a deserted job is old enough") {
  rendezvous::ServiceRules rules;
  rules.jobs_max = 1;
  rules.deserted_max = std::chrono::milliseconds(50);
  ServiceThread service(rules);
  auto patient = node("a", 1);
  patient.rules.liveness.lease = patient.rules.liveness.reconnect_grace = std::chrono::hours(20);
  AgentPeer ghost(service.address, "ghost", 1);
  ghost.welcome();
  ghost.tell(patient);
  ghost.hear<message::Admitted>();
  const auto comes = [&](std::uint64_t session) {
    RawPeer peer(connect_tcp(service.address, soon()));
    peer.say_hello(session, "job");
    peer.read(wire::preface_bytes);
    Bytes payload, out;
    message::encode(payload, node("a", 1));
    wire::encode_frame(out, {0, message::Join::type, 0, 0, 0}, payload);
    peer.say(out);
    for (;;) {
      const auto type = peer.frame().first.type;
      if (type == message::Admitted::type) return true;
      if (type == message::Refused::type || type == wire::Type{}) return false;
    }
  };
  CHECK_FALSE(comes(2));
  ghost.hang_up();
  std::uint64_t session = 3;
  for (const auto deadline = soon(); !comes(session) && Clock::now() < deadline;) ++session;
  CHECK(service.logged("ghost", "another job needs its place"));
}

TEST_CASE("of finished jobs the first to end is forgotten for another one") {
  rendezvous::ServiceRules rules;
  rules.jobs_max = 2;
  ServiceThread service(rules);
  std::uint64_t session = 10;
  for (const char* name : {"c", "a", "b"}) {
    Pair job(service, name, session);
    job.succeed();
    session += 2;
  }
  std::vector<std::string> left;
  for (const auto& job : service.jobs()) left.push_back(job.job);
  CHECK(left == std::vector<std::string>{"a", "b"});
}

TEST_CASE("a barrier has as many contributors as the world has ranks") {
  ServiceThread service;
  Pair job(service, "job", 10);
  job.a.ask(1, wire::Barrier{"b", 0, 1 << 20, {}, {0}}, job.epoch);
  CHECK(job.a.answer<wire::Failed>().sentence.find("contributors are possible") !=
        std::string::npos);
}

TEST_CASE("who joins nothing makes room for those who do") {
  rendezvous::ServiceRules rules;
  rules.connections.all = 3;
  ServiceThread service(rules);
  AgentPeer one(service.address, "job", 1), two(service.address, "job", 2),
      three(service.address, "job", 3);
  one.welcome();
  two.welcome();
  three.welcome();
  AgentPeer newcomer(service.address, "job", 4);
  newcomer.welcome();
  newcomer.tell(node("a", 1));
  newcomer.hear<message::Admitted>();
  CHECK(one.closed_by_service());
  CHECK(service.on_loop([](rendezvous::Service& s) { return s.totals(); }).never_joined > 0);
  newcomer.tell(ended(1));
  newcomer.hear<message::Finished>();
}

TEST_CASE("who has left a job, or whose job was removed, makes room likewise") {
  const auto ghost_of = [](auto leave) {
    rendezvous::ServiceRules rules;
    rules.connections.all = 3;
    ServiceThread service(rules);
    AgentPeer one(service.address, "1", 1), two(service.address, "2", 2),
        three(service.address, "3", 3);
    for (AgentPeer* each : {&one, &two, &three}) {
      each->welcome();
      each->tell(node("a", 1));
      each->hear<message::Admitted>();
    }
    // All have joined when room is asked for, as when they joined long ago.
    RawPeer newcomer(connect_tcp(service.address, soon()));
    newcomer.say_hello(4, "4");
    one.tell(message::Heartbeat{});
    one.hear<message::Heartbeat>();
    leave(service, one);
    CHECK(one.closed_by_service());
    CHECK(newcomer.read(wire::preface_bytes).size() == wire::preface_bytes);
    CHECK(newcomer.frame().first.type == wire::Type::welcome);
  };
  ghost_of([](ServiceThread&, AgentPeer& one) { one.tell(message::Leave{}); });
  ghost_of([](ServiceThread& service, AgentPeer&) {
    rendezvous::Action action;
    action.kind = rendezvous::Action::Kind::remove;
    action.job = "1";
    service.on_loop([&](rendezvous::Service& s) { s.act(action); });
  });
}

TEST_CASE("what cannot be read is refused, and harms nobody else") {
  ServiceThread service;
  Pair job(service, "job", 10);
  AgentPeer odd(service.address, "job", 20);
  odd.welcome();
  odd.tell(rendezvous::message::Join::type, Bytes(7, std::byte{0xFF}));
  CHECK(odd.hear<message::Refused>().code == Errc::version);
  CHECK(odd.closed_by_service());
  AgentPeer mute(service.address, "job", 21);
  mute.welcome();
  mute.tell(ended(1));  // It has not joined: nobody listens.
  mute.tell(message::Leave{});
  AgentPeer rank(service.address, "job", 22);
  rank.welcome();
  rank.tell(wire::Type::report, as_bytes("?"));
  RawPeer noise(connect_tcp(service.address, soon()));
  noise.say("GET / HTTP/1.1\r\n\r\n");
  CHECK(noise.closed_by_server());
  const auto counters = service.on_loop([](rendezvous::Service& s) { return s.counters(); });
  CHECK(counters.garbage == 1);
  job.succeed();
}

TEST_CASE("drain: where no job runs, an agent that does not go holds nothing up") {
  ServiceThread service;
  AgentPeer agent(service.address, "job", 10);
  agent.welcome();
  agent.tell(node("a", 1));
  agent.hear<message::Admitted>();
  agent.tell(ended(1));
  agent.hear<message::Finished>();
  CHECK_FALSE(service.idle());
  std::promise<void> drained;
  service.on_loop([&](rendezvous::Service& s) {
    s.drain([&] { drained.set_value(); }, std::chrono::milliseconds(10));
  });
  CHECK(drained.get_future().wait_until(soon()) == std::future_status::ready);
  CHECK_FALSE(service.idle());
}

TEST_CASE("an agent that does not read is dropped, and named with its job") {
  ServiceThread service;
  Pair job(service, "job", 10);
  job.a.ask(900, wire::Watch{"k"}, job.epoch);
  const Bytes value(1u << 20);
  const auto slow = [&] {
    return service.on_loop([](rendezvous::Service& s) { return s.counters().slow; });
  };
  const auto deadline = soon();
  for (std::uint64_t request = 901; slow() == 0 && Clock::now() < deadline; ++request) {
    job.b.ask(request, wire::Set{"k", value}, job.epoch);
    job.b.answer<wire::Done>();
  }
  CHECK(service.logged("job", "node a at 127.0.0.1:"));
  CHECK(service.logged("job", "does not read"));
}

TEST_CASE("drain: no new job, and a word when the last one has gone") {
  ServiceThread service;
  Pair job(service, "job", 10);
  std::promise<void> drained;
  auto done = drained.get_future();
  service.on_loop([&](rendezvous::Service& s) {
    s.drain([&] { drained.set_value(); }, std::chrono::seconds(20));
  });
  AgentPeer late(service.address, "late", 20);
  late.welcome();
  late.tell(node("a"));
  CHECK(late.hear<message::Refused>().reason.find("drained") != std::string::npos);
  job.succeed();
  job.a.say_goodbye();
  job.b.hang_up();
  CHECK(done.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
}

TEST_CASE("what a node says of itself counts as memory, and it is refused where there is none") {
  rendezvous::ServiceRules rules;
  rules.limits.memory = std::make_shared<store::MemoryBudget>();
  ServiceThread service(rules);
  const auto used = [&] {
    return service.on_loop([&](auto&) { return rules.limits.memory->used(); });
  };
  AgentPeer first(service.address, "job", 1);
  first.welcome();
  const std::size_t before = used();
  auto wordy = node("a", 3);
  wordy.offer.store_addresses.assign(60, std::string(2000, 'x'));
  first.tell(wordy);
  first.hear<message::Standing>();
  CHECK(used() > before + 100'000);
  service.on_loop([&](auto&) { return rules.limits.memory->max = rules.limits.memory->used(); });
  AgentPeer second(service.address, "job", 2);
  second.welcome();
  second.tell(node("b", 3));
  CHECK(second.hear<message::Refused>().reason.find("no room for another node") !=
        std::string::npos);
  service.on_loop([&](auto&) { return rules.limits.memory->max = ~std::size_t{0}; });
  first.hang_up();
  // One that comes back is let in all the same.
  Pair job(service, "another", 10);
  auto back = node("a");
  back.holding = job.place_a.admission;
  service.on_loop([&](auto&) { return rules.limits.memory->max = 1; });
  AgentPeer again(service.address, "another", 10);
  again.welcome();
  again.tell(back);
  settle(again);
  service.on_loop([&](auto&) { return rules.limits.memory->max = ~std::size_t{0}; });
}

TEST_CASE("the calls that a node tells are cut, and count as memory") {
  rendezvous::ServiceRules rules;
  rules.limits.memory = std::make_shared<store::MemoryBudget>();
  ServiceThread service(rules);
  const auto used = [&] {
    return service.on_loop([&](auto&) { return rules.limits.memory->used(); });
  };
  Pair job(service, "job", 10);
  settle(job.a);
  CommunicatorCalls calls;
  calls.last.assign(64, {1, 2, std::string(400, 'x')});
  message::CallsMade made{{0, job.epoch, {}}};
  for (calls.communicator = 0; calls.communicator < 40; ++calls.communicator) {
    made.communicators.push_back(calls);
  }
  const std::size_t before = used();
  job.a.tell(made);
  settle(job.a);
  const std::size_t one = used() - before;
  CHECK(one > 40u * 64 * 160);
  CHECK(one < 40u * 64 * 300);
  for (int i = 0; i < 20; ++i) job.a.tell(made);  // One node does not fill the memory.
  settle(job.a);
  CHECK(used() - before < 10u << 20);
  CHECK(service.on_loop([](auto& here) { return here.totals().memory_refusals; }) > 0);
  job.succeed();
}

TEST_CASE("who comes before the nodes of a job that ran has to be fit for one, too") {
  rendezvous::MemoryJournal journal;
  journal.job_opened("job", 1);
  journal.epoch_closed("job", 5);
  rendezvous::ServiceRules rules;
  rules.limits.memory = std::make_shared<store::MemoryBudget>();
  ServiceThread service(rules, &journal);
  AgentPeer unfit(service.address, "job", 1);
  unfit.welcome();
  auto wordy = node("a", 20'000);
  wordy.offer.store_addresses.assign(1, std::string(1000, 'x'));
  unfit.tell(wordy);
  CHECK(unfit.hear<message::Refused>().reason.find("bytes; the limit is") != std::string::npos);
  AgentPeer fit(service.address, "job", 2);
  fit.welcome();
  const auto used = [&] {
    return service.on_loop([&](auto&) { return rules.limits.memory->used(); });
  };
  const std::size_t before = used();
  auto large = node("b", 3);
  large.offer.store_addresses.assign(60, std::string(2000, 'x'));
  fit.tell(large);
  CHECK(fit.hear<message::Standing>().sentence.find("waits for the nodes") != std::string::npos);
  CHECK(used() > before + 100'000);
}
