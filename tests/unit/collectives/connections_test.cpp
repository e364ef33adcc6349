// How many connections the ranks of a world make for what they do: what each call may make is said
// in docs/collectives.md.
#include "tests/support/connections.hpp"

#include "collectives/call/core/flight_words.hpp"
#include "collectives/transport/links.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/raw_rank.hpp"
#include "tests/support/skipped.hpp"

#include <dlaunch/dlaunch.hpp>

#include <barrier>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Calls = std::vector<std::pair<std::string, std::function<void(Communicator&)>>>;

void all_reduce(Communicator& comm, std::size_t count) {
  std::vector<int> data(count, 1);
  comm.all_reduce(data);
  if (data != std::vector<int>(count, comm.size())) throw std::runtime_error("a wrong sum");
}

void broadcast(Communicator& comm, std::size_t count) {
  std::vector<int> data(count, comm.rank());
  comm.broadcast(data, 0);
  if (data != std::vector<int>(count, 0)) throw std::runtime_error("another rank's data");
}

/// How many connections there are when the world is there, and after each of the calls.
std::vector<std::size_t> count_connections(int ranks, const Calls& calls) {
  const std::size_t before = testing::connection_ends();
  std::vector<std::size_t> counts;
  std::barrier all(ranks);
  const auto outcomes = testing::run_ranks(ranks, [&](const World& world) {
    // However a rank ends, nobody waits for it at the barrier.
    struct Leaving {
      std::barrier<>& all;
      ~Leaving() { all.arrive_and_drop(); }
    } const leaving{all};
    Communicator comm(world);
    comm.set_timeout(60s);
    for (std::size_t i = 0; i <= calls.size(); ++i) {
      if (i > 0) calls[i - 1].second(comm);
      all.arrive_and_wait();
      // Both ends are in this process.
      if (comm.rank() == 0) counts.push_back((testing::connection_ends() - before) / 2);
      all.arrive_and_wait();
    }
  });
  for (const auto& outcome : outcomes) REQUIRE_MESSAGE(outcome.ok(), outcome.text);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    MESSAGE(ranks << " ranks, " << (i == 0 ? "ready" : calls[i - 1].first) << ": " << counts[i]
                  << " connections");
  }
  return counts;
}

/// The process may have so many descriptors; asks for them.
bool has_descriptors(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= wanted;
}

}  // namespace

TEST_CASE("64 ranks make no connection before they talk, and then few each") {
  constexpr std::size_t ranks = 64;
  if (!has_descriptors(4096)) {
    return testing::skipped("4096 descriptors are needed");
  }
  const Calls calls = {
      {"a barrier", [](Communicator& comm) { comm.barrier(); }},
      {"all_reduce of 4 bytes", [](Communicator& comm) { all_reduce(comm, 1); }},
      {"all_reduce of 16 KiB", [](Communicator& comm) { all_reduce(comm, 4096); }},
      {"broadcast of 4 bytes", [](Communicator& comm) { broadcast(comm, 1); }},
      {"broadcast of 1 MiB", [](Communicator& comm) { broadcast(comm, 1u << 18); }},
  };
  const auto counts = count_connections(static_cast<int>(ranks), calls);
  CHECK(counts.front() == 0);
  const bool shared = testing::ranks_share_memory();
  for (const std::size_t count : counts) {
    CHECK(count <= (shared ? 0 : 3 * ranks * std::bit_width(ranks - 1)));
  }
  if (!shared) CHECK(counts.back() > ranks);
}

/// A rank of a world of 3000, to which other ranks connect that are nothing but a socket.
struct Crowded {
  std::shared_ptr<LocalStore> store = std::make_shared<LocalStore>();
  transport::Links links{world(), flight_words()};
  std::vector<testing::RawRank> others;  ///< Rank 1 and those that follow.

  static WorldInfo info(int rank) {
    WorldInfo info;
    info.rank = rank;
    info.size = 3000;
    info.node_count = 3000;
    info.local_size = 1;
    info.job = "crowd";
    return info;
  }
  World world() const { return World(info(0), store, nullptr); }
  bool until(const std::function<bool()>& holds) {
    const auto deadline = Clock::now() + 60s;
    while (!holds() && Clock::now() < deadline) links.step(deadline);
    return holds();
  }
  void connect(const Address& address) {
    others.emplace_back(address, info(static_cast<int>(others.size()) + 1));
  }
  testing::RawRank& other(int rank) { return others[static_cast<std::size_t>(rank) - 1]; }
};

TEST_CASE("among 2000 connections that are idle, those that are not are served") {
  using namespace transport;
  if (!has_descriptors(8192)) return testing::skipped("8192 descriptors are needed");
  Crowded crowd;
  Links& links = crowd.links;
  const auto lock = links.lock();
  const Address there = testing::address_of(*crowd.store, 0);
  for (int rank = 1; rank <= 2000; ++rank) {
    crowd.connect(there);
    // Each when it is known, so that none has to make room for another.
    REQUIRE(crowd.until([&] { return links.has_left_something(rank); }));
  }

  Fingerprint call;
  call.op = Op::send;
  call.dtype = DType::u8;
  call.count = 8;
  const Bytes message = testing::raw_message(8, 7);
  std::vector<std::vector<std::byte>> into(3, std::vector<std::byte>(8));
  std::vector<Receive> receives(3);
  const auto receive = [&](std::size_t place, int from) -> const Receive& {
    Receive& posted = receives[place];
    posted.kind = Kind::message;
    posted.communicator = 1;
    posted.from = from;
    posted.expected = call;
    posted.into = into[place];
    links.post(posted);
    return posted;
  };
  // One of them closes, one sends a part of a message, one a whole one.
  const Receive& partly = receive(0, 1500);
  const Receive& whole = receive(1, 3);
  crowd.other(1500).say(BytesView(message).first(sizeof(Header) + 3));
  crowd.other(700).hang_up();
  crowd.other(3).say(message);
  CHECK(crowd.until([&] {
    return whole.state == Receive::State::done && partly.state == Receive::State::filling &&
           links.end_of(700) != nullptr;
  }));
  crowd.other(1500).say(BytesView(message).subspan(sizeof(Header) + 3));
  const Receive& last = receive(2, 2000);
  crowd.other(2000).say(message);
  CHECK(crowd.until(
      [&] { return partly.state == Receive::State::done && last.state == Receive::State::done; }));
  int ended = 0;
  for (int rank = 1; rank <= 2000; ++rank) ended += links.end_of(rank) != nullptr ? 1 : 0;
  CHECK(ended == 1);
  CHECK(into[0] == std::vector<std::byte>(8, std::byte{7}));
}

