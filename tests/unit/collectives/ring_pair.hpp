#pragma once

#include "collectives/transport/shm/ring_ends.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

/// Both ends of one ring, and messages to put through it.
namespace dlaunch::transport {

inline std::shared_ptr<Segment> segment_of(int size) {
  SegmentPlan plan;
  for (int rank = 0; rank < size; ++rank) plan.world_ranks.push_back(rank);
  plan.arena_bytes = 1u << 20;
  return Segment::create(plan);
}

inline Bytes pattern(std::size_t bytes, std::size_t seed) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return data;
}

inline Header header_of(std::size_t bytes, int tag = 0) {
  Fingerprint call;
  call.op = Op::send;
  call.dtype = DType::u8;
  call.count = bytes;
  return make_header(Kind::message, 1, call, bytes, tag);
}

inline Receive receive_of(Bytes& into, int tag = 0) {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = 1;
  receive.from = 0;
  receive.tag = tag;
  receive.expected = fingerprint_of(header_of(into.size()));
  receive.into = into;
  return receive;
}

/// Rank 0 writes to rank 1.
struct Pair {
  Pair() = default;
  /// So much can be parked.
  explicit Pair(std::size_t parked_bytes_max) : inbox(parked_bytes_max) {}

  std::shared_ptr<Segment> segment = segment_of(2);
  Wakeup writers_bell{segment, 0, 0}, readers_bell{segment, 1, 0};
  std::optional<RingWriter> writer{std::in_place, *segment, writers_bell, 0, 1, 0};
  bool reader_sends = false;
  RingReader reader{*segment, readers_bell, 0, 1, 0, 0, reader_sends};
  Inbox inbox;
  std::vector<Bytes> controls;
  OnControl on_control = [this](int, const Header&, BytesView payload) {
    controls.emplace_back(payload.begin(), payload.end());
  };

  Ring& ring() { return segment->ring(0, 1, 0); }
  bool pump() { return reader.pump(inbox, on_control); }
  /// Moves one message through, however often both ends must take turns.
  void move(std::size_t bytes, std::size_t seed) {
    const Bytes data = pattern(bytes, seed);
    Bytes into(bytes);
    Receive receive = receive_of(into);
    inbox.post(receive);
    const Header header = header_of(bytes);
    for (std::size_t sent = 0; sent < sizeof header + bytes;) {
      const bool wrote = writer->write_some(header, data, sent);
      const bool read = pump();
      REQUIRE((wrote || read));
    }
    pump();
    CHECK(receive.state == Receive::State::done);
    CHECK(into == data);
  }
};

}  // namespace dlaunch::transport
