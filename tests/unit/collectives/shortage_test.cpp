// A rank's ways out for want of something: descriptors, memory, an answer of its store, its
// neighbours.
#include "collectives/call/core/flight_words.hpp"
#include "collectives/transport/links.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/wrapped_store.hpp"

#include <dlaunch/dlaunch.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Event;
using testing::FakeMembership;
using testing::run_ranks_on;
using testing::WrappedStore;

namespace {

World world_of_two(int rank, const std::shared_ptr<Store>& store,
                   const std::shared_ptr<Membership>& membership = nullptr) {
  WorldInfo info;
  info.rank = rank;
  info.size = 2;
  info.local_rank = rank;
  info.local_size = 2;
  info.job = "test";
  return World(info, store, membership);
}

/// So many descriptors can be opened while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const auto open = [] { return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); };
    // The kernel gives the lowest that is free; poll(2) takes no more entries than the limit.
    while (taken_.empty() || taken_.back().get() < 64) taken_.push_back(open());
    std::vector<unique_fd> opened;
    for (int i = 0; i <= more; ++i) opened.push_back(open());
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(opened.back().get());
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<unique_fd> taken_;
};

/// Two ranks in one thread, one of which sends eight bytes to the other.
struct Pair {
  std::shared_ptr<Store> store;
  transport::Links sender{world_of_two(0, store), flight_words()};
  transport::Links receiver{world_of_two(1, store), flight_words()};
  transport::Fingerprint call;
  std::vector<std::byte> data = std::vector<std::byte>(8, std::byte{7});
  std::vector<std::byte> into = std::vector<std::byte>(8);
  transport::Receive receive;
  const transport::ProgressLock::Held sends = sender.lock();
  const transport::ProgressLock::Held receives = receiver.lock();

  explicit Pair(std::shared_ptr<Store> shared) : store(std::move(shared)) {
    call.op = transport::Op::send;
    call.dtype = DType::u8;
    call.count = data.size();
    receive.kind = transport::Kind::message;
    receive.communicator = 1;
    receive.from = 0;
    receive.expected = call;
    receive.into = into;
    receiver.post(receive);
  }
  transport::Outgoing outgoing(int tag) const {
    transport::Outgoing message;
    message.to = 1;
    message.header = make_header(transport::Kind::message, 1, call, data.size(), tag);
    message.payload = data;
    return message;
  }
  bool until(const std::function<bool()>& holds) {
    const auto deadline = Clock::now() + 20s;
    while (!holds() && Clock::now() < deadline) {
      sender.step(Clock::now() + 1ms, false);
      receiver.step(Clock::now() + 1ms, false);
    }
    return holds();
  }
};

/// Fails at a request for a value.
class FailingStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  std::optional<Bytes> get(std::string_view key) override {
    if (std::exchange(fails, false)) throw Error(Errc::unreachable, "the store is gone");
    return WrappedStore::get(key);
  }
  bool fails = false;
};

}  // namespace

TEST_CASE("a message to a rank that could not be looked up is not sent later") {
  using namespace transport;
  const auto store = std::make_shared<FailingStore>(std::make_shared<LocalStore>());
  Pair pair(store);
  {
    Outgoing forgotten = pair.outgoing(1);
    store->fails = true;
    CHECK_THROWS_AS(pair.sender.post(forgotten), Error);
    CHECK(forgotten.state == Outgoing::State::failed);
  }
  CHECK(pair.sender.is_flushed());
  Outgoing outgoing = pair.outgoing(2);
  pair.sender.post(outgoing);
  CHECK(pair.until([&] { return pair.receive.state == Receive::State::done; }));
  CHECK(pair.receive.header.tag == 2);
}

TEST_CASE("without descriptors ranks wait for their connections, and say so") {
  using namespace transport;
  Pair pair(std::make_shared<LocalStore>());
  Links &sender = pair.sender, &receiver = pair.receiver;
  const Receive& receive = pair.receive;
  Outgoing outgoing = pair.outgoing(0);
  {
    const FewDescriptors none(0);
    sender.post(outgoing);
    sender.step(Clock::now(), false);
    CHECK(outgoing.pending());
    CHECK(sender.break_of(1) == nullptr);
  }
  {
    const FewDescriptors one(1);  // To connect with, and none to accept.
    CHECK(pair.until([&] { return !receiver.shortage().empty(); }));
    CHECK(receiver.shortage() == "it cannot accept connections: Too many open files");
    CHECK(receive.pending());
  }
  CHECK(pair.until([&] { return receive.state == Receive::State::done; }));
  CHECK(pair.into == pair.data);
  CHECK(receiver.shortage().empty());
}

