#pragma once

#include "rendezvous/service/messages.hpp"
#include "rendezvous/service/service.hpp"
#include "tests/support/raw_peer.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <sys/ioctl.h>

namespace dlaunch::test {

namespace message = rendezvous::message;
using Outcome = rendezvous::WorkersEnded::Outcome;

/// A rendezvous service on a thread of its own, with a TCP port.
class ServiceThread {
 public:
  explicit ServiceThread(rendezvous::ServiceRules rules = {},
                         rendezvous::JobJournal* journal = nullptr)
      : service_(std::make_unique<rendezvous::Service>(
            io_, std::move(rules), [this](const rendezvous::LogLine& line) { note(line); },
            journal)) {
    unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    address = local_address(listener.get());
    service_->listen(std::move(listener));
    thread_ = std::jthread([this] { io_.run(); });
  }
  /// Runs `act` on the service's thread and returns its result.
  template <class Act>
  auto on_loop(Act act) {
    std::packaged_task<decltype(act(std::declval<rendezvous::Service&>()))()> task(
        [&] { return act(*service_); });
    auto result = task.get_future();
    boost::asio::post(io_, [&] { task(); });
    return result.get();
  }
  /// Runs `act` there, once what the thread does now is done.
  template <class Act>
  void post(Act act) {
    boost::asio::post(io_, [this, act] { act(*service_); });
  }
  ~ServiceThread() {
    on_loop([](rendezvous::Service& service) { service.stop(); });
    work_.reset();
  }

  std::vector<rendezvous::NamedJobStatus> jobs() {
    return on_loop([](rendezvous::Service& service) { return service.jobs(); });
  }
  bool idle() {
    return on_loop([](rendezvous::Service& service) { return service.idle(); });
  }
  /// Waits until a line of this job's with these words is logged; false after 20 s.
  bool logged(const std::string& job, const std::string& words) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, soon(), [&] {
      return std::ranges::any_of(log_, [&](const auto& line) {
        return line.job == job && line.sentence.find(words) != std::string::npos;
      });
    });
  }

  Address address;
  /// Gets each line of the log, on the service's thread, on which it is to be set.
  std::function<void(const rendezvous::LogLine&)> on_line;

 private:
  void note(const rendezvous::LogLine& line) {
    if (on_line) on_line(line);
    const std::lock_guard lock(mutex_);
    log_.push_back(line);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<rendezvous::LogLine> log_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::unique_ptr<rendezvous::Service> service_;
  std::jthread thread_;
};

/// An agent that says what the test tells it to.
class AgentPeer {
 public:
  AgentPeer(const Address& service, std::string job, std::uint64_t session)
      : peer_(connect_tcp(service, soon())) {
    peer_.say_hello(session, std::move(job));
    CHECK(peer_.read(wire::preface_bytes).size() == wire::preface_bytes);
  }

  /// The answer to HELLO.
  wire::Welcome welcome() {
    const auto [header, payload] = take(wire::Type::welcome);
    return wire::decode<wire::Welcome>(payload).value_or(wire::Welcome{});
  }
  wire::Failed unwelcome() {
    const auto [header, payload] = take(wire::Type::failed);
    return wire::decode<wire::Failed>(payload).value_or(wire::Failed{});
  }
  template <class Message>
  void tell(const Message& message) {
    Bytes payload, out;
    rendezvous::message::encode(payload, message);
    wire::encode_frame(out, {0, Message::type, 0, 0, 0}, payload);
    peer_.say(out);
  }
  void tell(wire::Type type, BytesView payload) {
    Bytes out;
    wire::encode_frame(out, {0, type, 0, 0, 0}, payload);
    peer_.say(out);
  }
  /// The next message of this type; others are kept.
  template <class Message>
  Message hear() {
    const auto [header, payload] = take(Message::type);
    const auto decoded = rendezvous::message::decode<Message>(payload);
    CHECK(decoded);
    return decoded.value_or(Message{});
  }
  template <class Message>
  void ask(std::uint64_t request, const Message& message, std::uint64_t epoch = 0) {
    peer_.ask(request, message, epoch);
  }
  template <class Message>
  Message answer() {
    answer_ = take(Message::type).second;  // The decoded message points into it.
    return wire::decode<Message>(answer_).value_or(Message{});
  }
  void say_goodbye() { tell(wire::Type::goodbye, {}); }
  bool has_something_to_read() const {
    int bytes = 0;
    return ::ioctl(peer_.fd(), FIONREAD, &bytes) == 0 && bytes > 0;
  }
  bool closed_by_service() { return peer_.closed_by_server(); }
  void hang_up() { peer_.hang_up(); }

