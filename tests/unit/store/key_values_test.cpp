#include "runtime/store/core/key_values.hpp"

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
