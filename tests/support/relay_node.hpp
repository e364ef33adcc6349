#pragma once

#include "rendezvous/service/job_host.hpp"
#include "runtime/store/relay/uplink.hpp"
#include "tests/support/store_server.hpp"

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

namespace dlaunch::test {

/// An agent without processes: its host, its uplink to a store elsewhere, and as many members as
/// the test asks for. On a thread of its own.
class RelayNode : private rendezvous::JobObserver, private store::Uplink::Events {
 public:
  template <class Act>
  auto on_loop(Act act) {
    std::packaged_task<decltype(act())()> task(act);
    auto result = task.get_future();
    boost::asio::post(io_, [&] { task(); });
    return result.get();
  }
  RelayNode(const Address& to, int first_rank, int local_size, int world_size,
            std::uint64_t session)
      : first_rank_(first_rank), local_size_(local_size), world_size_(world_size) {
    store::Uplink::Options options;
    options.host = to.host();
    options.port = to.port();
    options.hello.session = session;
    options.backoff_min = 5ms;
    options.backoff_max = 50ms;
    store::Uplink::Events& events = *this;
    rendezvous::JobObserver& observer = *this;
    uplink_.emplace(io_, std::move(options), events);
    host_.emplace(io_, identity(7), observer, &*uplink_);
    uplink_->start();
    thread_ = std::jthread([this] { io_.run(); });
  }
  ~RelayNode() override {
    on_loop([&] {
      host_.reset();
      uplink_.reset();
      work_.reset();
    });
  }

  rendezvous::JobIdentity identity(std::uint64_t epoch) const {
    return {.job = "job-1",
            .epoch = epoch,
            .first_rank = first_rank_,
            .local_size = local_size_,
            .world_size = world_size_,
            .host = "here"};
  }
  std::unique_ptr<store::Client> client(int rank, std::uint64_t session = 0) {
    auto [ours, theirs] = socket_pair();
    on_loop([&, fd = std::make_shared<unique_fd>(std::move(ours))] {
      host_->expect(rank, std::move(*fd));
    });
    store::Client::Options options;
    options.hello.session = session != 0 ? session : static_cast<std::uint64_t>(1000 + rank);
    options.hello.member = wire::Member{rank, world_size_, 1, "here"};
    options.peer_name = "the agent";
    return std::make_unique<store::Client>(std::move(theirs), std::move(options), nullptr, soon());
  }
  /// How many requests have gone up so far, this one included.
  std::uint64_t requests() {
    return on_loop([&] { return uplink_->request(wire::Count::type, 0, {}, nullptr); });
  }
  bool connected() {
    return on_loop([&] { return uplink_->connected(); });
  }
  /// Waits for it; false after 20 s.
  bool becomes_connected(bool wanted = true) {
    const auto deadline = soon();
    while (connected() != wanted) {
      if (Clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  rendezvous::JobHost& host() { return *host_; }

 private:
  void on_joined(int) override {}
  void on_reported(int, const wire::Report&) override {}
  void on_inquired(int, const std::vector<std::int32_t>&) override {}
  void on_left(int) override {}
  void on_warning(const std::string&) override {}
  void on_refused_client(const Address&, const Address&, const std::string&) override {}
  void on_welcome(const wire::Welcome&) override {}
  void on_push(const wire::FrameHeader&, BytesView) override {}
  void on_trouble(const Error&, Clock::time_point) override {}
  void on_refused(const Error&) override {}

  const int first_rank_, local_size_, world_size_;
  boost::asio::io_context io_{1};
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_{
      io_.get_executor()};
  std::optional<store::Uplink> uplink_;
  std::optional<rendezvous::JobHost> host_;
  std::jthread thread_;
};

}  // namespace dlaunch::test
