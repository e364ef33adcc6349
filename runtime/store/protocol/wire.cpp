#include "runtime/store/protocol/wire.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::wire {
namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'D'}, std::byte{'L'}, std::byte{'C'},
                                         std::byte{'H'}};

}  // namespace

void encode_frame(Bytes& out, FrameHeader header, BytesView payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  const std::size_t at = out.size();
  out.resize(at + header_bytes + payload.size());
  std::memcpy(out.data() + at, &header, header_bytes);
  if (!payload.empty()) {
    std::memcpy(out.data() + at + header_bytes, payload.data(), payload.size());
  }
}

void encode_header(Bytes& out, const FrameHeader& header) {
  const std::size_t at = out.size();
  out.resize(at + header_bytes);
  std::memcpy(out.data() + at, &header, header_bytes);
}

void encode_preface(Bytes& out) {
  ByteWriter writer(out);
  writer.raw(magic);
  writer.integer(version);
}

std::optional<std::uint32_t> decode_preface(BytesView bytes) {
  if (bytes.size() < preface_bytes || !std::ranges::equal(bytes.first(magic.size()), magic)) {
    return std::nullopt;
  }
  return ByteReader(bytes.subspan(magic.size())).integer<std::uint32_t>();
}

FrameHeader decode_header(BytesView bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), header_bytes);
  return header;
}

bool is_store_request(Type type) { return Requests::contains(type); }
bool is_change(Type type) { return Requests::has(type, changes); }

}  // namespace dlaunch::wire
