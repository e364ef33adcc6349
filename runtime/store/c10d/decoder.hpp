#pragma once

#include <dlaunch/store.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// PyTorch's TCPStore protocol as a server sees it: requests without frame length or number, told
/// apart only by parsing them. Little-endian; a string is a u64 length and its bytes.
namespace dlaunch::c10d {

/// PyTorch's own server has the limits 8 KiB, 8 MiB and 128 Ki since torch 2.4, and none before.
constexpr std::size_t key_bytes_max = 8u << 10;
constexpr std::size_t value_bytes_max = 32u << 20;
constexpr std::size_t keys_per_request_max = 128u << 10;
/// The limit of one request with all its keys and values.
constexpr std::size_t request_bytes_max = 256u << 20;

/// The two numberings of the operations. They are told apart by the first five bytes of a
/// connection: those of `hello` open dialect C, anything else is dialect A.
enum class Dialect : std::uint8_t {
  a,  ///< torch up to 2.0
  c,  ///< torch from 2.2
};

/// The number that dialect C's VALIDATE carries.
constexpr std::uint32_t magic = 0x3C85F7CE;
/// Dialect C's first bytes: VALIDATE's code and the magic number.
constexpr std::array<std::byte, 5> hello{std::byte{0x00}, std::byte{0xCE}, std::byte{0xF7},
                                         std::byte{0x85}, std::byte{0x3C}};

/// Nullopt while the bytes seen so far leave it open; at most five are needed.
std::optional<Dialect> detect(BytesView first_bytes);

enum class Op : std::uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  count,
  watch,
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
  barrier,
};

/// One request; every view points into the bytes it was decoded from or into the decoder, and is
/// valid until either changes. Which fields mean something depends on `op`.
struct Request {
  Op op{};
  std::string_view key;
  BytesView value;          ///< compare_set: the expected value.
  BytesView desired;        ///< compare_set only.
  std::int64_t number = 0;  ///< add: delta; barrier: world; ping: nonce; validate: magic.
  std::span<const std::string_view> keys;
  std::span<const BytesView> values;  ///< multi_set: one for each of `keys`.
};

/// Decodes one connection's requests, however they are fragmented. Bytes are looked at only once,
/// so a request that comes in single bytes costs no more than its size. Nothing is allocated for a
/// length or a count that the peer merely claims. Not thread-safe.
class Decoder {
 public:
  explicit Decoder(Dialect dialect) : dialect_(dialect) {}

  enum class Status {
    complete,    ///< `size` bytes made up the request.
    incomplete,  ///< The request has at least `size` bytes; call again with more.
    invalid,     ///< No such operation, or a limit is exceeded: close the connection.
  };
  struct Result {
    Status status = Status::invalid;
    std::size_t size = 0;
    bool operator==(const Result&) const = default;
  };

  /// Why a request is invalid.
  struct Objection {
    enum class To : std::uint8_t { operation, key, value, keys, request };
    To to{};
    std::uint64_t size = 0;  ///< The size that is too big; the number of an unknown operation.
    std::string key;         ///< The key of the value; empty: not known.
    bool operator==(const Objection&) const = default;
  };
  /// After `invalid`.
  const Objection& objection() const { return objection_; }

  /// `unread` begins where the last complete request ended. After `incomplete` it begins with the
  /// same bytes again, at any address, with more behind them.
  Result next(BytesView unread, Request& request);

 private:
  enum class Field : std::uint8_t { none, key, value, desired, i64, u32, keys, pairs };
  struct Shape {
    Op op{};
    std::array<Field, 3> fields{};
  };
  struct Slice {
    std::uint32_t at = 0;
    std::uint32_t size = 0;
  };

  static const Shape* shape_of(Dialect dialect, std::byte code);
  Result read_field(Field field, BytesView unread);
  Result read_text(BytesView unread, bool is_value);
  Result object(Objection::To to, std::uint64_t size);
  Result read_list(BytesView unread, bool pairs);
  template <class T>
  Result read_number(BytesView unread, T& value) const;
  void expose(BytesView unread, Request& request);

  Dialect dialect_;
  const Shape* shape_ = nullptr;  ///< The shape of the request being read; null between them.
  std::size_t field_ = 0;
  std::size_t position_ = 0;  ///< How much of the request has been read.
  std::int64_t number_ = 0;
  std::optional<std::uint64_t> left_;  ///< Texts of a list that are still to come.
  std::vector<Slice> texts_;           ///< Offsets, because the buffer moves between calls.
  std::vector<std::string_view> keys_;
  std::vector<BytesView> values_;
  Objection objection_;
};

}  // namespace dlaunch::c10d
