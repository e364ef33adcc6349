// Joining through an agent: which way in is taken, what comes with it, and what is said when there
// is none. The agent here is a server in a thread that grants each worker a listener.
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server.hpp"
#include "runtime/world/join.hpp"
#include "tests/support/expect.hpp"

#include <future>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

using namespace dlaunch;

namespace {

using testing::contains;

class Agent final : public store::Host {
 public:
  explicit Agent(const std::string& socket_name) {
    server_.listen(listen_unix(socket_name), {});
    thread_ = std::jthread([this] {
      const auto running = boost::asio::make_work_guard(io_);
      io_.run();
    });
  }
  ~Agent() override {
    boost::asio::post(io_, [this] {
      server_.stop();
      io_.stop();
    });
  }

  unique_fd connect() {
    auto [mine, theirs] = socket_pair();
    auto shared = std::make_shared<unique_fd>(std::move(theirs));
    boost::asio::post(io_, [this, shared] { server_.adopt(std::move(*shared)); });
    return std::move(mine);
  }
  void lose(int rank, const std::string& cause) {
    boost::asio::post(io_, [this, rank, cause] {
      Bytes news;
      wire::encode(news, wire::PeerLost{rank, "here", Departure::because(cause)});
      for (const auto who : members_) server_.push(who, wire::Type::peer_lost, news);
    });
  }
  /// The messages that the members have sent so far, once one has closed its connection.
  struct Story {
    std::vector<wire::Type> told;
    std::string reported;
    bool goodbye = false;
  };
  Story story() { return story_.get_future().get(); }

 private:
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId who,
                                             const wire::Hello& hello) override {
    if (!hello.member) return Refusal{Errc::refused, "who are you?"};
    if (hello.member->rank == 13) return Refusal{Errc::refused, "rank 13 is taken"};
    members_.push_back(who);
    boost::asio::post(io_, [this, who] {
      Bytes grant;
      wire::encode(grant, wire::Grant{true, 500});
      std::vector<unique_fd> fds;
      fds.push_back(listen_tcp(resolve("127.0.0.1", 0).at(0)));
      granted_ = local_address(fds.front().get()).port();
      server_.push(who, wire::Type::grant, grant, std::move(fds));
    });
    return wire::Welcome{hello.job, 0, 0};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader& header,
                  BytesView payload) override {
    so_far_.told.push_back(header.type);
    if (header.type == wire::Type::report) {
      so_far_.reported = wire::decode<wire::Report>(payload).value().sentence;
    }
  }
  void on_other_version(store::ConnectionId, std::uint32_t) override {}
  void on_closed(store::ConnectionId, bool goodbye) override {
    so_far_.goodbye = goodbye;
    story_.set_value(so_far_);
  }

  boost::asio::io_context io_;
  store::Server server_{io_, *this};
  std::vector<store::ConnectionId> members_;
  int granted_ = 0;
  Story so_far_;
  std::promise<Story> story_;
  std::jthread thread_;
};

std::string unused_name() { return "@dlaunch-test-" + random_hex(32); }

Joining joining_of(int rank = 0) {
  Joining joining;
  joining.place.info.rank = rank;
  joining.place.info.size = rank + 1;
  joining.place.info.hostname = "here";
  joining.place.on_node = true;
  joining.deadline = deadline_after(std::chrono::seconds(30));
  return joining;
}

Environment environment_with(int control, const std::string& agent) {
  Environment environment;
  if (control >= 0) environment.emplace("DLAUNCH_WORKER_CONTROL", std::to_string(control));
  if (!agent.empty()) environment.emplace("DLAUNCH_WORKER_AGENT", agent);
  return environment;
}

/// As it is after exec: what a worker inherits has no close-on-exec flag.
int inherited(unique_fd fd) {
  ::fcntl(fd.get(), F_SETFD, 0);
  return fd.release();
}

