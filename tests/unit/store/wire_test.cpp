// The native protocol's messages: golden bytes, round trips, and decoders that believe nothing.
#include "runtime/store/protocol/wire.hpp"

#include "runtime/store/protocol/operations.hpp"
#include "runtime/store/protocol/replies.hpp"

#include <array>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

std::string hex(BytesView bytes) {
  constexpr auto digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

template <class Message>
std::string payload(const Message& message) {
  Bytes out;
  wire::encode(out, message);
  return hex(out);
}

/// Whole it decodes; cut short anywhere or with a byte more it does not.
template <class Message>
std::optional<Message> again(Bytes& out, const Message& message) {
  out.clear();
  wire::encode(out, message);
  for (std::size_t size = 0; size < out.size(); ++size) {
    CHECK_FALSE(wire::decode<Message>(BytesView(out).first(size)));
  }
  Bytes longer = out;
  longer.push_back(std::byte{});
  CHECK_FALSE(wire::decode<Message>(longer));
  return wire::decode<Message>(out);
}

/// Some value for each kind of field.
class Filler {
 public:
  void fill(auto& value) {
    using T = std::remove_reference_t<decltype(value)>;
    const auto text = texts[random_() % texts.size()];
    if constexpr (std::is_empty_v<T>) {
      return;
    } else if constexpr (requires { T::fields(value); }) {
      auto all = T::fields(value);
      std::apply([&](auto&... each) { (fill(each), ...); }, all);
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random_());
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      value = text;
    } else if constexpr (std::is_same_v<T, BytesView>) {
      value = as_bytes(text);
    } else if constexpr (wire::is_optional<T>) {
      if (random_() % 2 == 0) fill(value.emplace());
    } else if constexpr (wire::is_vector<T>) {
      fill_all(value, random_() % 4);
    } else {
      fill(value.first);
      fill_all(value.second, value.first.size());
    }
  }

 private:
  void fill_all(auto& items, std::size_t count) {
    items.resize(count);
    for (auto& item : items) fill(item);
  }

  static constexpr std::array<std::string_view, 3> texts{"", "k", "a longer key"};
  std::mt19937_64 random_{7};
};

}  // namespace

TEST_CASE("golden bytes: the examples of docs/wire.md") {
  Bytes out;
  wire::encode_preface(out);
  CHECK(hex(out) == "444c434802000000");
  out.clear();
  wire::encode_frame(out, {0, {}, 0, 2, 7}, wire::Set{"k1", as_bytes("v1")});
  CHECK(hex(out) ==
        "0c000000"
        "1000"
        "0000"
        "0200000000000000"
        "0700000000000000"
        "02000000"
        "6b31"
        "02000000"
        "7631");
  out.clear();
  wire::encode_frame(out, {0, {}, wire::reply, 2, 7}, wire::Done{});
  CHECK(hex(out) ==
        "00000000"
        "8000"
        "0100"
        "0200000000000000"
        "0700000000000000");
  CHECK(payload(wire::Add{"n", -2}) ==
        "01000000"
        "6e"
        "feffffffffffffff");
  CHECK(payload(wire::Barrier{"b", 3, 4, {5'000'000}, {1}}) ==
        "01000000"
        "62"
        "0300000000000000"
        "04000000"
        "404b4c0000000000"
        "01000000"
        "01000000");
  CHECK(payload(wire::Failed{Errc::timeout, "no"}) ==
        "01000000"
        "02000000"
        "6e6f");
  wire::Hello hello{0x11, "job", wire::Member{1, 4, 99, "host"}};
  CHECK(payload(hello) ==
        "1100000000000000"
        "03000000"
        "6a6f62"
        "01"
        "01000000"
        "04000000"
        "6300000000000000"
        "04000000"
        "686f7374");
}

TEST_CASE("messages come back as they were") {
  Bytes out;
  const wire::Hello hello{1, "job", wire::Member{3, 4, 5, "host"}};
  CHECK(again(out, hello) == hello);
  CHECK(again(out, wire::Hello{}) == wire::Hello{});
  CHECK(again(out, wire::Welcome{"job", 3, 9}) == wire::Welcome{"job", 3, 9});
  CHECK(again(out, wire::Grant{true, 500}) == wire::Grant{true, 500});
  const wire::Grant keyed{true, 500, Bytes(32, std::byte{7})};
  CHECK(again(out, keyed) == keyed);
  CHECK(again(out, wire::Grant{true, 500, {}, true}) == wire::Grant{true, 500, {}, true});
  CHECK(again(out, wire::Warning{"no memory"}) == wire::Warning{"no memory"});
  CHECK(again(out, wire::Inquire{{3, 5}}) == wire::Inquire{{3, 5}});
  const wire::Doing doing{{{3, {"in no call"}}, {5, {"in barrier #2 for 3 s", 7, 2, 1}}}};
  CHECK(again(out, doing) == doing);
  const wire::Report report{
      Errc::mismatch, Claim{Fault::disagreed, {3}, 5, 7, {{0, 11}, {3, 12}}, "is in"}, "gone"};
  CHECK(again(out, report) == report);
  const wire::PeerLost lost{3, "host", {Departure::Kind::ended, 0, 9, true, 2, "words"}};
  CHECK(again(out, lost) == lost);
  const wire::Abort abort{Errc::aborted, "rank 1 aborted the communicator"};
  CHECK(again(out, abort) == abort);
  const auto compare = again(out, wire::CompareSet{"k", std::nullopt, as_bytes("d")});
  REQUIRE(compare);
  CHECK_FALSE(compare->expected);
  CHECK(as_text(compare->desired) == "d");
  const auto gather = again(out, wire::AllGather{"g", 1, 2, {}, {0, 1}, {as_bytes("a"), {}}});
  REQUIRE(gather);
  CHECK(gather->contributors == std::vector<std::int32_t>{0, 1});
  CHECK(as_text(gather->blobs.at(0)) == "a");
  CHECK(gather->timeout == wire::Timeout{});
  const auto values = again(out, wire::Values{{as_bytes("a"), std::nullopt, BytesView{}}});
  REQUIRE(values);
  CHECK(values->values.size() == 3);
  CHECK_FALSE(values->values[1]);
  CHECK(again(out, wire::Set{"k", as_bytes("v")})->key == "k");
  CHECK(again(out, wire::MultiSet{{"a", "b"}, {{}, as_bytes("v")}})->values.size() == 2);
  CHECK(again(out, wire::Wait{{}, {"a", "b"}})->keys.at(1) == "b");
  CHECK(again(out, wire::Popped{3, as_bytes("v")})->length_before == 3);
  CHECK(again(out, wire::Changed{KeyChange::Kind::deleted, "k", std::nullopt})->key == "k");
}

