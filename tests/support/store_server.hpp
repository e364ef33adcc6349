#pragma once

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/client/client.hpp"
#include "runtime/store/server/server.hpp"

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace dlaunch::test {

using namespace std::chrono_literals;

inline Clock::time_point soon() { return Clock::now() + 20s; }

/// Lets everyone in, and remembers what it heard.
class RecordingHost : public store::Host {
 public:
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId who,
                                             const wire::Hello& hello) override {
    if (hello.job == "forbidden") return Refusal{Errc::refused, "this job may not come in"};
    record("hello " + (hello.member ? hello.member->hostname : std::string("-")));
    const std::lock_guard lock(mutex_);
    last_ = who;
    return wire::Welcome{many_jobs ? hello.job : "job-1", 7, memory};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader& header,
                  BytesView payload) override {
    if (on_report) on_report();
    record("message " + std::to_string(static_cast<int>(header.type)) + " " +
           std::string(as_text(payload)));
  }
  void on_other_version(store::ConnectionId, std::uint32_t theirs) override {
    record("other version " + std::to_string(theirs));
  }
  void on_closed(store::ConnectionId, bool goodbye) override {
    record(goodbye ? "goodbye" : "closed");
  }
  bool on_turn(const std::string& job) override { return on_work && on_work(job); }

  // Set before anybody connects.
  std::uint64_t memory = 0;
  bool many_jobs = false;           ///< Each is welcomed to the job it names.
  std::function<void()> on_report;  ///< Called with each message, on the server's thread.
  std::function<bool(const std::string&)> on_work;  ///< Called in turns of a job with own work.

  /// Waits until it was heard, and forgets it; false after 20 s.
  bool heard(const std::string& what) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_until(lock, soon(), [&] { return heard_.contains(what); });
    if (came) heard_.erase(heard_.find(what));
    return came;
  }
  bool quiet() {
    const std::lock_guard lock(mutex_);
    return heard_.empty();
  }
  store::ConnectionId last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void record(std::string what) {
    const std::lock_guard lock(mutex_);
    heard_.insert(std::move(what));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<std::string> heard_;
  store::ConnectionId last_ = 0;
};

/// A real server on a thread of its own, with a TCP port for the native protocol and one for both.
class ServerThread {
 public:
  explicit ServerThread(store::Limits limits = {}) : server_(io_, host, limits) {
    unique_fd native = listen_tcp(resolve("127.0.0.1", 0).at(0));
    unique_fd both = listen_tcp(resolve("127.0.0.1", 0).at(0));
    native_address = local_address(native.get());
    both_address = local_address(both.get());
    server_.listen(std::move(native), {true, false});
    server_.listen(std::move(both), {true, true});
    thread_ = std::jthread([this] { io_.run(); });
  }
  /// Runs `act` on the server's thread and returns its result.
  template <class Act>
  auto on_loop(Act act) {
    std::packaged_task<decltype(act(std::declval<store::Server&>()))()> task(
        [&] { return act(server_); });
    auto result = task.get_future();
    boost::asio::post(io_, [&] { task(); });
    return result.get();
  }
  ~ServerThread() {
    on_loop([](store::Server& server) { server.stop(); });
    work_.reset();
  }

  store::Counters counters() {
    return on_loop([](store::Server& server) { return server.counters(); });
  }
  /// Waits until the counters satisfy `wanted`; false after 20 s.
  bool count(const std::function<bool(const store::Counters&)>& wanted) {
    const auto deadline = soon();
    while (!wanted(counters())) {
      if (Clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  unique_fd connect() { return connect_tcp(native_address, soon()); }
  store::Client client(std::uint64_t session = 0, store::Client::OnPush on_push = nullptr) {
    return {connect(), options(session), std::move(on_push), soon()};
  }
  /// A client over one end of a socket pair, as a worker has it.
  store::Client paired_client(std::uint64_t session = 0, store::Client::OnPush on_push = nullptr) {
    auto pair = socket_pair();
    on_loop([&](store::Server& server) { return server.adopt(std::move(pair.second)); });
    return {std::move(pair.first), options(session), std::move(on_push), soon()};
  }
  static store::Client::Options options(std::uint64_t session) {
    store::Client::Options result;
    result.hello.session = session;
    result.peer_name = "the test's store";
    return result;
  }

  RecordingHost host;
  Address native_address, both_address;

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  store::Server server_;
  std::jthread thread_;
};

inline std::string text(const Bytes& bytes) { return std::string(as_text(bytes)); }
inline std::string text(const std::optional<Bytes>& bytes) {
  return bytes ? text(*bytes) : std::string("(absent)");
}

/// The error `act` ends with.
inline std::pair<Errc, std::string> failure(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return {error.errc(), error.what()};
  }
  return {Errc{}, "no error"};
}

}  // namespace dlaunch::test
