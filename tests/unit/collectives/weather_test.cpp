// The algorithms over a transport on which messages are late and out of order, ways are cut and
// ranks die, by many seeds: results are right, or every survivor is told which rank is lost, and
// nobody hangs. DLAUNCH_TEST_FULL=1 runs twenty times as many.
#include "tests/support/weather.hpp"

#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/select/select.hpp"
#include "collectives/call/call.hpp"
#include "collectives/call/core/flight_words.hpp"
#include "collectives/transport/links.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::algorithms;
using namespace std::chrono_literals;
using testing::FakeMembership;
using testing::require;
using testing::Sky;
using testing::Struck;
using testing::Weather;
using transport::Fingerprint;
using transport::Links;
using transport::Op;

namespace {

using Words = std::vector<std::int32_t>;

std::span<std::byte> bytes_of(Words& words) {
  return std::as_writable_bytes(std::span<std::int32_t>(words));
}
std::byte* begin_of(Words& words) { return bytes_of(words).data(); }

Words words_of(int rank, std::size_t count) {
  Words words(count);
  for (std::size_t i = 0; i < count; ++i) {
    words[i] = static_cast<std::int32_t>(i * 31 + static_cast<std::size_t>(rank) * 7);
  }
  return words;
}

/// One collective, by an algorithm that is drawn; all ranks draw the same.
void call_one(Mesh& mesh, std::mt19937_64& random) {
  const int n = mesh.size(), me = mesh.rank();
  const auto draw = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  const std::size_t which = draw(10);
  const std::size_t count = draw(3) == 0 ? draw(20'000) : draw(300);
  const int root = static_cast<int>(draw(static_cast<std::size_t>(n) - 1));
  Words mine = words_of(me, count), sum(count), all(count * static_cast<std::size_t>(n));
  Words gathered;
  for (int rank = 0; rank < n; ++rank) {
    const Words theirs = words_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[i];
    gathered.insert(gathered.end(), theirs.begin(), theirs.end());
  }
  const Reduction adding(ReduceOp::sum);
  const Reducer reducer(adding, DType::i32, false);
  const Offsets parts(n, count * sizeof(std::int32_t));
  const auto all_reduced = [&](const auto& algorithm) {
    algorithm(mesh, bytes_of(mine), reducer);
    require(mine == sum, "a wrong sum");
  };
  const auto all_gathered = [&](const auto& algorithm) {
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(count) * me);
    algorithm(begin_of(all));
    require(all == gathered, "other parts");
  };
  switch (which) {
    case 0:
      return barrier_dissemination(mesh);
    case 1:
      broadcast_tree(mesh, bytes_of(mine), root);
      return require(mine == words_of(root, count), "not the root's data");
    case 2:
      broadcast_scatter(mesh, bytes_of(mine), root);
      return require(mine == words_of(root, count), "not the root's data");
    case 3:
      return all_gathered([&](std::byte* data) { all_gather_ring(mesh, {data, parts}); });
    case 4:
      return all_gathered([&](std::byte* data) { all_gather_bruck(mesh, {data, parts}); });
    case 5:
      return all_reduced(all_reduce_in_parts);
    case 6:
      return all_reduced(all_reduce_bruck);
    case 7:
      return all_reduced(all_reduce_ring);
    case 8:
      return all_reduced(all_reduce_halving);
    case 9: {
      Words out(count);
      reduce_tree(mesh, bytes_of(mine), begin_of(out), root, reducer);
      return require(me != root || out == sum, "a wrong sum at the root");
    }
    default:
      for (int to = 0; to < n; ++to) {
        std::fill_n(gathered.begin() + static_cast<std::ptrdiff_t>(count) * to, count, me * n + to);
      }
      all_to_all_direct(mesh, {begin_of(gathered), parts}, {begin_of(all), parts});
      for (std::size_t i = 0; i < all.size(); ++i) {
        require(all[i] == static_cast<int>(i / count) * n + me, "another rank's part");
      }
  }
}

/// Some calls in a row, as a communicator makes them. Throws what ended one.
void make_calls(Links& links, std::uint64_t seed) {
  constexpr int calls = 4;
  std::mt19937_64 random(seed);
  Group group{"world", 1, links.rank(), std::vector<int>(static_cast<std::size_t>(links.size()))};
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  Kept kept;
  const Aborted aborted;
  const Call::Setting setting{links, group, kept, aborted, 60s, CallSite{"", 0, ""}};
  for (std::uint64_t sequence = 1; sequence <= calls; ++sequence) {
    Fingerprint fingerprint;
    fingerprint.op = Op::all_gather_object;
    fingerprint.sequence = sequence;
    Call call(setting, fingerprint);
    try {
      call_one(call, random);
    } catch (const CallError& error) {
      if (!error.told()) call.tell_failure(error, transport::Scope::from_here_on);
      throw;
    }
  }
}

struct Outcomes {
  int right = 0;
  int told = 0;
};

Outcomes run(const Weather& weather, int size) {
  const std::string story = "seed " + std::to_string(weather.seed) + ", " + std::to_string(size) +
                            " ranks, dies " + std::to_string(weather.dies) + ", cut " +
                            std::to_string(weather.cut_from) + " to " +
                            std::to_string(weather.cut_to) + ": ";
  Sky sky(size, weather);
  std::vector<std::shared_ptr<FakeMembership>> memberships;
  for (int rank = 0; rank < size; ++rank) memberships.push_back(std::make_shared<FakeMembership>());
  std::atomic<int> ended{0};
  const auto body = [&](const World& world) {
    Links links(world, flight_words(), [&](const transport::Surroundings& mesh) {
      return std::make_unique<testing::WeatherTransport>(sky, world.rank(), mesh);
    });
    links.go_by(std::make_shared<const Table>());
    const auto die = [&] {
      for (const auto& membership : memberships) {
        membership->lose({world.rank(), "somewhere", "killed by SIGKILL", false});
      }
    };
    std::exception_ptr failure;
    try {
      make_calls(links, weather.seed);
    } catch (const Struck&) {
      ++ended;
      return die();
    } catch (...) {
      failure = std::current_exception();
    }
    // A rank that is through goes on answering until all are.
    ++ended;
    try {
      const auto lock = links.lock();
      const auto deadline = Clock::now() + 60s;
      while (ended < size && Clock::now() < deadline) links.step(Clock::now() + 1ms);
    } catch (const Struck&) {
      die();
    }
    if (failure) std::rethrow_exception(failure);
  };
  const auto outcomes =
      testing::run_ranks_on(std::vector<int>(memberships.size(), 0), body, memberships);
  Outcomes counted;
  for (int rank = 0; rank < size; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (outcome.ok()) {
      ++counted.right;
      continue;
    }
    ++counted.told;
    const std::string text = story + "rank " + std::to_string(rank) + ": " + outcome.text;
    CHECK_MESSAGE(outcome.code.has_value(), text);
    CHECK_MESSAGE(outcome.code != Errc::timeout, text);
    const auto names = [&](int lost) {
      return lost >= 0 && outcome.mentions("rank " + std::to_string(lost));
    };
    CHECK_MESSAGE((names(weather.dies) || names(weather.cut_from) || names(weather.cut_to)), text);
  }
  return counted;
}

int seeds(int few) { return testing::is_full() ? 20 * few : few; }

}  // namespace

