// Admission, grants and news of losses, by real clients over real sockets.
#include "rendezvous/service/job_host.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"
#include "runtime/store/client/client.hpp"
#include "tests/support/expect.hpp"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <poll.h>

namespace dlaunch::rendezvous {
namespace {

using testing::contains;

constexpr auto patience = std::chrono::seconds(10);

/// A host on a thread of its own, as in an agent.
class Hosted : private JobObserver {
 public:
  Hosted() : host_(io_, identity(), *this), thread_([this] { io_.run(); }) {}
  ~Hosted() override {
    on_loop([this] { host_.stop(); });
    guard_.reset();
    io_.stop();
  }

  template <class Work>
  void on_loop(Work work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  /// The worker's end of a new control socket.
  unique_fd control_of(int rank) {
    auto [ours, theirs] = socket_pair();
    on_loop([&, &control = ours] { host_.expect(rank, std::move(control)); });
    return std::move(theirs);
  }
  /// Waits until the observer was told this.
  bool heard(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, patience, [&] { return std::find(news_.begin(), news_.end(), what) != news_.end(); });
  }
  JobHost& host() { return host_; }
  static JobIdentity identity() {
    const Bytes secret(Key::size, std::byte{7});
    return {.job = "job-1",
            .local_size = 3,
            .world_size = 3,
            .host = "here",
            .data_key = Key(Key::View(secret)),
            .crowded = true};
  }

 private:
  void on_joined(int rank) override { note("joined " + std::to_string(rank)); }
  void on_left(int rank) override { note("left " + std::to_string(rank)); }
  void on_reported(int rank, const wire::Report& report) override {
    note("reported " + std::to_string(rank) + " " + report.sentence);
  }
  void on_inquired(int rank, const std::vector<std::int32_t>& about) override {
    note("inquired " + std::to_string(rank) + " about " + std::to_string(about.size()));
  }
  void on_warning(const std::string& sentence) override { note("warning: " + sentence); }
  void on_refused_client(const Address&, const Address&, const std::string& why) override {
    note("refused a client: " + why);
  }
  void note(std::string what) {
    const std::lock_guard lock(mutex_);
    news_.push_back(std::move(what));
    changed_.notify_all();
  }

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      io_.get_executor()};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> news_;
  JobHost host_;
  std::jthread thread_;
};

struct Push {
  wire::Type type{};
  Bytes payload;
  std::vector<unique_fd> descriptors;
};

/// A member, and what was pushed to it.
class Member {
 public:
  Member(unique_fd socket, int rank, int world_size = 3, std::uint64_t session = 0,
         const std::string& job = "job-1")
      : client_(
            std::move(socket), options(rank, world_size, session, job),
            [this](const wire::FrameHeader& header, BytesView payload, std::vector<unique_fd> fds) {
              pushes_.push_back({header.type, {payload.begin(), payload.end()}, std::move(fds)});
            },
            Clock::now() + patience) {}

  store::Client& client() { return client_; }
  /// The next message of this type.
  std::optional<Push> next(wire::Type type) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
      for (auto it = pushes_.begin(); it != pushes_.end(); ++it) {
        if (it->type != type) continue;
        Push found = std::move(*it);
        pushes_.erase(it);
        return found;
      }
      pollfd wait{client_.fd(), POLLIN, 0};
      if (::poll(&wait, 1, poll_timeout_ms(deadline)) <= 0) return std::nullopt;
      client_.dispatch();
    }
  }

 private:
  static store::Client::Options options(int rank, int world_size, std::uint64_t session,
                                        const std::string& job) {
    store::Client::Options options;
    options.hello.session = session != 0 ? session : static_cast<std::uint64_t>(rank) + 100;
    options.hello.job = job;
    options.hello.member = wire::Member{rank, world_size, 1, "here"};
    return options;
  }

  std::vector<Push> pushes_;
  store::Client client_;
};

