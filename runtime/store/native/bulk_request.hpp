#pragma once

#include "runtime/store/core/key_values.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace dlaunch::store {

/// A multi_get, multi_set or end_leases of so many keys that others are to have their turns before
/// it is done. It is carried out a part at a time: a part sees what others did since the one before
/// it, and where one is refused, those before it stay.
class BulkRequest {
 public:
  /// How many keys a request of this type names, as far as its payload tells; 0 for other types.
  static std::size_t keys_named(wire::Type type, BytesView payload);
  /// Null where the request is short enough to be carried out at once, or malformed.
  static std::unique_ptr<BulkRequest> from(const wire::FrameHeader& header, BytesView payload);

  std::uint64_t request() const { return request_; }
  bool is_change() const { return !std::holds_alternative<request::MultiGet>(message_); }
  /// Carries out the next part. What it says to others is left in `asked.out`; what it is answered
  /// itself is here, when it is over.
  std::optional<Answer> go_on(const Asked& asked);
  /// After it was over and answered FoundMany: the payload of its answer. Else empty.
  BytesView values() const { return values_; }
  /// What that payload would have; more than a frame may is not kept.
  std::size_t values_bytes() const { return values_bytes_; }
  /// What it takes in memory, about.
  std::size_t held_bytes() const;

 private:
  using Message = std::variant<request::MultiGet, request::MultiSet, request::EndLeases>;
  BulkRequest(std::uint64_t request, BytesView payload)
      : request_(request), payload_(payload.begin(), payload.end()) {}
  void keep(const FoundMany& part);

  const std::uint64_t request_;
  const Bytes payload_;  ///< The message's views point into it.
  Message message_;
  std::size_t keys_ = 0;
  std::size_t done_ = 0;    ///< So many of them.
  std::int64_t ended_ = 0;  ///< Of leases.
  Bytes values_;
  std::size_t values_bytes_ = 0;
};

}  // namespace dlaunch::store
