#include "runtime/store/core/key_values.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;
using namespace std::chrono_literals;

namespace {

const Clock::time_point start{};
constexpr auto never = Clock::time_point::max();
constexpr Caller a{1, 1}, b{2, 1}, c{3, 1};

template <class T>
const T* only(const Effects& effects) {
  return effects.size() == 1 ? std::get_if<T>(&effects.front().answer) : nullptr;
}

}  // namespace

TEST_CASE("a value that shrinks and grows in place is the value that was set") {
  KeyValues values;
  for (const std::size_t size : {0u, 100'000u, 3u, 0u, 5000u}) {
    Effects out;
    const Bytes value(size, std::byte{7});
    values.set(a, "k", value, out);
    CHECK(only<Done>(out));
    out.clear();
    values.get(a, "k", out);
    REQUIRE(only<Found>(out));
    CHECK(std::ranges::equal(only<Found>(out)->value, value));
    CHECK(values.bytes() == 1 + size);
  }
}

TEST_CASE("a key set twice in one request shows its last value only, to watchers too") {
  KeyValues values;
  Effects out;
  values.watch(b, "k", out);
  values.wait_get(c, "k", never, out);
  REQUIRE(out.empty());
  const std::string_view keys[] = {"k", "other", "k"};
  const std::string long_value(100, 'x');
  const BytesView contents[] = {as_bytes("first"), as_bytes("o"), as_bytes(long_value)};
  values.multi_set(a, keys, contents, out);
  REQUIRE(out.size() == 3);
  CHECK(out[1].to == b);
  CHECK_FALSE(out[1].last);
  CHECK(as_text(*std::get<Changed>(out[1].answer).after) == long_value);
  CHECK(out[2].to == c);
  CHECK(as_text(std::get<Found>(out[2].answer).value) == long_value);
}

TEST_CASE("a wait for several keys holds at the moment it is answered") {
  KeyValues values;
  Effects out;
  const std::string_view keys[] = {"x", "y", "x"};
  values.wait(a, keys, never, out);
  values.set(b, "x", {}, out);
  values.erase(b, "x", out);
  values.set(b, "y", {}, out);
  CHECK(out.size() == 3);  // Only b's answers: x is gone again.
  out.clear();
  values.set(b, "x", {}, out);
  REQUIRE(out.size() == 2);
  CHECK(out[1].to == a);
}

TEST_CASE("what exceeds a limit is refused with a sentence, and nothing changes") {
  Limits limits;
  limits.key_bytes = 4;
  limits.value_bytes = 8;
  limits.keys = 2;
  limits.keys_per_request = 3;
  limits.queue_length = 1;
  limits.waits_per_client = 1;
  limits.contributors = 4;
  limits.gathered_bytes = 12;
  KeyValues values(limits);
  const auto refused = [](const Effects& out) {
    REQUIRE_FALSE(out.empty());
    const auto* refusal = std::get_if<Refused>(&out.back().answer);
    return refusal != nullptr && refusal->reason.size() > 10;
  };
  Effects out;
  values.set(a, "12345", {}, out);
  CHECK(refused(out));
  values.set(a, "k", as_bytes("123456789"), out);
  CHECK(refused(out));
  CHECK(values.size() == 0);
  values.set(a, "k", as_bytes("12345678"), out);
  values.append(a, "k", as_bytes("9"), out);
  CHECK(refused(out));
  values.set(a, "l", {}, out);
  values.set(a, "m", {}, out);
  CHECK(refused(out));
  values.add(a, "m", 1, out);
  CHECK(refused(out));
  values.append(a, "m", {}, out);
  CHECK(refused(out));
  values.compare_set(a, "m", std::nullopt, {}, out);
  CHECK(refused(out));
  values.set(a, "l", {}, out);
  CHECK_FALSE(refused(out));
  CHECK(values.size() == 2);
  values.push(a, "q", {}, out);
  values.push(a, "q", {}, out);
  CHECK(refused(out));
  const std::string_view many[] = {"a", "b", "c", "d"};
  values.wait(a, many, never, out);
  CHECK(refused(out));
  values.wait_get(a, "x", never, out);
  values.wait_get({a.client, 2}, "y", never, out);
  CHECK(refused(out));
  const int first[] = {0}, second[] = {1}, outside[] = {5};
  values.barrier(b, "bar", 0, 5, first, never, out);
  CHECK(refused(out));
  values.barrier(b, "bar", 0, 2, outside, never, out);
  CHECK(refused(out));
  const BytesView blob[] = {as_bytes("1234")};
  out.clear();
  values.all_gather(b, "ga", 0, 2, first, blob, never, out);
  CHECK(out.empty());
  values.all_gather(c, "ga", 0, 2, second, blob, never, out);
  CHECK(out.size() == 2);  // Both hear that it is too much, neither hangs.
  CHECK(refused(out));
}

TEST_CASE("counters refuse what is no number and what would overflow") {
  KeyValues values;
  Effects out;
  values.set(a, "word", as_bytes("ten"), out);
  values.add(a, "word", 1, out);
  CHECK(std::holds_alternative<Refused>(out.back().answer));
  values.add(a, "n", std::numeric_limits<std::int64_t>::max(), out);
  values.add(a, "n", 1, out);
  CHECK(std::holds_alternative<Refused>(out.back().answer));
  values.add(a, "n", std::numeric_limits<std::int64_t>::min(), out);
  CHECK(std::get<Number>(out.back().answer).value == -1);
}

TEST_CASE("a round may be asked for again, and not one before it") {
  KeyValues values;
  Effects out;
  const int zero[] = {0}, one[] = {1};
  const BytesView blob[] = {as_bytes("z")};
  for (std::uint64_t round = 0; round < 3; ++round) {
    out.clear();
    values.all_gather(a, "g", round, 2, zero, blob, never, out);
    values.all_gather(a, "g", round, 2, zero, blob, never, out);  // Counts once.
    CHECK(out.empty());
    values.all_gather(b, "g", round, 2, one, blob, never, out);
    CHECK(out.size() == 3);
    values.all_gather(c, "g", round, 2, one, blob, never, out);  // Its answer was lost.
    CHECK(out.size() == 4);
    CHECK(std::get<Gathered>(out[3].answer).block->size() == 10);
  }
  values.all_gather(c, "g", 0, 2, one, blob, never, out);
  CHECK(std::holds_alternative<Refused>(out.back().answer));
  values.all_gather(c, "g", 7, 2, one, blob, never, out);
  CHECK(std::holds_alternative<Refused>(out.back().answer));
}

TEST_CASE("leases end by themselves, by goodbye, and by a plain set") {
  KeyValues values;
  Effects out;
  values.set_leased(a, "x", as_bytes("1"), 77, 200ms, start, out);
  values.set_leased(a, "y", as_bytes("1"), 77, 1s, start, out);
  values.set_leased(a, "z", as_bytes("1"), 77, 1s, start, out);
  values.set(b, "z", as_bytes("2"), out);
  CHECK(*values.next_deadline() == start + 200ms);
  values.renew(77, start + 150ms);
  values.tick(start + 200ms, out);
  CHECK(values.size() == 3);
  values.tick(start + 350ms, out);
  CHECK(values.size() == 2);
  values.end_leases(77, out);
  CHECK(values.size() == 1);
  CHECK_FALSE(values.next_deadline());
}

// ---- What one client may cost the others ----

namespace {

std::vector<std::string> numbered(const std::string& prefix, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(10'000 + i));
  return names;
}

/// The reason of the last answer; empty where it is no refusal.
std::string refusal(const Effects& out) {
  if (out.empty() || !std::holds_alternative<Refused>(out.back().answer)) return {};
  return std::get<Refused>(out.back().answer).reason;
}

}  // namespace

TEST_CASE("a list is in order, and too long a one comes page by page") {
  Limits limits;
  limits.listed_keys = 3;
  limits.listed_bytes = 20;
  KeyValues values(limits);
  Effects out;
  for (const char* key : {"b/2", "a", "", "b/1", "c", "b/3", "b", "b/0"}) {
    values.set(a, key, {}, out);
  }
  values.erase(a, "b/1", out);
  values.set(a, "b/1", {}, out);
  out.clear();
  values.list(a, "b/", out);
  CHECK(refusal(out).find("the list is too long") == 0);
  std::string all;
  std::optional<std::string> after;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    out.clear();
    values.list_page(a, "b", after, out);
    REQUIRE(only<KeyPage>(out));
    const auto& page = *only<KeyPage>(out);
    for (const auto key : page.keys) all += std::string(key) + " ";
    after = std::string(page.keys.back());
    more = page.more;
  }
  CHECK(pages == 2);
  CHECK(all == "b b/0 b/1 b/2 b/3 ");
  out.clear();
  values.list_page(a, "", std::nullopt, out);
  CHECK(only<KeyPage>(out)->keys.front().empty());
  // A page names at least one key, or it would never end.
  values.set(a, "long/" + std::string(100, 'x'), {}, out);
  out.clear();
  values.list_page(a, "long/", std::nullopt, out);
  CHECK(only<KeyPage>(out)->keys.size() == 1);
  CHECK_FALSE(only<KeyPage>(out)->more);
}

TEST_CASE("a wait for many keys is answered when all are there, and looked at in a tick") {
  KeyValues values;
  Effects out;
  const auto names = numbered("k", 1000);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  values.wait(a, keys, never, out);
  for (std::size_t i = keys.size(); i-- > 0;) {
    out.clear();
    values.set(b, keys[i], {}, out);
    values.tick(start, out);
    if (i == 500) values.erase(b, keys[999], out);
  }
  CHECK(out.size() == 1);  // One of them is gone again.
  values.set(b, keys[999], {}, out);
  REQUIRE(values.next_deadline());
  CHECK(*values.next_deadline() <= start);
  values.tick(start, out);
  CHECK(out.back().to == a);
  CHECK(std::holds_alternative<Done>(out.back().answer));
  CHECK_FALSE(values.next_deadline());
  CHECK(values.bytes() == 6 * keys.size());  // The wait is counted no more.
}

TEST_CASE("what has timed out names the first that were missing, and how many there are") {
  KeyValues values;
  Effects out;
  const auto names = numbered("k", 1000);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  values.wait(a, keys, start + 1s, out);
  values.set(b, keys[1], {}, out);
  const int contributor[] = {1};
  values.barrier(c, "b", 0, 1 << 20, contributor, start + 1s, out);
  out.clear();
  values.tick(start + 1s, out);
  REQUIRE(out.size() == 2);
  const auto& late = std::get<TimedOut>(out[0].answer);
  CHECK(late.missing == 999);
  CHECK(late.keys.size() == TimedOut::named_max);
  CHECK(late.keys[1] == keys[2]);
  const auto& absent = std::get<TimedOut>(out[1].answer);
  CHECK(absent.missing == (1 << 20) - 1);
  CHECK(absent.contributors == std::vector{0, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("waits that end at one time are answered a part in each tick") {
  KeyValues values;
  Effects out;
  const auto names = numbered("k", 5000);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  for (std::uint64_t i = 0; i < 6; ++i) values.wait({1, i}, keys, start, out);
  std::size_t ticks = 0;
  for (; values.next_deadline(); ++ticks) values.tick(start, out);
  CHECK(out.size() == 6);
  CHECK(ticks == 15);
  const auto& late = std::get<TimedOut>(out.back().answer);
  CHECK(late.missing == keys.size());
  CHECK(late.keys.front() == keys[0]);
}

TEST_CASE("a wait for very many keys that exist is looked at a part in each tick") {
  KeyValues values;
  Effects out;
  const auto names = numbered("k", 5000);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  values.multi_set(b, keys, std::vector<BytesView>(keys.size()), out);
  out.clear();
  values.wait(a, keys, never, out);
  values.tick(start, out);
  CHECK(out.empty());
  // One that is still to be looked at goes, and comes back.
  values.erase(b, keys[4999], out);
  out.clear();
  while (values.next_deadline()) values.tick(start, out);
  CHECK(out.empty());
  values.set(b, keys[4999], {}, out);
  out.clear();
  std::size_t ticks = 0;
  for (; values.next_deadline(); ++ticks) values.tick(start, out);
  CHECK(only<Done>(out));
  CHECK(ticks == 3);
}

TEST_CASE("a wait whose last key comes while the missing ones are counted has not timed out") {
  KeyValues values;
  Effects out;
  const auto names = numbered("k", 5000);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  values.multi_set(b, std::span(keys).first(4999), std::vector<BytesView>(4999), out);
  values.wait(a, keys, start + 1s, out);
  while (values.next_deadline() <= start) values.tick(start, out);
  out.clear();
  values.tick(start + 1s, out);
  CHECK(out.empty());
  values.set(b, keys[4999], {}, out);
  out.clear();
  while (values.next_deadline()) values.tick(start + 1s, out);
  CHECK(only<Done>(out));
}

TEST_CASE("waits take room in the store, and leases are as many as one may hold") {
  Limits limits;
  limits.total_bytes = 4096;
  limits.leases_per_owner = 2;
  KeyValues values(limits);
  Effects out;
  std::uint64_t waits = 0;
  while (refusal(out).empty() && waits < 100) values.wait_get({1, ++waits}, "x", never, out);
  CHECK(waits > 2);
  CHECK(waits < 20);
  CHECK(refusal(out).find("no room for this wait") != std::string::npos);
  values.disconnect(1);
  CHECK(values.bytes() == 0);
  for (const char* key : {"a", "b", "c"}) values.set_leased(b, key, {}, 7, 1s, start, out);
  CHECK(refusal(out).find("leases 2 keys already") != std::string::npos);
}

TEST_CASE("a namespace that holds much leaves some of the memory to others") {
  const auto memory = std::make_shared<MemoryBudget>();
  memory->max = 100'000;
  Limits limits;
  limits.memory = memory;
  KeyValues greedy(limits), modest(limits);
  Effects out;
  const auto names = numbered("k", 1000);
  std::size_t set = 0;
  for (; set < names.size() && refusal(out).empty(); ++set) {
    greedy.set(a, names[set], Bytes(100), out);
    greedy.settle();
  }
  CHECK(set < names.size());
  CHECK(memory->used() > 80'000);
  CHECK(refusal(out).find("the rest is not for this job") != std::string::npos);
  for (std::size_t i = 0; i < 30; ++i) {
    modest.set(b, names[i], Bytes(100), out);
    CHECK(refusal(out).empty());
    modest.settle();
  }
}

TEST_CASE("namespaces share the memory: what exceeds it is refused, and given back at the end") {
  const auto memory = std::make_shared<MemoryBudget>();
  memory->max = 10'000;
  Limits limits;
  limits.memory = memory;
  KeyValues first(limits);
  Effects out;
  {
    KeyValues second(limits);
    const Bytes value(9000);
    second.set(a, "k", value, out);
    second.settle();
    CHECK(memory->used() > 9000);
    first.set(b, "k", Bytes(1000), out);
    CHECK(refusal(out).find("the server's memory is full") == 0);
    CHECK(memory->refused == 1);
    second.set(a, "k", Bytes(10), out);  // Less is always possible.
    CHECK(refusal(out).empty());
    second.settle();
    first.set(b, "k", Bytes(1000), out);
    CHECK(refusal(out).empty());
    const std::uint64_t waits_max = 1000;
    for (std::uint64_t i = 0; i < waits_max && refusal(out).empty(); ++i) {
      first.wait_get({1, i}, "x", never, out);
      first.settle();
    }
    CHECK(refusal(out).find("the server's memory is full") == 0);
  }
  first.disconnect(1);
  first.erase(b, "k", out);
  first.settle();
  CHECK(memory->used() == 0);
  for (const char* key : {"a", "b", "c"}) first.set(b, key, {}, out);
  CHECK(first.dissolve(2));
  CHECK(memory->used() > 0);
  CHECK_FALSE(first.dissolve(2));
  CHECK(memory->used() == 0);
}
