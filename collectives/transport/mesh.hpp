#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <span>

namespace dlaunch {

/// The face an algorithm sees: the ranks of one call, and bytes between them. Every message
/// carries the call's fingerprint and is compared before its data is used. All calls block until
/// the call's deadline and throw Error. For the thread that makes the call.
class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns when `data` may be reused. Never to oneself.
  virtual void send(int to, BytesView data) = 0;
  /// Receives exactly data.size() bytes.
  virtual void recv(int from, std::span<std::byte> data) = 0;
  /// Both at once, full-duplex, so that rings cannot deadlock on full buffers.
  virtual void exchange(int to, BytesView out, int from, std::span<std::byte> in) = 0;
};

}  // namespace dlaunch