 private:
  using Frame = std::pair<wire::FrameHeader, Bytes>;

  Frame take(wire::Type type) {
    const auto kept = std::ranges::find(kept_, type, [](const Frame& f) { return f.first.type; });
    if (kept != kept_.end()) {
      Frame found = std::move(*kept);
      kept_.erase(kept);
      return found;
    }
    for (;;) {
      Frame frame = peer_.frame();
      if (frame.first.type == type) return frame;
      if (frame.first == wire::FrameHeader{}) {  // Closed, or 20 s have passed.
        CHECK_MESSAGE(false, "no message of type ", static_cast<int>(type), " came");
        return {};
      }
      kept_.push_back(std::move(frame));
    }
  }

  RawPeer peer_;
  std::deque<Frame> kept_;
  Bytes answer_;
};

/// The answer comes when all that was said before has been heard.
inline void settle(AgentPeer& agent) {
  agent.tell(message::Heartbeat{});
  agent.hear<message::Heartbeat>();
}

inline message::Join node(const std::string& id, int nodes = 2, int max_restarts = 0) {
  message::Join join;
  join.offer = {id, "host-" + id, 1, std::nullopt, {"127.0.0.1:1"}};
  join.rules.nodes_min = join.rules.nodes_max = nodes;
  join.rules.max_restarts = max_restarts;
  join.rules.join_timeout = std::chrono::minutes(10);
  join.rules.liveness.reconnect_grace = std::chrono::seconds(20);
  join.version = "test";
  return join;
}
/// As node, of a job that does not wait for who has gone.
inline message::Join impatient(const std::string& id, int nodes = 2, int max_restarts = 0) {
  message::Join join = node(id, nodes, max_restarts);
  join.rules.liveness.reconnect_grace = std::chrono::milliseconds(1);
  return join;
}

inline message::WorkersEnded ended(std::uint64_t epoch, Outcome outcome = Outcome::succeeded,
                                   int exit_code = 0) {
  return {epoch, outcome, exit_code, exit_code == 0 ? "" : "it failed", {}, {}, {}};
}
inline Fact failed_fact(int rank) {
  Fact fact;
  fact.rank = rank;
  fact.end = Fact::End::failed;
  fact.exit_code = 3;
  return fact;
}

/// Two agents of a job in their first epoch.
struct Pair {
  Pair(ServiceThread& service, const std::string& job, std::uint64_t session,
       const message::Join& first, const message::Join& second)
      : a(service.address, job, session), b(service.address, job, session + 1) {
    a.welcome();
    b.welcome();
    a.tell(first);
    b.tell(second);
    place_a = a.hear<message::Admitted>();
    place_b = b.hear<message::Admitted>();
    epoch = place_a.admission.epoch;
    CHECK(place_b.admission.epoch == epoch);
  }
  Pair(ServiceThread& service, const std::string& job, std::uint64_t session)
      : Pair(service, job, session, node("a"), node("b")) {}

  void succeed() {
    a.tell(ended(epoch));
    b.tell(ended(epoch));
    CHECK(a.hear<message::Finished>().exit_code == 0);
    CHECK(b.hear<message::Finished>().exit_code == 0);
  }

  AgentPeer a, b;
  message::Admitted place_a, place_b;
  std::uint64_t epoch = 0;
};

}  // namespace dlaunch::test
