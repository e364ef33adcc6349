#include "runtime/world/local_store.hpp"

#include "runtime/base/deadline.hpp"
#include "tests/support/wrapped_store.hpp"

#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

Clock::time_point soon() { return deadline_after(std::chrono::milliseconds(30)); }
Clock::time_point late() { return deadline_after(std::chrono::seconds(30)); }
Bytes bytes(std::string_view text) {
  const BytesView view = as_bytes(text);
  return {view.begin(), view.end()};
}
std::string failure(const auto& act, Errc code) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the map, counters and lists of a store in this process") {
  LocalStore store;
  CHECK_FALSE(store.get("a"));
  store.set("a", as_bytes("1"));
  store.set_leased("a/leased", as_bytes("2"), std::chrono::seconds(1));
  CHECK(as_text(*store.get("a")) == "1");
  CHECK(store.add("n", 5) == 5);
  CHECK(store.add("n", -2) == 3);
  CHECK(failure([&] { store.set("text", as_bytes("x")), store.add("text", 1); }, Errc::refused) !=
        "");
  CHECK(store.compare_set("c", std::nullopt, as_bytes("first")));
  CHECK_FALSE(store.compare_set("c", std::nullopt, as_bytes("second")));
  CHECK(store.compare_set("c", as_bytes("first"), as_bytes("second")));
  CHECK(store.list("a") == std::vector<std::string>{"a", "a/leased"});
  CHECK(store.erase("a"));
  CHECK_FALSE(store.erase("a"));
}

namespace {

/// What every store does, by one request or by several.
void does_more(Store& store) {
  CHECK(append(store, "c", as_bytes("a")) == 1);
  CHECK(append(store, "c", as_bytes("bc")) == 3);
  CHECK(as_text(*store.get("c")) == "abc");
  const std::vector<std::string> keys{"x", "y"};
  const std::vector<Bytes> values{bytes("X"), {}};
  multi_set(store, keys, values);
  const std::vector<std::string> asked{"y", "z", "x"};
  const auto got = multi_get(store, asked);
  CHECK(got.at(0) == Bytes{});
  CHECK_FALSE(got.at(1));
  CHECK(got.at(2) == bytes("X"));
  wait_all(store, keys, soon());
  const std::vector<std::string> missing{"x", "m", "n"};
  const std::string why = failure([&] { wait_all(store, missing, soon()); }, Errc::timeout);
  CHECK(why.find("'x'") == std::string::npos);
  CHECK(why.find("'m'") != std::string::npos);
  CHECK(why.find("'n'") != std::string::npos);
  std::jthread other([&] {
    barrier(store, "b", 1, 2, late());
    all_gather(store, "g", 1, 2, as_bytes("of 1"), late());
    all_gather(store, "g", 1, 2, as_bytes("of 1 again"), late());
  });
  barrier(store, "b", 0, 2, late());
  CHECK(all_gather(store, "g", 0, 2, {}, late()) == std::vector<Bytes>{{}, bytes("of 1")});
  CHECK(all_gather(store, "g", 0, 2, {}, late()) == std::vector<Bytes>{{}, bytes("of 1 again")});
}

}  // namespace

TEST_CASE("what our store does in one request another does by its six calls") {
  LocalStore ours;
  does_more(ours);
  testing::WrappedStore another(std::make_shared<LocalStore>());
  CHECK(dynamic_cast<JobStore*>(static_cast<Store*>(&another)) == nullptr);
  does_more(another);
}

TEST_CASE("waits end with the key, or with its name") {
  LocalStore store;
  CHECK(failure([&] { store.wait("never", soon()); }, Errc::timeout).find("never") !=
        std::string::npos);
  const std::vector<std::string> keys{"never"};
  CHECK(failure([&] { store.wait_all(keys, soon()); }, Errc::timeout).find("never") !=
        std::string::npos);
  std::jthread setter([&] { store.set("later", as_bytes("now")); });
  CHECK(as_text(store.wait("later", late())) == "now");
}

TEST_CASE("queues hand each value to one") {
  LocalStore store;
  CHECK_FALSE(store.try_pop("q"));
  store.push("q", as_bytes("1"));
  store.push("q", as_bytes("2"));
  CHECK(store.queue_size("q") == 2);
  CHECK(as_text(store.pop("q", soon())) == "1");
  CHECK(as_text(*store.try_pop("q")) == "2");
  failure([&] { store.pop("q", soon()); }, Errc::timeout);
  std::jthread pusher([&] { store.push("q", as_bytes("3")); });
  CHECK(as_text(store.pop("q", late())) == "3");
}

TEST_CASE("a watch sees each change once, in order") {
  LocalStore store;
  store.set("w", as_bytes("before"));
  failure([&] { store.watch("w", soon()); }, Errc::timeout);
  store.set("w", as_bytes("1"));
  store.erase("w");
  store.set("other", as_bytes("x"));
  const KeyChange first = store.watch("w", late());
  CHECK(first.kind == KeyChange::Kind::updated);
  CHECK(first.value == bytes("1"));
  CHECK(store.watch("w", late()).kind == KeyChange::Kind::deleted);
  failure([&] { store.watch("w", soon()); }, Errc::timeout);
}

TEST_CASE("threads meet in barriers and gathers, again and again") {
  constexpr int size = 4;
  constexpr int rounds = 20;
  LocalStore store;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&store, rank] {
      for (int round = 0; round < rounds; ++round) {
        store.barrier("b", rank, size, late());
        const std::string mine = std::to_string(rank * 100 + round);
        const auto all = store.all_gather("g", rank, size, as_bytes(mine), late());
        CHECK(all.size() == 4);
        for (int other = 0; other < size; ++other) {
          CHECK(as_text(all[static_cast<std::size_t>(other)]) ==
                std::to_string(other * 100 + round));
        }
      }
    });
  }
}

TEST_CASE("a barrier that is not complete names who is missing") {
  LocalStore store;
  const std::string why = failure([&] { store.barrier("b", 1, 3, soon()); }, Errc::timeout);
  CHECK(why.find("waiting for 0 and 2") != std::string::npos);
}
