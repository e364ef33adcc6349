#pragma once

#include <dlaunch/store.hpp>

#include <bit>
#include <concepts>
#include <cstring>
#include <optional>
#include <string_view>

namespace dlaunch {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and written straight from memory");

/// Appends little-endian integers and length-prefixed strings to a byte vector.
class ByteWriter {
 public:
  explicit ByteWriter(Bytes& out) : out_(out) {}

  template <std::integral T>
  void integer(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), p, p + sizeof value);
  }
  void raw(BytesView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// u32 length, then the bytes.
  void bytes(BytesView value) {
    integer(static_cast<std::uint32_t>(value.size()));
    raw(value);
  }
  void text(std::string_view value) { bytes(as_bytes(value)); }

 private:
  Bytes& out_;
};

/// Reads what ByteWriter wrote. A read past the end or over a limit yields nullopt and the reader
/// stays failed, so a decoder may read every field and ask ok() once.
class ByteReader {
 public:
  explicit ByteReader(BytesView in) : in_(in) {}

  template <std::integral T>
  T integer() {
    T value{};
    if (in_.size() < sizeof value) return fail(), T{};
    std::memcpy(&value, in_.data(), sizeof value);
    in_ = in_.subspan(sizeof value);
    return value;
  }
  /// A length-prefixed view into the input; empty and failed when longer than `limit` or the input.
  BytesView bytes(std::size_t limit) {
    const auto size = integer<std::uint32_t>();
    return size > limit ? (fail(), BytesView{}) : raw(size);
  }
  std::string_view text(std::size_t limit) { return as_text(bytes(limit)); }
  BytesView raw(std::size_t size) {
    if (in_.size() < size) return fail(), BytesView{};
    const auto value = in_.first(size);
    in_ = in_.subspan(size);
    return value;
  }

  bool ok() const { return ok_; }
  /// True when everything was read, and nothing but it.
  bool complete() const { return ok_ && in_.empty(); }
  std::size_t left() const { return in_.size(); }

 private:
  void fail() {
    ok_ = false;
    in_ = {};
  }
  BytesView in_;
  bool ok_ = true;
};

}  // namespace dlaunch
