// Agents that should not be there: doubled, left over from earlier, replayed, of another version,
// or lost in silence.
#include "tests/support/agent_peer.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

/// The service's answer to a client of this version of the protocol.
wire::Failed answer_to_version(const Address& service, std::uint32_t version) {
  RawPeer peer(connect_tcp(service, soon()));
  Bytes out;
  wire::encode_preface(out);
  constexpr std::size_t version_at = 4;
  out[version_at] = static_cast<std::byte>(version);
  peer.say(out);
  CHECK(peer.read(wire::preface_bytes).size() == wire::preface_bytes);
  const auto failed = peer.answer<wire::Failed>(0);
  CHECK(peer.closed_by_server());
  return failed;
}

}  // namespace

TEST_CASE("a version older or newer is refused by its number") {
  ServiceThread service;
  for (const std::uint32_t version : {wire::version - 1, wire::version + 1}) {
    const auto failed = answer_to_version(service.address, version);
    CHECK(failed.code == Errc::version);
    CHECK(failed.sentence.find(std::to_string(version)) != std::string::npos);
    CHECK(failed.sentence.find(std::to_string(wire::version)) != std::string::npos);
  }
}

TEST_CASE("a second node of the same name is refused, and the first one does not notice") {
  ServiceThread service;
  Pair job(service, "job", 10);
  AgentPeer twin(service.address, "job", 12);
  twin.welcome();
  twin.tell(node("b"));
  const auto refused = twin.hear<message::Refused>();
  CHECK(refused.reason.starts_with(
      "there is a node b already, on host-b; give this one another --node-id; the job 'job'"));
  CHECK(twin.closed_by_service());
  CHECK(service.logged("job", "node b was refused"));
  job.succeed();
}

TEST_CASE("a join that is said again changes nothing") {
  ServiceThread service;
  Pair job(service, "job", 10);
  job.b.tell(node("b"));
  const auto again = job.b.hear<message::Admitted>();
  CHECK(again.admission == job.place_b.admission);
  CHECK(service.jobs().at(0).status.nodes.size() == 2);
  job.succeed();
  job.b.tell(node("b"));
  CHECK(job.b.hear<message::Finished>().exit_code == 0);
}

TEST_CASE("an agent of an earlier epoch: what it says is not heard, and it is told to end") {
  ServiceThread service;
  Pair job(service, "job", 10, node("a", 2, 1), node("b", 2, 1));
  job.a.tell(message::WorkerFailed{1, failed_fact(0)});
  job.a.tell(ended(1, Outcome::failed, 1));
  job.b.hear<message::Stopped>();
  job.b.tell(ended(1, Outcome::stopped));
  CHECK(job.a.hear<message::Admitted>().admission.epoch == 2);
  CHECK(job.b.hear<message::Admitted>().admission.epoch == 2);
  // Said again, as after a reconnect.
  job.b.tell(message::WorkerFailed{1, failed_fact(1)});
  job.b.tell(ended(1, Outcome::failed, 1));

  AgentPeer stale(service.address, "job", 12);
  stale.welcome();
  auto join = node("c", 2, 1);
  join.holding = rendezvous::Holding{job.place_a.admission.incarnation, 1, 0, 1, 2, 1, 2};
  stale.tell(join);
  const auto stop = stale.hear<message::Stopped>();
  CHECK(stop.cause == rendezvous::Stop::Cause::evicted);
  CHECK(stop.epoch == 1);
  stale.ask(1, wire::Get{"k"}, 1);
  CHECK(stale.answer<wire::Failed>().sentence == "not admitted to a round yet");

  job.a.ask(1, wire::Get{"k"}, 1);
  CHECK(job.a.answer<wire::Failed>().sentence == "a message of epoch 1 came in epoch 2");
  job.epoch = 2;
  job.succeed();
}

TEST_CASE("who was lost in silence is not waited for when the job is over") {
  ServiceThread service;
  auto a = node("a"), b = node("b");
  a.rules.liveness.lease = b.rules.liveness.lease = std::chrono::milliseconds(200);
  Pair job(service, "job", 10, a, b);
  // The loss of the one, or of both on a slow machine.
  REQUIRE(service.logged("job", " lost: node "));
  job.a.tell(ended(1, Outcome::stopped));
  job.a.hang_up();
  REQUIRE(service.logged("job", "finished with exit code 79"));
  const auto deadline = soon();
  while (!service.idle() && Clock::now() < deadline) std::this_thread::yield();
  CHECK(service.idle());
  CHECK(job.b.hear<message::Finished>().exit_code == 79);
}