namespace {

/// Runs out of memory where the program is not in a call.
class PoorMembership final : public Membership {
 public:
  explicit PoorMembership(std::thread::id rich) : rich_(rich) {}
  Event& failed() { return failed_; }

  int fd() const override { return -1; }
  std::vector<PeerLoss> losses() override {
    if (std::this_thread::get_id() == rich_) return {};
    failed_.set();
    throw std::bad_alloc();
  }
  void report(const Error&, const Claim&) noexcept override {}
  void inquire(const std::vector<int>&) noexcept override {}
  std::optional<std::map<int, SeenDoing>> doing() const override { return std::nullopt; }
  unique_fd take_listener() override { return {}; }
  std::shared_ptr<Segment> segment() override { return nullptr; }
  std::optional<Key> data_key() const override { return std::nullopt; }
  void drain_output(Clock::time_point) override {}

 private:
  const std::thread::id rich_;
  Event failed_;
};

}  // namespace

TEST_CASE("a background thread without memory leaves its work to the calls") {
  const auto store = std::make_shared<LocalStore>();
  const auto membership = std::make_shared<PoorMembership>(std::this_thread::get_id());
  Communicator mine(world_of_two(0, store, membership));
  std::vector<int> into{0};
  Work receiving = mine.irecv(into, 1);
  REQUIRE(membership->failed().wait());
  std::jthread other([&] {
    Communicator theirs(world_of_two(1, store));
    const std::vector<int> data{7};
    theirs.send(data, 0);
  });
  receiving.wait();
  CHECK(into[0] == 7);
}

namespace {

/// From some moment on it answers nothing, and a wait ends with its deadline.
class SilentStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  void fall_silent() { silent_ = true; }
  bool was_asked() { return asked_.wait(); }
  /// So that a test which has failed ends.
  void speak() { spoken_.set(); }

  std::optional<Bytes> get(std::string_view key) override {
    stay_silent();
    return WrappedStore::get(key);
  }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    asked_if_silent();
    if (!silent_) return WrappedStore::wait(key, deadline);
    std::this_thread::sleep_until(deadline);
    throw Error(Errc::timeout, "the store is silent");
  }

 private:
  void asked_if_silent() {
    if (silent_) asked_.set();
  }
  void stay_silent() {
    asked_if_silent();
    if (silent_) spoken_.wait();
  }

  std::atomic<bool> silent_{false};
  Event asked_, spoken_;
};

}  // namespace

TEST_CASE("abort ends an agreement whose store is silent, and other calls go on meanwhile") {
  const auto store = std::make_shared<SilentStore>(std::make_shared<LocalStore>());
  Communicator comm(world_of_two(0, store));
  comm.set_timeout(60s);
  Communicator beside = comm.group_of_members(std::vector{0});
  store->fall_silent();
  std::optional<Errc> code;
  Event ended;
  std::jthread agreeing([&] {
    try {
      static_cast<void>(comm.agree(1));
    } catch (const Error& error) {
      code = error.errc();
    }
    ended.set();
  });
  REQUIRE(store->was_asked());
  std::vector<int> x{1}, y{0};
  Work message = beside.isend(x, 0);
  beside.recv(y, 0);
  message.wait();
  comm.abort();
  const bool in_time = ended.wait(10s);
  store->speak();
  agreeing.join();
  CHECK(in_time);
  CHECK(code == Errc::aborted);
  CHECK(y[0] == 1);
}

namespace {

class CountingStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  int requests() const { return requests_; }

  std::optional<Bytes> get(std::string_view key) override {
    ++requests_;
    return WrappedStore::get(key);
  }

 private:
  std::atomic<int> requests_{0};
};

}  // namespace

TEST_CASE("a rank of the node that is late costs its leader few requests") {
  const auto store = std::make_shared<CountingStore>(std::make_shared<LocalStore>());
  SegmentPlan plan;
  plan.world_ranks = {0, 1};
  plan.arena_bytes = 64u << 20;
  const auto membership = std::make_shared<FakeMembership>();
  membership->share(Segment::create(plan));
  Communicator comm(world_of_two(0, store, membership));
  const int before = store->requests();
  CHECK_THROWS_AS(comm.barrier({.timeout = 1s}), Error);
  // Once at the beginning, then after ever longer pauses.
  CHECK(store->requests() - before < 100);
}
