// What is left of a service and its pages when allocations fail: everything but what they were for.
#include "rendezvous/http/http_server.hpp"
#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/state/state_journal.hpp"
#include "tests/support/agent_peer.hpp"
#include "tests/support/short_memory.hpp"

#include <array>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::test;

namespace {

/// Without a promise that anything of it succeeds.
void live_a_little(const Address& service, int which) {
  const std::string job = "job " + std::to_string(which % 3);
  RawPeer agent(connect_tcp(service, soon()));
  agent.say_hello(static_cast<std::uint64_t>(100 + which), job);
  Bytes out;
  const auto tell = [&](const auto& message) {
    Bytes payload;
    message::encode(payload, message);
    wire::encode_frame(out, {0, std::remove_cvref_t<decltype(message)>::type, 0, 0, 0}, payload);
  };
  tell(which % 2 == 0 ? node("n", 1) : node("n" + std::to_string(which)));
  agent.say(out);
  // Whatever is heard, or that it was hung up, shows that it has been looked at.
  agent.read(wire::preface_bytes + wire::header_bytes);
  agent.ask(1, wire::Set{"key", as_bytes("value")});
  agent.ask(2, wire::Get{"key"});
  agent.ask(3, wire::WaitGet{{}, "never"});
  if (which % 4 != 0) return;
  Bytes farewell;
  wire::encode_frame(farewell, {0, wire::Type::goodbye, 0, 0, 0}, BytesView());
  agent.say(farewell);
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("a service whose allocations fail now and then ends connections, and serves the next") {
  ServiceThread service;
  const std::size_t before = open_descriptors();
  for (const long period : {2, 3, 5, 7, 11, 17, 29, 47, 83, 149, 307, 601}) {
    service.on_loop([&](Service&) { run_short({period, 1, period}); });
    for (int which = 0; which < 24; ++which) live_a_little(service.address, which);
    service.on_loop([](Service&) { have_enough(); });
    Pair job(service, "after " + std::to_string(period), 1000 + static_cast<std::uint64_t>(period));
    job.succeed();
  }
  // Nobody is forgotten in the dark.
  const auto deadline = soon();
  while (open_descriptors() > before && Clock::now() < deadline) std::this_thread::yield();
  CHECK(open_descriptors() <= before);
}

namespace {

/// Says one thing, and then nothing.
class Short final : public Feed {
 public:
  std::string next() override { return std::exchange(said_, true) ? "" : "data: here\n"; }

 private:
  bool said_ = false;
};

Page page_or_feed(const PageRequest& request) {
  Page page = sentence_page(200, "here");
  if (request.target == "/feed") page.feed = std::make_shared<Short>();
  return page;
}

}  // namespace

TEST_CASE("whichever allocation fails for one that reads the status, the next is answered") {
  boost::asio::io_context io{1};
  unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address address = local_address(listener.get());
  HttpServer server(io, std::move(listener), page_or_feed, [](const std::string&) {});
  // A feed has no end, so it is left when it has said what it says.
  const auto asked = [&](const std::string& target) {
    RawPeer reader(connect_tcp(address, soon()));
    reader.say("GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    std::string heard;
    while (!heard.ends_with("here\n")) {
      const Bytes some = reader.read(1);
      if (some.empty()) break;
      heard += static_cast<char>(some[0]);
    }
    return heard;
  };
  std::jthread thread([&] { server.run(); });
  for (const std::string target : {"/", "/feed"}) {
    for (const long failures : {1, 3}) {
      bool failed = true;
      // Until there are no so many allocations.
      for (long nth = 1; failed && nth < 1000; ++nth) {
        boost::asio::post(io, [=] { run_short({nth, failures}); });
        asked(target);
        std::promise<bool> was;
        boost::asio::post(io, [&] { was.set_value(have_enough()); });
        failed = was.get_future().get();
        INFO(target << ": " << failures << " allocations failed from " << nth << " on");
        CHECK(asked("/").ends_with("here\n"));
      }
      CHECK_FALSE(failed);
    }
  }
  boost::asio::post(io, [&] { server.stop(); });
}

namespace {

/// A place where something happens at each write.
class Poor final : public StatePlace {
 public:
  explicit Poor(std::function<void()> at_write) : at_write_(std::move(at_write)) {}
  StateContents load() override { return {}; }
  std::size_t changes_at_once() const override { return 1; }
  Wrote write(std::span<const Change> /*changes*/) override {
    at_write_();
    return Wrote::all;
  }
  Clock::time_point tend() override { return Clock::time_point::max(); }
  Obstacle obstacle() const override { return {}; }
  std::unique_ptr<Backup> back_up(const std::string& /*name*/) override { return nullptr; }
  bool is_ours() const override { return true; }
  std::optional<StateFigures::Lead> lead() const override { return std::nullopt; }

 private:
  const std::function<void()> at_write_;
};

}  // namespace

TEST_CASE("a state that cannot be written for want of memory ends the daemon in order") {
  boost::asio::io_context io{1};
  const auto work = boost::asio::make_work_guard(io);
  StateJournal journal(io, std::make_unique<Poor>([] { throw std::bad_alloc(); }),
                       [](const LogLine&) {});
  journal.job_opened("job", 1);
  journal.commits()->seal();
  CHECK_THROWS_AS(io.run(), StateLost);
}

TEST_CASE("a state that is written, with no memory to say so, is told of when there is some") {
  boost::asio::io_context io{1};
  const auto work = boost::asio::make_work_guard(io);
  // The thread that writes is the one that tells.
  StateJournal journal(io, std::make_unique<Poor>([] {
                         run_short({1, 3});
                       }),
                       [](const LogLine&) {});
  store::Commits& commits = *journal.commits();
  commits.on_durable([&] {
    if (commits.durable() == commits.recorded()) io.stop();
  });
  journal.job_opened("job", 1);
  commits.seal();
  CHECK_NOTHROW(io.run());
  CHECK(commits.durable() == commits.recorded());
}
