#pragma once

#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/message/transport.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dlaunch::transport {

/// The receiving end of a connection whose Hello was accepted. The poller tells of what comes once,
/// when it comes (EPOLLET), so a connection that was not read to its end is remembered in a list.
class InboundConnection final : public ReceivingEnd, public Watched {
 public:
  /// Connections that may have data left of which no event tells: the inbox held the source, nobody
  /// has asked for the read data, or others had their turn. One that is taken out goes on.
  using Unfinished = std::vector<InboundConnection*>;
  /// Borrows the list and everything to which `mesh` refers.
  InboundConnection(const Surroundings& mesh, unique_fd connected, int from,
                    Unfinished& unfinished);
  InboundConnection(const InboundConnection&) = delete;
  InboundConnection& operator=(const InboundConnection&) = delete;

  bool ended() const noexcept override { return ended_; }
  const std::string& reason() const noexcept override { return reason_; }
  bool has_left_something() const noexcept override { return !ended_; }

  bool pump(Inbox& inbox, const OnControl& on_control) override;
  /// If at least so much of a payload is missing, it is read straight to its destination.
  static constexpr std::size_t direct_bytes_min = Inbox::long_bytes;
  /// Takes the next message if it is the one that is wanted, and is there as a whole; nobody else
  /// must be waiting for it. Returns whether it did. For less than `direct_bytes_min`.
  bool take(Receive& receive);
  bool take_soon(Receive& receive, const LookLimit& limit) override;
  bool is_worth_looking() const noexcept override { return !ended_ && !held_; }
  /// Goes on after it was taken out of the list. Returns whether anything moved.
  bool go_on();
  void on_ready(std::uint32_t events) override;

 private:
  bool feed(Inbox& inbox, const OnControl& on_control);
  bool feed_control(const OnControl& on_control);
  bool read_into_buffer(std::size_t bytes_max, std::size_t& got);
  void spare_acknowledgements() noexcept;
  bool read_some(std::span<std::byte> into, std::size_t& got);
  bool holds_message() const noexcept;
  bool is_held_up(Inbox& inbox);
  void note_unfinished();

  const Surroundings mesh_;
  home_fd fd_;
  const int from_;
  Unfinished& unfinished_;
  Poller::Watch watch_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  unsigned reads_ = 0;  ///< Into the buffer.
  Header control_;
  bool in_control_ = false;
  bool closing_ = false;  ///< The sender sends no more; its end is behind the data in the socket.
  bool closed_ = false;   ///< The socket has ended; earlier data may still be here.
  bool ended_ = false;
  bool held_ = false;      ///< What was read cannot be handed on yet.
  bool has_more_ = false;  ///< The socket may have more, and will not tell.
  /// It is in `unfinished_`, as always if one of the two flags before is set.
  bool is_listed_ = false;
  std::string reason_;
};

}  // namespace dlaunch::transport
