// A crowd of strangers, who join nothing, beside a job: its turns, and the log.
#include "tests/support/agent_peer.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <sys/ioctl.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

bool has_something_to_read(int fd) {
  int bytes = 0;
  return ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace

TEST_CASE("those that join nothing share one turn, and not one for each job that they name") {
  ServiceThread service;
  AgentPeer witness(service.address, "alone", 1);
  witness.welcome();
  witness.tell(node("a", 1));
  witness.hear<message::Admitted>();
  std::deque<RawPeer> crowd;
  for (std::uint64_t i = 0; i < 40; ++i) {
    crowd.emplace_back(connect_tcp(service.address, soon())).greet(2 + i, "j" + std::to_string(i));
  }
  std::ptrdiff_t answered = -1;
  service.on_loop([&](rendezvous::Service&) {
    service.on_line = [&](const rendezvous::LogLine& line) {
      if (line.event != rendezvous::LogLine::Event::finished) return;
      answered = std::ranges::count_if(
          crowd, [](const RawPeer& each) { return has_something_to_read(each.fd()); });
    };
  });
  std::promise<void> holds, said;
  std::jthread held([&] {
    service.on_loop([&](rendezvous::Service&) {
      holds.set_value();
      return said.get_future().wait(), 0;
    });
  });
  holds.get_future().wait();
  for (RawPeer& each : crowd) {
    Bytes out;
    while (out.size() < (64u << 10)) wire::encode_frame(out, {0, {}, 0, 2, 0}, wire::Get{"k"});
    each.say(out);
  }
  witness.tell(ended(1));
  said.set_value();
  CHECK(witness.hear<message::Finished>().exit_code == 0);
  CHECK(answered >= 0);
  CHECK(answered < 20);  // Of jobs all would have had a turn.
}

TEST_CASE(
    "a crowd that is refused in a job's name is a few lines of the log, and all are counted") {
  ServiceThread service;
  Pair job(service, "job", 10);
  std::atomic<int> lines = 0;
  service.on_loop([&](rendezvous::Service&) {
    service.on_line = [&](const rendezvous::LogLine& line) {
      lines += line.event == rendezvous::LogLine::Event::refused;
    };
  });
  for (std::uint64_t i = 0; i < 40; ++i) {
    AgentPeer odd(service.address, i % 2 == 0 ? "job" : "j" + std::to_string(i), 20 + i);
    odd.welcome();
    odd.tell(rendezvous::message::Join::type, Bytes(7, std::byte{0xFF}));
    CHECK(odd.hear<message::Refused>().code == Errc::version);
  }
  CHECK(lines == 20);
  CHECK(service.on_loop([](rendezvous::Service& s) { return s.totals().refusals; }) == 40);
  job.succeed();
}
