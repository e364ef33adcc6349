#include "runtime/world/local_store.hpp"

#include "runtime/base/deadline.hpp"

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
  CHECK(store.append("c", as_bytes("!")) == 7);
  CHECK(store.list("a") == std::vector<std::string>{"a", "a/leased"});
  CHECK(store.erase("a"));
  CHECK_FALSE(store.erase("a"));
  const std::vector<std::string> keys{"x", "y"};
  const std::vector<Bytes> values{bytes("X"), bytes("Y")};
  store.multi_set(keys, values);
  const std::vector<std::string> asked{"y", "z", "x"};
  const auto got = store.multi_get(asked);
  CHECK(got[0] == bytes("Y"));
  CHECK_FALSE(got[1]);
  CHECK(got[2] == bytes("X"));
  store.wait_all(keys, soon());
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
  CHECK(why.find("0, 2") != std::string::npos);
}
