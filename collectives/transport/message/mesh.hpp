#pragma once

#include "runtime/base/pools.hpp"

#include <dlaunch/store.hpp>

#include <cstddef>
#include <span>

namespace dlaunch {

namespace algorithms {
class Table;
}

/// The face an algorithm sees: the ranks of one call, and bytes between them. Every message
/// carries the call's fingerprint and is compared before its data is used. All calls block until
/// the call's deadline and throw Error. For the thread that makes the call.
class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Memory that an algorithm needs besides the call's buffers.
  virtual BufferPool& buffer_pool() = 0;
  /// The table of algorithms; the same on all ranks.
  virtual const algorithms::Table& table() const = 0;
  /// Returns when `data` may be reused. Never to oneself.
  virtual void send(int to, BytesView data) = 0;
  /// Receives exactly data.size() bytes.
  virtual void recv(int from, std::span<std::byte> data) = 0;
  /// Both at once, full-duplex, so that rings cannot deadlock on full buffers.
  virtual void exchange(int to, BytesView out, int from, std::span<std::byte> in) = 0;

  /// One of the messages that were started and not yet waited for.
  using Ticket = std::size_t;
  /// Begin to send or to receive, and return at once; the data is borrowed until the ticket was
  /// waited for or taken back, one of which happens once to each. Started messages move on during
  /// every call that blocks, in any number and between any ranks. Between two ranks messages arrive
  /// in the order in which they were started or sent, and fill receives in the order of those.
  virtual Ticket start_send(int to, BytesView data) = 0;
  virtual Ticket start_recv(int from, std::span<std::byte> data) = 0;
  /// Returns when that message is complete; in any order.
  virtual void wait(Ticket ticket) = 0;
  /// The call is given up: that message's data is not touched any more.
  virtual void take_back(Ticket ticket) noexcept = 0;
};

}  // namespace dlaunch