std::string refusal(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a member is welcomed, gets a listener, and is heard of") {
  Hosted hosted;
  {
    Member member(hosted.control_of(1), 1);
    CHECK(member.client().welcome().job == "job-1");
    auto grant = member.next(wire::Type::grant);
    REQUIRE(grant);
    REQUIRE(grant->descriptors.size() == 2);
    CHECK(wire::decode<wire::Grant>(grant->payload)->segment);
    const auto segment = Segment::adopt(std::move(grant->descriptors.back()));
    CHECK(segment->size() == 3);
    CHECK(segment->local_of(2) == 2);
    CHECK(segment->job() == text_hash("job-1"));
    CHECK(segment->oversubscribed());
    CHECK(wire::decode<wire::Grant>(grant->payload)->listener);
    CHECK(wire::decode<wire::Grant>(grant->payload)->data_key == Bytes(32, std::byte{7}));
    CHECK(hosted.heard("joined 1"));
    const Claim claim{.fault = Fault::lost, .ranks = {0}};
    Bytes report;
    wire::encode(report, wire::Report{Errc::peer_lost, claim, "lost rank 0"});
    member.client().tell(wire::Type::report, report);
    CHECK(hosted.heard("reported 1 lost rank 0"));
    Bytes warning;
    wire::encode(warning, wire::Warning{"no memory"});
    member.client().tell(wire::Type::warning, warning);
    CHECK(hosted.heard("warning: rank 1: no memory"));
  }
  CHECK(hosted.heard("left 1"));
}

TEST_CASE("who may not come in is told why") {
  Hosted hosted;
  CHECK(
      contains(refusal([&] { Member(hosted.control_of(1), 2); }), "that of rank 1, not of rank 2"));
  CHECK(contains(refusal([&] { Member(hosted.control_of(1), 1, 4); }), "a world of 4"));
  CHECK(contains(refusal([&] { Member(hosted.control_of(1), 1, 3, 0, "other"); }), "'other'"));
  const auto by_name = [&] {
    return connect_unix(hosted.host().socket_name(), Clock::now() + patience);
  };
  CHECK(contains(refusal([&] { Member(by_name(), 3); }), "does not live here"));
  Member first(hosted.control_of(0), 0);
  CHECK(contains(refusal([&] { Member(by_name(), 0, 3, 7); }), "already here"));
}

TEST_CASE("by its name the agent is found without the control socket, and a session comes back") {
  Hosted hosted;
  const auto by_name = [&] {
    return connect_unix(hosted.host().socket_name(), Clock::now() + patience);
  };
  Member first(by_name(), 2, 3, 42);
  REQUIRE(first.next(wire::Type::grant));
  Member again(by_name(), 2, 3, 42);
  CHECK(again.next(wire::Type::grant));
}

TEST_CASE("a loss is told to members, and to those who come later") {
  Hosted hosted;
  Member early(hosted.control_of(0), 0);
  REQUIRE(hosted.heard("joined 0"));
  hosted.on_loop([&] {
    hosted.host().publish_loss(1, "here", {.kind = Departure::Kind::ended, .signal = SIGKILL});
  });
  Member late(hosted.control_of(2), 2);
  for (Member* member : {&early, &late}) {
    const auto push = member->next(wire::Type::peer_lost);
    REQUIRE(push);
    CHECK(wire::decode<wire::PeerLost>(push->payload) ==
          wire::PeerLost{1, "here", {.kind = Departure::Kind::ended, .signal = SIGKILL}});
  }
}

TEST_CASE("an abort reaches the other members") {
  Hosted hosted;
  Member one(hosted.control_of(0), 0);
  Member two(hosted.control_of(1), 1);
  REQUIRE(hosted.heard("joined 0"));
  REQUIRE(hosted.heard("joined 1"));
  Bytes payload;
  wire::encode(payload, wire::Abort{Errc::aborted, "rank 0 gave up"});
  one.client().tell(wire::Type::abort, payload);
  const auto push = two.next(wire::Type::abort);
  REQUIRE(push);
  CHECK(wire::decode<wire::Abort>(push->payload)->sentence == "rank 0 gave up");
}

TEST_CASE("a new attempt knows neither the old members nor their keys, and shares new memory") {
  Hosted hosted;
  std::uint64_t before = 0;
  {
    Member member(hosted.control_of(0), 0), neighbour(hosted.control_of(1), 1);
    member.client().set("mesh/0", as_bytes("address"));
    auto grant = member.next(wire::Type::grant), same = neighbour.next(wire::Type::grant);
    REQUIRE(grant);
    REQUIRE(same);
    before = Segment::adopt(std::move(grant->descriptors.back()))->id();
    CHECK(Segment::adopt(std::move(same->descriptors.back()))->id() == before);
  }
  REQUIRE(hosted.heard("left 0"));
  REQUIRE(hosted.heard("left 1"));
  hosted.on_loop([&] { hosted.host().begin_attempt(hosted.identity()); });
  Member member(hosted.control_of(0), 0);
  CHECK(!member.client().get("mesh/0"));
  auto fresh = member.next(wire::Type::grant);
  REQUIRE(fresh);
  CHECK(Segment::adopt(std::move(fresh->descriptors.back()))->id() != before);
}

}  // namespace dlaunch::rendezvous