std::string refusal(const Environment& environment, Errc code, int rank = 0) {
  Joining joining = joining_of(rank);
  try {
    join_agent(environment, joining);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a worker takes its control socket and the listener that is granted with it") {
  Agent agent(unused_name());
  const int control = inherited(agent.connect());
  Joining joining = joining_of();
  {
    const World world = form_world(join_agent(environment_with(control, ""), joining), joining);
    CHECK((::fcntl(control, F_GETFD) & FD_CLOEXEC) != 0);
    const unique_fd listener = world.membership()->take_listener();
    REQUIRE(listener);
    CHECK(as_text(*world.store()->get("mesh/0")) == local_address(listener.get()).to_string());
    CHECK_FALSE(world.membership()->take_listener());
  }
  const Agent::Story story = agent.story();
  CHECK(story.told == std::vector{wire::Type::ready});
  CHECK(story.goodbye);
}

TEST_CASE("an end in an exception says no goodbye, and a report arrives before it") {
  Agent agent(unused_name());
  const int control = inherited(agent.connect());
  try {
    Joining joining = joining_of();
    const World world = form_world(join_agent(environment_with(control, ""), joining), joining);
    world.membership()->report(Error(Errc::timeout, "nobody came"),
                               {.fault = Fault::absent, .ranks = {3}});
    // A round trip: what was told before has been heard.
    static_cast<void>(world.store()->get("x"));
    throw std::runtime_error("a failure of the program");
  } catch (const std::runtime_error&) {
  }
  const Agent::Story story = agent.story();
  CHECK(story.reported == "nobody came");
  CHECK_FALSE(story.goodbye);
}

TEST_CASE("losses wake whoever polls the membership") {
  Agent agent(unused_name());
  Joining joining = joining_of();
  const World world =
      form_world(join_agent(environment_with(inherited(agent.connect()), ""), joining), joining);
  CHECK(world.membership()->losses().empty());
  agent.lose(4, "killed by SIGKILL");
  std::vector<PeerLoss> losses;
  while (losses.empty()) {
    pollfd wait{world.membership()->fd(), POLLIN, 0};
    REQUIRE(::poll(&wait, 1, poll_timeout_ms(joining.deadline)) == 1);
    losses = world.membership()->losses();
  }
  CHECK(losses[0].rank == 4);
  CHECK(losses[0].cause == "killed by SIGKILL");
  CHECK(world.membership()->losses().size() == 1);
}

TEST_CASE("a control socket that is closed, or something else, gives way to the agent's name") {
  const std::string name = unused_name();
  const unique_fd file(::open("/dev/null", O_RDONLY));
  const unique_fd tcp = listen_tcp(resolve("127.0.0.1", 0).at(0));
  ::fcntl(tcp.get(), F_SETFD, 0);
  auto [taken, other_end] = socket_pair();  // Close-on-exec: not inherited.
  for (const int control : {1000, file.get(), tcp.get(), taken.get(), -1}) {
    CAPTURE(control);
    Agent agent(name);
    Joining joining = joining_of();
    CHECK_NOTHROW(join_agent(environment_with(control, name), joining));
    CHECK_FALSE(agent.story().told.size() > 0);
  }
}

TEST_CASE("without any way in, the sentence says what happened to each") {
  const std::string name = unused_name();
  const std::string closed = refusal(environment_with(1000, name), Errc::unreachable);
  CHECK(contains(closed, "rank 0 cannot reach the agent that started it"));
  CHECK(contains(closed, "descriptor 1000 (DLAUNCH_WORKER_CONTROL) is closed"));
  CHECK(contains(closed, name.substr(1)));
  const std::string none = refusal({}, Errc::unreachable);
  CHECK(contains(none, "DLAUNCH_WORKER_CONTROL is not set"));
  CHECK(contains(none, "DLAUNCH_WORKER_AGENT is not set"));
  auto [mine, theirs] = socket_pair();
  const int control = inherited(std::move(mine));
  theirs.reset();
  CHECK(contains(refusal(environment_with(control, ""), Errc::unreachable),
                 "the control socket broke"));
  CHECK(refusal(environment_with(-1, ""), Errc::unreachable) != "");
}

TEST_CASE("what the agent refuses is final") {
  const std::string name = unused_name();
  Agent agent(name);
  const int control = inherited(agent.connect());
  CHECK(contains(refusal(environment_with(control, name), Errc::refused, 13), "rank 13 is taken"));
}
