#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/protocol/wire.hpp"
#include "runtime/store/tls/tls.hpp"

#include <deque>
#include <optional>
#include <vector>

namespace dlaunch::store {

/// The reading half of a client's connection: bytes from a socket, and the descriptors that come
/// with them, to frames. Not thread-safe.
class FrameReader {
 public:
  struct Frame {
    wire::FrameHeader header;
    BytesView payload;  ///< Valid until the next call of receive.
    std::vector<unique_fd> descriptors;
  };
  enum class Received { some, nothing, closed };

  /// Reads once without blocking. On `closed`, errno tells why, 0 for an orderly end.
  Received receive(int socket);
  /// From now on what is read goes through `channel`, whose handshake is over and which stays
  /// valid as long as this; `plain` is what came behind the handshake.
  void read_through(TlsChannel& channel, Bytes plain);
  /// Takes the other side's preface off the front: its version; nullopt while it is incomplete.
  /// Throws Errc::version where it is none.
  std::optional<std::uint32_t> preface();
  /// The next complete frame. Throws Errc::version where the length cannot be.
  std::optional<Frame> next();

 private:
  BytesView unread() const { return BytesView(buffer_).subspan(begin_, end_ - begin_); }
  void make_room();
  Received receive_sealed(int socket);

  Bytes buffer_ = Bytes(16u << 10);
  std::size_t begin_ = 0, end_ = 0;
  std::deque<unique_fd> descriptors_;
  TlsChannel* tls_ = nullptr;
};

}  // namespace dlaunch::store
