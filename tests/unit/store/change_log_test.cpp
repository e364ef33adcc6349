// What a log has heard makes the same namespace again: seeded random requests, and a restored twin.
#include "runtime/store/core/change_log.hpp"

#include "runtime/store/core/key_values.hpp"
#include "tests/support/store_effects.hpp"

#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;
using namespace std::chrono_literals;

namespace {

constexpr auto never = Clock::time_point::max();
const Clock::time_point start{};

/// Keeps after-images, as plainly as can be.
class Images final : public ChangeLog {
 public:
  void stored(std::string_view key, BytesView value, std::uint64_t owner,
              std::chrono::milliseconds lease) override {
    keys_[std::string(key)] = {Bytes(value.begin(), value.end()), owner, lease};
  }
  void erased(std::string_view key) override { CHECK(keys_.erase(std::string(key)) == 1); }
  void pushed(std::string_view queue, BytesView value) override {
    queues_[std::string(queue)].emplace_back(value.begin(), value.end());
  }
  void popped(std::string_view queue) override {
    REQUIRE_FALSE(queues_[std::string(queue)].empty());
    queues_[std::string(queue)].pop_front();
  }
  void completed(const CompleteRound& round) override {
    rounds_[{round.gathers, std::string(round.name)}] = {round.round, round.block};
  }
  void restore(KeyValues& values, Clock::time_point now) const {
    for (const auto& [key, image] : keys_) {
      values.restore_key(key, image.value, image.owner, image.lease, now);
    }
    for (const auto& [queue, entries] : queues_) {
      for (const auto& entry : entries) values.restore_entry(queue, entry);
    }
    for (const auto& [name, round] : rounds_) {
      values.restore_round({name.first, name.second, round.first, round.second, {}});
    }
  }

 private:
  struct Image {
    Bytes value;
    std::uint64_t owner = 0;
    std::chrono::milliseconds lease{};
  };
  std::map<std::string, Image> keys_;
  std::map<std::string, std::deque<Bytes>> queues_;
  std::map<std::pair<bool, std::string>, std::pair<std::uint64_t, std::shared_ptr<const Bytes>>>
      rounds_;
};

/// One of every kind of change, with one of few names.
void change(KeyValues& values, std::minstd_rand& random, Clock::time_point now) {
  Effects out;
  const Caller by{1 + random() % 3, random()};
  const std::string key(1, static_cast<char>('a' + random() % 4));
  const std::string text = std::to_string(random() % 1000);
  const BytesView value = as_bytes(text);
  switch (random() % 11) {
    case 0:
      return values.set(by, key, value, out);
    case 1:
      return values.set_leased(by, key, value, by.client, 100ms, now, out);
    case 2:
      return values.add(by, key, 1, out);
    case 3:
      return values.append(by, key, value, out);
    case 4:
      return values.compare_set(by, key, std::nullopt, value, out);
    case 5:
      return values.erase(by, key, out);
    case 6: {
      const std::string_view keys[] = {key, "z", key};
      const BytesView contents[] = {value, value, {}};
      return values.multi_set(by, keys, contents, out);
    }
    case 7:
      return values.push(by, key, value, out);
    case 8:
      return values.pop(by, key, now, out);
    case 9:
      return values.end_leases(by.client, out);
    default:
      return values.tick(now, out);
  }
}

/// What anybody can see of it, seen by emptying its queues.
std::string seen(KeyValues& values) {
  Effects out;
  values.list({9, 1}, "", out);
  std::string text = test::shown(out.back()) + "\n";
  for (char name = 'a'; name <= 'z'; ++name) {
    const std::string key(1, name);
    values.get({9, 2}, key, out);
    text += test::shown(out.back()) + "\n";
    for (;;) {
      out.clear();
      values.try_pop({9, 3}, key, out);
      text += test::shown(out.back()) + "\n";
      if (!std::get<Popped>(out.back().answer).value) break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a namespace that is restored from its log is the same") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::minstd_rand random(seed);
    Images images;
    KeyValues values, twin;
    values.log_to(images);
    Clock::time_point now = start;
    for (auto i = random() % 200; i > 0; --i) {
      now += std::chrono::milliseconds(random() % 20);
      change(values, random, now);
    }
    images.restore(twin, now);
    // Waits take room, too, and are their connections', which are gone.
    for (const std::uint64_t client : {1, 2, 3}) values.disconnect(client);
    CHECK(twin.size() == values.size());
    CHECK(twin.bytes() == values.bytes());
    REQUIRE_MESSAGE(seen(twin) == seen(values), seed);
  }
}

TEST_CASE("a lease begins anew, and is its owner's") {
  KeyValues values;
  values.restore_key("kept", as_bytes("v"), 7, 100ms, start);
  values.restore_key("lost", as_bytes("v"), 8, 100ms, start);
  values.restore_key("plain", as_bytes("v"), 0, {}, start);
  REQUIRE(values.next_deadline() == start + 100ms);
  Effects out;
  values.tick(start + 99ms, out);
  CHECK(values.size() == 3);
  values.renew(7, start + 99ms);
  values.tick(start + 100ms, out);
  CHECK(values.size() == 2);
  values.end_leases(7, out);
  CHECK(values.size() == 1);
}

TEST_CASE("whoever missed the answer to a complete round gets it from a restored namespace") {
  Images images;
  KeyValues values, twin;
  values.log_to(images);
  Effects out;
  const int first[] = {0}, second[] = {1};
  const BytesView x[] = {as_bytes("x")}, y[] = {as_bytes("y")};
  for (std::uint64_t round = 0; round < 2; ++round) {
    values.all_gather({1, 1}, "g", round, 2, first, x, never, out);
    values.all_gather({2, 1}, "g", round, 2, second, y, never, out);
    values.barrier({1, 2}, "b", round, 1, first, never, out);
  }
  images.restore(twin, start);
  out.clear();
  twin.all_gather({1, 1}, "g", 1, 2, first, x, never, out);
  twin.barrier({1, 2}, "b", 1, 1, first, never, out);
  REQUIRE(out.size() == 2);
  CHECK(test::shown(out[0]) == "1.1 gathered x y");
  CHECK(test::shown(out[1]) == "1.2 done");
  // The next round is open, and an earlier one is over.
  out.clear();
  twin.barrier({1, 3}, "b", 2, 1, first, never, out);
  twin.barrier({1, 4}, "b", 0, 1, first, never, out);
  CHECK(test::shown(out[0]) == "1.3 done");
  CHECK(std::holds_alternative<Refused>(out[1].answer));
}