TEST_CASE("each request of the table comes back as it was, and is found by its number alone") {
  Filler filler;
  wire::Requests::any([&](auto operation) {
    using Message = typename decltype(operation)::Message;
    for (int i = 0; i < 20; ++i) {
      Message message;
      filler.fill(message);
      Bytes out, same;
      const auto back = again(out, message);
      REQUIRE(back);
      wire::encode(same, *back);
      CHECK(same == out);
      int found = 0;
      CHECK(wire::decode_request(Message::type, out, [&](const auto& request) {
        found += std::is_same_v<decltype(request), const Message&> ? 1 : 100;
      }));
      CHECK(found == 1);
    }
    return false;
  });
}

TEST_CASE("limits hold, and a count allocates nothing") {
  const std::string key(wire::key_bytes_max, 'k');
  Bytes out;
  wire::encode(out, wire::Get{key});
  CHECK(wire::decode<wire::Get>(out));
  out.clear();
  wire::encode(out, wire::Get{key + "k"});
  CHECK_FALSE(wire::decode<wire::Get>(out));
  out.clear();
  const Bytes value(wire::value_bytes_max + 1);
  wire::encode(out, wire::Set{"k", value});
  CHECK_FALSE(wire::decode<wire::Set>(out));
  // A count of four thousand million keys in a payload of 12 bytes.
  const Bytes counts(12, std::byte{0xFF});
  CHECK_FALSE(wire::decode<wire::MultiGet>(counts));
  CHECK_FALSE(wire::decode<wire::MultiSet>(counts));
  CHECK_FALSE(wire::decode<wire::Values>(counts));
  CHECK_FALSE(wire::decode<wire::Gathered>(counts));
  CHECK_FALSE(wire::decode<wire::Barrier>(counts));
  // A flag that is neither yes nor no.
  CHECK_FALSE(wire::decode<wire::Grant>(Bytes(5, std::byte{2})));
}

TEST_CASE("texts for people are cut, not refused") {
  Bytes out;
  wire::encode(out, wire::Failed{Errc::refused, std::string(100'000, 'x')});
  const auto failed = wire::decode<wire::Failed>(out);
  REQUIRE(failed);
  CHECK(failed->sentence.size() == wire::text_bytes_max);
}

TEST_CASE("timeouts keep their meaning at both ends of the scale") {
  const auto now = Clock::now();
  using std::chrono::microseconds;
  CHECK(wire::Timeout::until(now + microseconds(5), now) == wire::Timeout{5});
  CHECK(wire::Timeout::until(now - microseconds(5), now) == wire::Timeout{0});
  CHECK(wire::Timeout::until(Clock::time_point::max(), now) == wire::Timeout{});
  CHECK(wire::Timeout{5}.deadline(now) == now + microseconds(5));
  CHECK(wire::Timeout{}.deadline(now) == Clock::time_point::max());
  CHECK(wire::Timeout{wire::Timeout::none - 1}.deadline(now) == Clock::time_point::max());
}

TEST_CASE("answers to changes are remembered, within bounds") {
  store::Replies replies;
  CHECK_FALSE(replies.find(1));
  replies.remember(1, wire::Type::number, as_bytes("12345678"));
  replies.remember(2, wire::Type::popped, as_bytes("a value that is longer than sixteen bytes"));
  CHECK(as_text(replies.find(1)->payload) == "12345678");
  CHECK(replies.find(2)->type == wire::Type::popped);
  CHECK(as_text(replies.find(2)->payload).starts_with("a value that"));
  CHECK_FALSE(replies.find(3));
  const Bytes big(wire::value_bytes_max);
  for (std::uint64_t request = 10; request < 14; ++request) {
    replies.remember(request, wire::Type::popped, big);
  }
  CHECK(replies.find(10)->forgotten);  // It was done, so it must not be done again.
  CHECK_FALSE(replies.find(13)->forgotten);
  for (std::uint64_t request = 20; request < 20 + wire::unanswered_changes_max; ++request) {
    replies.remember(request, wire::Type::done, {});
  }
  CHECK_FALSE(replies.find(13));
  CHECK(replies.find(20));
}
