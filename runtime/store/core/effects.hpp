#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dlaunch::store {

/// A connection and one request on it; both chosen by the shell, opaque here.
struct Caller {
  std::uint64_t client = 0;
  std::uint64_t request = 0;
  bool operator==(const Caller&) const = default;
};

/// A value for many receivers is copied for each up to this size; a larger one is one block for
/// all.
constexpr std::size_t copied_value_max = 2048;

// ---- What a request can be answered with. Views are borrowed until the next call. ----

struct Done {};
struct Number {
  std::int64_t value = 0;
};
struct Found {
  BytesView value;
  std::shared_ptr<const Bytes> block = nullptr;  ///< The value, if it is large and many get it.
};
struct Absent {};
struct FoundMany {
  std::vector<std::optional<BytesView>> values;
};
struct KeyList {
  std::vector<std::string> keys;
};
/// Keys in order, from a page of a list; `more`: there are others behind them.
struct KeyPage {
  std::vector<std::string_view> keys;
  bool more = false;
};
/// compare_set: what the key holds now (nullopt: nothing) and whether `desired` was stored.
struct Compared {
  bool stored = false;
  std::optional<BytesView> current;
};
/// pop without waiting, as c10d wants it: the length before the pop, and the value if there was
/// one.
struct Popped {
  std::int64_t length_before = 0;
  std::optional<Bytes> value;
};
/// all_gather: one immutable block, shared by all that get it: for each contributor in order a u32
/// size (little-endian) and that many bytes.
struct Gathered {
  int count = 0;
  std::shared_ptr<const Bytes> block;
};
struct Changed {
  KeyChange::Kind kind{};
  std::string_view key;
  std::optional<BytesView> before, after;
  std::shared_ptr<const Bytes> block = nullptr;  ///< As in Found: the new value.
};
/// A deadline passed. Has the first of the keys, or of a barrier's contributors, that never came,
/// and how many there are in all.
struct TimedOut {
  static constexpr std::size_t named_max = 9;
  std::vector<std::string> keys;
  std::vector<int> contributors;
  std::size_t missing = 0;
};
/// How many of so many of them a message tells; "and 1 more" is never said.
constexpr std::size_t names_told(std::size_t names) { return names == 9 ? 9 : 8; }
struct Refused {
  std::string reason;
  Errc code = Errc::refused;
};

using Answer = std::variant<Done, Number, Found, Absent, FoundMany, KeyList, KeyPage, Compared,
                            Popped, Gathered, Changed, TimedOut, Refused>;

/// The one kind of effect: an answer to send. `last` is false for a watch, which goes on.
struct Effect {
  Caller to;
  Answer answer;
  bool last = true;
};
using Effects = std::vector<Effect>;

}  // namespace dlaunch::store
