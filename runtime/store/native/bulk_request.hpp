#pragma once

#include "runtime/store/core/key_values.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace dlaunch::store {

/// A multi_get, multi_set or end_leases of so many keys that others get their turns before it is
/// done. It is decoded and carried out in parts: a part sees changes that others made since the one
/// before, and if a part is refused, earlier ones stay.
class BulkRequest {
 public:
  /// How many keys a request of this type names, as far as its payload tells; 0 for other types.
  static std::size_t keys_named(wire::Type type, BytesView payload);
  /// Null where the request is short enough to be carried out at once, or malformed.
  static std::unique_ptr<BulkRequest> from(const wire::FrameHeader& header, BytesView payload);

  std::uint64_t request() const { return request_; }
  bool is_change() const { return type_ != request::MultiGet::type; }
  /// Carries out the next part. Effects for others are left in `asked.out`; the request's own
  /// answer is kept here until it is over.
  std::optional<Answer> go_on(const Asked& asked);
  /// After it was over and answered FoundMany: the payload of its answer. Else empty.
  BytesView values() const { return values_; }
  /// The size of that payload; one larger than a frame is not kept.
  std::size_t values_bytes() const { return values_bytes_; }
  /// About how many bytes it takes.
  std::size_t held_bytes() const;

 private:
  BulkRequest(const wire::FrameHeader& header, BytesView payload, std::size_t keys);
  /// Whether the payload is exactly one such request.
  static bool is_sound(wire::Type type, BytesView payload);
  void keep(const FoundMany& part);

  const std::uint64_t request_;
  const wire::Type type_;
  const Bytes payload_;
  const std::size_t keys_;
  std::size_t at_ = sizeof(std::uint32_t);  ///< Place of the next key in the payload.
  std::size_t done_ = 0;                    ///< Number of keys done.
  std::int64_t ended_ = 0;                  ///< Number of ended leases.
  Bytes values_;
  std::size_t values_bytes_ = 0;
};

}  // namespace dlaunch::store
