#pragma once

#include "runtime/base/bytes.hpp"
#include "runtime/base/departure.hpp"
#include "runtime/base/verdict.hpp"
#include "runtime/store/core/operation_table.hpp"

#include <dlaunch/store.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

/// The fields of messages. A description is one function that serves both ways: with a Writer it
/// encodes, with a Reader it decodes. It is a message's own `fields`, which lists them, or, where
/// they need more, a function `fields(io, message)`.
namespace dlaunch::wire {

constexpr std::size_t key_bytes_max = 8u << 10;
constexpr std::size_t value_bytes_max = 8u << 20;
/// The longest text for people: sentences, job ids, host names.
constexpr std::size_t text_bytes_max = 4u << 10;

/// The longest duration; longer ones count as endless.
constexpr std::chrono::milliseconds duration_max = std::chrono::hours(24 * 365 * 100);

/// Writes the fields it is shown; the counterpart of Reader, so that one description of a message
/// serves both ways.
class Writer {
 public:
  explicit Writer(Bytes& out) : out_(out) {}

  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void integer(const T& value) {
    raw(&value, sizeof value);
  }
  void flag(const bool& value) { integer(static_cast<std::uint8_t>(value)); }
  void key(std::string_view value) { block(as_bytes(value)); }
  void value(BytesView value) { block(value); }
  /// A longer one is cut.
  void text(std::string_view value, std::size_t most = text_bytes_max) {
    block(as_bytes(value.substr(0, most)));
  }
  void optional(const std::optional<BytesView>& value) {
    flag(value.has_value());
    if (value) block(*value);
  }
  void number(const std::optional<int>& value) {
    maybe(value, [&](const int& present) { integer(present); });
  }
  /// One byte; `last` is the highest there is.
  template <class T>
  requires std::is_enum_v<T>
  void choice(const T& value, T) { integer(static_cast<std::uint8_t>(value)); }
  /// u64, at most `most`.
  template <class T>
  requires std::is_integral_v<T>
  void count(const T& value, std::uint64_t) { integer(static_cast<std::uint64_t>(value)); }
  /// u64 milliseconds, at least as long.
  void duration(const Clock::duration& value) {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(
        std::clamp<Clock::duration>(value, Clock::duration::zero(), duration_max));
    integer(static_cast<std::uint64_t>(milliseconds.count()));
  }
  /// A flag, and the fields if there is something.
  template <class T, class Each>
  void maybe(const std::optional<T>& value, Each each) {
    flag(value.has_value());
    if (value) each(*value);
  }
  /// One of several kinds; a byte says which.
  template <class... Kinds, class Each>
  void kind(const std::variant<Kinds...>& value, Each each) {
    integer(static_cast<std::uint8_t>(value.index()));
    std::visit(each, value);
  }
  template <class T, class Each>
  void repeat(const std::vector<T>& items, std::size_t, Each each,
              std::size_t = std::numeric_limits<std::size_t>::max()) {
    integer(static_cast<std::uint32_t>(items.size()));
    for (const T& item : items) each(item);
  }
  /// Items of two vectors, side by side; what `second` has too few is left out.
  template <class A, class B, class Each>
  void repeat_pairs(const std::vector<A>& first, const std::vector<B>& second, Each each) {
    const std::size_t count = std::min(first.size(), second.size());
    integer(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) each(first[i], second[i]);
  }

 private:
  void block(BytesView bytes) {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    const std::size_t at = out_.size();
    out_.resize(at + sizeof size + bytes.size());
    std::memcpy(out_.data() + at, &size, sizeof size);
    if (!bytes.empty()) std::memcpy(out_.data() + at + sizeof size, bytes.data(), bytes.size());
  }
  void raw(const void* data, std::size_t size) {
    const std::size_t at = out_.size();
    out_.resize(at + size);
    std::memcpy(out_.data() + at, data, size);
  }
  Bytes& out_;
};

class Reader {
 public:
  explicit Reader(BytesView in) : in_(in) {}

  template <class T>
  requires std::is_integral_v<T>
  void integer(T& value) { value = in_.integer<T>(); }
  template <class T>
  requires std::is_enum_v<T>
  void integer(T& value) { value = static_cast<T>(in_.integer<std::underlying_type_t<T>>()); }
  void flag(bool& value) {
    const auto byte = in_.integer<std::uint8_t>();
    if (byte > 1) fail();
    value = byte == 1;
  }
  void key(std::string_view& value) { value = in_.text(key_bytes_max); }
  void value(BytesView& value) { value = in_.bytes(value_bytes_max); }
  void value(Bytes& value) {
    const BytesView bytes = in_.bytes(value_bytes_max);
    value.assign(bytes.begin(), bytes.end());
  }
  void text(std::string& value, std::size_t most = text_bytes_max) { value = in_.text(most); }
  void optional(std::optional<BytesView>& value) {
    bool present = false;
    flag(present);
    if (present) value = in_.bytes(value_bytes_max);
  }
  void number(std::optional<int>& value) {
    maybe(value, [&](int& present) { integer(present); });
  }
  template <class T>
  requires std::is_enum_v<T>
  void choice(T& value, T last) {
    const auto byte = in_.integer<std::uint8_t>();
    if (byte > static_cast<std::uint8_t>(last)) return fail();
    value = static_cast<T>(byte);
  }
  template <class T>
  requires std::is_integral_v<T>
  void count(T& value, std::uint64_t most) {
    const auto number = in_.integer<std::uint64_t>();
    if (number > most) return fail();
    value = static_cast<T>(number);
  }
  void duration(Clock::duration& value) {
    const auto milliseconds = in_.integer<std::uint64_t>();
    if (milliseconds > static_cast<std::uint64_t>(duration_max.count())) return fail();
    value = std::chrono::milliseconds(milliseconds);
  }
  template <class T, class Each>
  void maybe(std::optional<T>& value, Each each) {
    bool present = false;
    flag(present);
    if (present) each(value.emplace());
  }
  template <class... Kinds, class Each>
  void kind(std::variant<Kinds...>& value, Each each) {
    const auto which = in_.integer<std::uint8_t>();
    if (which >= sizeof...(Kinds)) return fail();
    std::size_t index = 0;
    (void)((index++ == which && (each(value.template emplace<Kinds>()), true)) || ...);
  }
  /// Nothing is reserved by the count alone: each item takes at least `least` bytes of input, and
  /// there are no more than `most`.
  template <class T, class Each>
  void repeat(std::vector<T>& items, std::size_t least, Each each,
              std::size_t most = std::numeric_limits<std::size_t>::max()) {
    const auto count = in_.integer<std::uint32_t>();
    if (count > most || count > in_.left() / least) return fail();
    items.resize(count);
    for (T& item : items) each(item);
  }
  template <class A, class B, class Each>
  void repeat_pairs(std::vector<A>& first, std::vector<B>& second, Each each) {
    const auto count = in_.integer<std::uint32_t>();
    if (count > in_.left() / (2 * sizeof(std::uint32_t))) return fail();
    first.resize(count);
    second.resize(count);
    for (std::size_t i = 0; i < count; ++i) each(first[i], second[i]);
  }

