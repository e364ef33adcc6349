#include "runtime/store/native/bulk_request.hpp"

#include "runtime/store/protocol/operations.hpp"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

namespace dlaunch::store {
namespace {

/// The keys of one part: to look them up takes a tenth of a millisecond, to set them two or three
/// tenths.
constexpr std::size_t keys_per_part = 512;

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
  if (keys <= keys_per_part) return nullptr;
  std::unique_ptr<BulkRequest> bulk(new BulkRequest(header.request, payload));
  const auto take = [&]<class Each>(const Each& message) {
    if constexpr (std::is_constructible_v<Message, Each>) bulk->message_ = message;
  };
  if (!wire::decode_request(header.type, bulk->payload_, take)) return nullptr;
  bulk->keys_ = keys;
  if (!bulk->is_change()) ByteWriter(bulk->values_).integer(static_cast<std::uint32_t>(keys));
  bulk->values_bytes_ = bulk->values_.size();
  return bulk;
}

std::optional<Answer> BulkRequest::go_on(const Asked& asked) {
  const std::size_t first = done_, count = std::min(keys_ - done_, keys_per_part);
  const auto part = [&](const auto& all) { return std::span(all).subspan(first, count); };
  const std::size_t at = asked.out.size();
  std::visit(wire::Overloaded{
                 [&](const request::MultiGet& m) {
                   asked.values.multi_get(asked.by, part(m.keys), asked.out);
                 },
                 [&](const request::MultiSet& m) {
                   asked.values.multi_set(asked.by, part(m.keys), part(m.values), asked.out);
                 },
                 [&](const request::EndLeases& m) {
                   asked.values.end_leases(asked.by, part(m.keys), asked.session, asked.out);
                 },
             },
             message_);
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
  constexpr std::size_t views = sizeof(std::string_view) + sizeof(BytesView);
  return sizeof(BulkRequest) + payload_.size() + keys_ * views + values_.capacity();
}

}  // namespace dlaunch::store
