#pragma once

#include "runtime/store/c10d/decoder.hpp"

#include <dlaunch/store.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Requests and replies of PyTorch's store protocol, written down as bytes.
namespace dlaunch::c10d_test {

/// A string of bytes under construction.
class Wire {
 public:
  Wire& code(unsigned value) { return byte(static_cast<unsigned char>(value)); }
  Wire& byte(unsigned char value) {
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Wire& u32(std::uint32_t value) { return number(value); }
  Wire& u64(std::uint64_t value) { return number(value); }
  Wire& i64(std::int64_t value) { return number(value); }
  Wire& text(std::string_view value) {
    u64(value.size());
    return raw(value);
  }
  Wire& texts(const std::vector<std::string>& values) {
    u64(values.size());
    for (const auto& value : values) text(value);
    return *this;
  }
  Wire& raw(std::string_view value) {
    bytes_ += value;
    return *this;
  }

  const std::string& str() const { return bytes_; }
  BytesView view() const { return as_bytes(bytes_); }

 private:
  template <class T>
  Wire& number(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      byte(static_cast<unsigned char>(value >> (8 * i)));
    }
    return *this;
  }
  std::string bytes_;
};

/// "00 ce f7" to bytes.
inline std::string from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); ++i) {
    if (hex[i] == ' ') continue;
    bytes.push_back(static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1])));
    ++i;
  }
  return bytes;
}

/// The wire's code of each operation, as the two dialects number them.
namespace code_a {
enum : unsigned { set, compare_set, get, add, check, wait, count, watch, erase };
}
namespace code_c {
enum : unsigned {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  count,
  erase,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  push,
  pop,
  queue_size,
  list,
  barrier
};
}

}  // namespace dlaunch::c10d_test