  bool complete() const { return ok_ && in_.complete(); }

 private:
  void fail() {
    ok_ = false;
    in_ = ByteReader({});
  }
  ByteReader in_;
  bool ok_ = true;
};

// ---- To tell in a description which message it is for: const when it is written. ----

template <class M, class T>
concept is = std::same_as<std::remove_const_t<M>, T>;

template <class M, class... Ts>
concept one_of = (is<M, Ts> || ...);

/// One after the other.
void integers(auto& io, auto&... values) { (io.integer(values), ...); }

// ---- What several protocols tell. ----

void fields(auto& io, is<Departure> auto& m) {
  io.choice(m.kind, Departure::Kind::otherwise);
  integers(io, m.exit_code, m.signal);
  io.flag(m.core_dumped);
  io.number(m.missed);
  io.text(m.words);
}
void fields(auto& io, is<Claim> auto& m) {
  io.choice(m.fault, fault_last);
  io.repeat(
      m.ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); }, Claim::ranks_max);
  integers(io, m.communicator, m.sequence);
  constexpr std::size_t vote_bytes = sizeof(std::int32_t) + sizeof(std::uint64_t);
  io.repeat(
      m.votes, vote_bytes, [&](auto& vote) { integers(io, vote.rank, vote.call); },
      Claim::ranks_max);
  io.text(m.doing);
}

// ---- A field as its type is written. ----

template <class T>
constexpr bool is_vector = false;
template <class T>
constexpr bool is_vector<std::vector<T>> = true;
template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;
template <class T>
constexpr bool is_variant = false;
template <class... Kinds>
constexpr bool is_variant<std::variant<Kinds...>> = true;
template <class T>
constexpr bool is_pairs = false;
template <class A, class B>
constexpr bool is_pairs<store::request::Pairs<A, B>> = true;

void field(auto& io, auto& value) {
  using T = std::remove_const_t<std::remove_reference_t<decltype(value)>>;
  const auto each = [&](auto&... items) { (field(io, items), ...); };
  if constexpr (std::is_empty_v<T>) {
    return;
  } else if constexpr (requires { T::fields(value); }) {
    auto all = T::fields(value);
    std::apply(each, all);
  } else if constexpr (requires { fields(io, value); }) {
    fields(io, value);
  } else if constexpr (std::same_as<T, bool>) {
    io.flag(value);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    io.integer(value);
  } else if constexpr (std::same_as<T, std::string_view>) {
    io.key(value);
  } else if constexpr (std::same_as<T, std::string>) {
    io.text(value);
  } else if constexpr (std::same_as<T, BytesView> || std::same_as<T, Bytes>) {
    io.value(value);
  } else if constexpr (std::same_as<T, std::optional<BytesView>>) {
    io.optional(value);
  } else if constexpr (is_optional<T>) {
    io.maybe(value, each);
  } else if constexpr (is_variant<T>) {
    io.kind(value, each);
  } else if constexpr (std::same_as<T, Clock::duration>) {
    io.duration(value);
  } else if constexpr (is_vector<T>) {
    // The least that an item takes: a flag, or a length, or a number.
    constexpr bool flagged = is_optional<typename T::value_type>;
    io.repeat(value, flagged ? 1 : sizeof(std::uint32_t), each);
  } else {
    static_assert(is_pairs<T>, "such a field has no form");
    io.repeat_pairs(value.first, value.second, each);
  }
}

/// Appends the payload of a message. Texts for people are cut at their limit; other limits are the
/// caller's to keep.
template <class Message>
void encode(Bytes& out, const Message& message) {
  Writer io(out);
  field(io, message);
}
template <class Message>
Bytes payload_of(const Message& message) {
  Bytes payload;
  encode(payload, message);
  return payload;
}

/// Nullopt where the payload is not exactly one such message within its limits. It allocates no
/// more than the size of the payload justifies, whatever counts and lengths that claims.
template <class Message>
std::optional<Message> decode(BytesView payload) {
  std::optional<Message> message(std::in_place);
  Reader io(payload);
  field(io, *message);
  if (!io.complete()) message.reset();
  return message;
}

}  // namespace dlaunch::wire
