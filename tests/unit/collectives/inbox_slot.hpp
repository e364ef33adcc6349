#pragma once

#include "collectives/transport/message/inbox.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

/// Messages and receives of an inbox that stands alone.
namespace dlaunch::transport {

inline Header data_header(std::size_t bytes, int tag = 0) {
  Fingerprint call;
  call.op = Op::send;
  call.dtype = DType::u8;
  call.count = bytes;
  return make_header(Kind::message, 1, call, bytes, tag);
}

/// A receive for a message of u8, and its memory.
struct Slot {
  explicit Slot(std::size_t bytes, int from, int tag = 0) : memory(bytes) {
    receive.kind = Kind::message;
    receive.communicator = 1;
    receive.from = from;
    receive.tag = tag;
    receive.expected.dtype = DType::u8;
    receive.expected.count = bytes;
    receive.into = memory;
  }
  bool done() const { return receive.state == Receive::State::done; }
  std::vector<std::byte> memory;
  Receive receive;
};

/// Feeds up to `bytes` bytes of value `fill`; returns how many were taken.
inline std::size_t feed(Inbox& inbox, int from, std::size_t bytes, int fill) {
  std::size_t taken = 0;
  while (taken < bytes) {
    const auto room = inbox.room(from);
    if (room.empty()) break;
    const std::size_t part = std::min(room.size(), bytes - taken);
    std::memset(room.data(), fill, part);
    inbox.advance(from, part);
    taken += part;
  }
  return taken;
}

}  // namespace dlaunch::transport