/// A store of which the answer to whatever takes long does not come.
class AwayStore final : public Store {
 public:
  bool is_away = false;
  int lookups = 0;  ///< Requests without a deadline while it was away.

  void set(std::string_view key, BytesView value) override { here().set(key, value); }
  std::optional<Bytes> get(std::string_view key) override { return here().get(key); }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    if (is_away) throw Error(Errc::timeout, "the rendezvous has not been reachable for 1 s");
    return kept_.wait(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return here().add(key, delta);
  }
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override {
    return here().compare_set(key, expected, desired);
  }
  bool erase(std::string_view key) override { return here().erase(key); }

 private:
  Store& here() {
    if (is_away) ++lookups;
    return kept_;
  }

  LocalStore kept_;
};

TEST_CASE("a store that is away holds up nobody who tells of a failure, or asks the others") {
  using namespace transport;
  const auto store = std::make_shared<AwayStore>();
  WorldInfo info;
  info.size = info.node_count = 3;
  info.local_size = 1;
  Links links(World(info, store, nullptr), flight_words());
  const auto lock = links.lock();
  store->is_away = true;
  const Header failure = make_header(Kind::failure, 0, Fingerprint(), 0);
  CHECK_THROWS_AS(links.post_control(1, failure, {}), Error);
  Inquiry inquiry;
  links.inquire({1, 2}, inquiry);
  links.control().withdraw(inquiry);
  CHECK(store->lookups == 0);
  store->is_away = false;
  links.post_control(1, failure, {});
}

TEST_CASE("72 ranks: no call but all_to_all connects every pair") {
  constexpr std::size_t ranks = 72;
  if (testing::ranks_share_memory()) return;  // They have no connections.
  if (!has_descriptors(8192)) return testing::skipped("8192 descriptors are needed");
  using Floats = std::vector<float>;
  const auto require = [](bool holds) {
    if (!holds) throw std::runtime_error("a wrong result");
  };
  constexpr float sum = 72;
  constexpr std::size_t large = 50'000, part = 700;
  const auto all_reduce_floats = [=](const Reduction& how) {
    return [=](Communicator& comm) {
      Floats x(large, 1);
      comm.all_reduce(x, how);
      require(x == Floats(large, sum));
    };
  };
  const auto reduce_scatter = [=](std::size_t each) {
    return [=](Communicator& comm) {
      Floats in(each * ranks, 1), out(each);
      comm.reduce_scatter(in, out);
      require(out == Floats(each, sum));
    };
  };
  const Calls calls = {
      {"a barrier", [](Communicator& comm) { comm.barrier(); }},
      {"all_reduce", all_reduce_floats(ReduceOp::sum)},
      {"all_reduce in any order", all_reduce_floats(Reduction(ReduceOp::sum).any_order())},
      {"all_reduce by max", [](Communicator& comm) { all_reduce(comm, 1u << 16); }},
      {"reduce",
       [=](Communicator& comm) {
         Floats in(large, 1), out(large);
         comm.reduce(in, out, 0);
         require(comm.rank() != 0 || out == Floats(large, sum));
       }},
      {"reduce_scatter", reduce_scatter(part)},
      {"a small reduce_scatter", reduce_scatter(1)},
      {"broadcast", [](Communicator& comm) { broadcast(comm, 1u << 18); }},
      {"all_gather",
       [=](Communicator& comm) {
         Floats in(part, 1), out(part * ranks);
         comm.all_gather(in, out);
         require(out == Floats(part * ranks, 1));
       }},
      {"gather",
       [=](Communicator& comm) {
         Floats in(5000, 1), out(comm.rank() == 0 ? 5000 * ranks : 0);
         comm.gather(in, out, 0);
       }},
      {"scatter",
       [=](Communicator& comm) {
         Floats in(comm.rank() == 0 ? 5000 * ranks : 0, 1), out(5000);
         comm.scatter(in, out, 0);
         require(out == Floats(5000, 1));
       }},
  };
  const auto counts = count_connections(static_cast<int>(ranks), calls);
  for (const std::size_t count : counts) CHECK(count <= 3 * ranks * std::bit_width(ranks - 1));
}

TEST_CASE("what all ranks fold makes one connection for each pair of ranks and direction") {
  constexpr std::size_t ranks = 9;
  const auto large = [](Communicator& comm) { all_reduce(comm, 1u << 18); };
  const auto counts = count_connections(
      static_cast<int>(ranks), {{"all_reduce of 1 MiB", large}, {"the same again", large}});
  CHECK(counts[1] <= (testing::ranks_share_memory() ? 0 : ranks * (ranks - 1)));
  CHECK(counts[2] == counts[1]);
}
