#include "runtime/store/native/bulk_request.hpp"

#include "runtime/store/protocol/operations.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace dlaunch::store {
namespace {

/// The keys of one part: to look them up takes a twentieth of a millisecond, to set them some
/// tenths where there are many.
constexpr std::size_t keys_per_part = 256;

}  // namespace

std::size_t BulkRequest::keys_named(wire::Type type, BytesView payload) {
  ByteReader in(payload);
  if (type == request::Wait::type) {
    in.integer<std::uint64_t>();  // Its timeout.
  } else if (type != request::MultiGet::type && type != request::MultiSet::type &&
             type != request::EndLeases::type) {
    return 0;
  }
  return in.integer<std::uint32_t>();
}

std::unique_ptr<BulkRequest> BulkRequest::from(const wire::FrameHeader& header, BytesView payload) {
  // The namespace itself examines it in parts.
  if (header.type == request::Wait::type) return nullptr;
  const std::size_t keys = keys_named(header.type, payload);
  if (keys <= keys_per_part || !is_sound(header.type, payload)) return nullptr;
  return std::unique_ptr<BulkRequest>(new BulkRequest(header, payload, keys));
}

BulkRequest::BulkRequest(const wire::FrameHeader& header, BytesView payload, std::size_t keys)
    : request_(header.request),
      type_(header.type),
      payload_(payload.begin(), payload.end()),
      keys_(keys) {
  if (!is_change()) ByteWriter(values_).integer(static_cast<std::uint32_t>(keys));
  values_bytes_ = values_.size();
}

/// Nothing is made of it yet: to make the views of all keys at once takes milliseconds.
bool BulkRequest::is_sound(wire::Type type, BytesView payload) {
  ByteReader in(payload);
  for (auto left = in.integer<std::uint32_t>(); left > 0 && in.ok(); --left) {
    in.text(wire::key_bytes_max);
    if (type == request::MultiSet::type) in.bytes(wire::value_bytes_max);
  }
  return in.complete();
}

std::optional<Answer> BulkRequest::go_on(const Asked& asked) {
  const std::size_t count = std::min(keys_ - done_, keys_per_part);
  std::array<std::string_view, keys_per_part> keys;
  std::array<BytesView, keys_per_part> values;
  ByteReader in(BytesView(payload_).subspan(at_));
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = in.text(wire::key_bytes_max);
    if (type_ == request::MultiSet::type) values[i] = in.bytes(wire::value_bytes_max);
  }
  at_ = payload_.size() - in.left();
  const auto named = std::span<const std::string_view>(keys).first(count);
  const std::size_t at = asked.out.size();
  if (type_ == request::MultiGet::type) {
    asked.values.multi_get(asked.by, named, asked.out);
  } else if (type_ == request::MultiSet::type) {
    asked.values.multi_set(asked.by, named, std::span<const BytesView>(values).first(count),
                           asked.out);
  } else {
    asked.values.end_leases(asked.by, named, asked.session, asked.out);
  }
  // The first effect is our own answer: each of these requests is answered at once.
  Answer own = std::move(asked.out[at].answer);
  asked.out.erase(asked.out.begin() + static_cast<std::ptrdiff_t>(at));
  done_ += count;
  if (std::holds_alternative<Refused>(own)) return own;
  if (const auto* found = std::get_if<FoundMany>(&own)) {
    keep(*found);
    own = FoundMany{};
  } else if (auto* number = std::get_if<Number>(&own)) {
    number->value = ended_ += number->value;
  }
  return done_ < keys_ ? std::nullopt : std::optional(std::move(own));
}

void BulkRequest::keep(const FoundMany& part) {
  ByteWriter out(values_);
  for (const auto& value : part.values) {
    values_bytes_ += sizeof(std::uint8_t) + (value ? sizeof(std::uint32_t) + value->size() : 0);
    if (values_bytes_ > wire::frame_bytes_max) continue;
    out.integer(static_cast<std::uint8_t>(value.has_value()));
    if (value) out.bytes(*value);
  }
}

std::size_t BulkRequest::held_bytes() const {
  return sizeof(BulkRequest) + payload_.size() + values_.capacity();
}

}  // namespace dlaunch::store
