#include "collectives/transport/message/message.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>

namespace dlaunch::transport {
namespace {

constexpr std::size_t sentence_bytes_max = control_bytes_max - 64;
constexpr auto errc_last = Errc::unauthenticated;

}  // namespace

Fingerprint fingerprint_of(const Header& header) {
  return {header.op,       header.dtype,
          header.reduce,   header.root,
          header.sequence, header.count,
          header.argument, has_traffic(header.kind) ? static_cast<std::uint32_t>(header.tag) : 0};
}

std::uint64_t number_of(const Fingerprint& call) noexcept {
  return Flight::digest_of(0, call.record());
}

bool is_plausible(const Header& header) noexcept {
  if (header.magic != message_magic) return false;
  switch (header.kind) {
    case Kind::collective:
    case Kind::message:
      return true;
    case Kind::failure:
    case Kind::inquiry:
    case Kind::status:
    case Kind::call:
    case Kind::chain:
    case Kind::taken:
      return header.bytes <= control_bytes_max;
  }
  return false;
}

Bytes encode(const FailureNotice& notice) {
  Bytes out;
  out.reserve(control_bytes_max);
  wire::Writer writer(out);
  writer.integer(static_cast<std::uint16_t>(notice.code));
  writer.integer(static_cast<std::uint16_t>(notice.scope));
  writer.integer(notice.met_by);
  fields(writer, notice.claim);
  const std::size_t left = sentence_bytes_max - std::min(out.size(), sentence_bytes_max);
  writer.text(std::string_view(notice.sentence).substr(0, left));
  return out;
}

/// With a name that is too long nothing is known.
Bytes encode(const Answer& answer) {
  Bytes out;
  wire::encode(out, answer);
  return out.size() <= control_bytes_max ? out : encode(Answer{});
}

std::optional<FailureNotice> decode_failure(const Header& header, BytesView payload) {
  wire::Reader reader(payload);
  FailureNotice notice;
  std::uint16_t code = 0, scope = 0;
  reader.integer(code);
  reader.integer(scope);
  reader.integer(notice.met_by);
  // A code that is newer than this build is an error all the same.
  const bool is_known = code <= static_cast<std::uint16_t>(errc_last);
  notice.code = is_known ? static_cast<Errc>(code) : Errc::internal;
  notice.scope = static_cast<Scope>(scope);
  notice.communicator = header.communicator;
  notice.sequence = header.sequence;
  fields(reader, notice.claim);
  reader.text(notice.sentence);
  const bool is_scope = notice.scope == Scope::from_here_on || notice.scope == Scope::this_call;
  if (!reader.complete() || code == 0 || !is_scope) return std::nullopt;
  return notice;
}

std::optional<Answer> decode_answer(BytesView payload) {
  return payload.size() <= control_bytes_max ? wire::decode<Answer>(payload) : std::nullopt;
}

}  // namespace dlaunch::transport
