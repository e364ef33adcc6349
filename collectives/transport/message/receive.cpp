#include "collectives/transport/message/receive.hpp"

#include <algorithm>

namespace dlaunch::transport {
namespace {

/// Whether the header's elements take as many bytes as it says.
bool is_consistent(const Header& header) {
  const std::size_t each = size_of(header.dtype);
  return each != 0 && header.bytes % each == 0 && header.bytes / each == header.count;
}

}  // namespace

bool is_meant_for(const Header& header, Kind kind, std::uint64_t communicator, int tag) {
  return header.kind == kind && header.communicator == communicator &&
         (kind != Kind::message || tag == any_tag || header.tag == tag);
}

bool agrees(const Receive& receive, const Header& header) {
  if (receive.up_to) {
    return header.dtype == receive.expected.dtype && header.bytes <= receive.into.size() &&
           is_consistent(header);
  }
  if (header.bytes != receive.into.size()) return false;
  if (receive.kind == Kind::collective) return fingerprint_of(header) == receive.expected;
  return header.dtype == receive.expected.dtype && header.count == receive.expected.count;
}

Receive::State refusal(const Receive& receive, const Header& header) {
  const bool is_too_long = receive.up_to && header.dtype == receive.expected.dtype &&
                           is_consistent(header) && header.bytes > receive.into.size();
  return is_too_long ? Receive::State::too_long : Receive::State::mismatched;
}

bool listens_to(const Receive& receive, int from) {
  if (receive.from != any_source) return receive.from == from;
  // In a list of all ranks each is at its own place.
  const auto place = static_cast<std::size_t>(from);
  if (place < receive.sources.size() && receive.sources[place] == from) return true;
  return std::find(receive.sources.begin(), receive.sources.end(), from) != receive.sources.end();
}

bool fits(const Receive& receive, const Header& header) {
  return is_meant_for(header, receive.kind, receive.communicator, receive.tag) &&
         agrees(receive, header) && !is_synchronous(header);
}

}  // namespace dlaunch::transport