TEST_CASE("in bad weather every result is right") {
  for (int seed = 1; seed <= seeds(40); ++seed) {
    const int size = 2 + seed % 5;
    const Outcomes outcomes =
        run({.seed = static_cast<std::uint64_t>(seed), .late_max = seed % 40}, size);
    CHECK(outcomes.right == size);
  }
}

TEST_CASE("whichever rank dies, whenever: the others have their results, or are told which") {
  int told = 0;
  for (int seed = 1; seed <= seeds(24); ++seed) {
    const int size = 2 + seed % 5;
    Weather weather{.seed = static_cast<std::uint64_t>(seed), .late_max = seed % 20};
    weather.dies = seed / 5 % size;
    weather.after_pieces = seed * seed % 61;
    told += run(weather, size).told;
  }
  CHECK(told > 0);
}

TEST_CASE(
    "whichever way is cut, whenever: the ranks have their results, or are told between whom") {
  int told = 0;
  for (int seed = 1; seed <= seeds(16); ++seed) {
    const int size = 2 + seed % 5;
    Weather weather{.seed = static_cast<std::uint64_t>(seed), .late_max = seed % 20};
    weather.cut_from = seed % size;
    weather.cut_to = (weather.cut_from + 1 + seed / 5 % (size - 1)) % size;
    weather.after_pieces = seed * seed % 17;
    told += run(weather, size).told;
  }
  CHECK(told > 0);
}
