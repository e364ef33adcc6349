#pragma once

#include "collectives/transport/message/transport.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::transport {

/// The receiving end of a connection whose Hello was accepted.
class InboundConnection final : public ReceivingEnd {
 public:
  InboundConnection(unique_fd fd, int from) : fd_(std::move(fd)), from_(from) {}

  int fd() const { return fd_.get(); }
  bool ended() const noexcept override { return ended_; }
  const std::string& reason() const noexcept override { return reason_; }
  bool has_left_something() const noexcept override { return !ended_; }

  bool pump(Inbox& inbox, const OnControl& on_control) override;
  /// A payload of which at least this much is missing is read straight to where it belongs.
  static constexpr std::size_t direct_bytes_min = 16u << 10;
  /// Takes the next message if it is the one that is wanted, and is there as a whole; nobody else
  /// must be waiting for it. Returns whether it did. For less than `direct_bytes_min`.
  bool take(Receive& receive);
  bool take_soon(Receive& receive, const Patience& patience) override;
  bool is_worth_looking() const noexcept override { return !ended_ && !held_; }
  /// When last used, something was left that no descriptor tells of, because the inbox held the
  /// source or nobody has asked for it: pump again.
  bool held() const { return held_; }

 private:
  bool feed(Inbox& inbox, const OnControl& on_control);
  bool feed_control(const OnControl& on_control);
  bool read_into_buffer(std::size_t bytes_max, std::size_t& got);
  void spare_acknowledgements() noexcept;
  bool read_some(std::span<std::byte> into, std::size_t& got);
  bool is_held_up(Inbox& inbox);

  unique_fd fd_;
  int from_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  unsigned reads_ = 0;  ///< Into the buffer.
  Header control_;
  bool in_control_ = false;
  bool closed_ = false;  ///< The socket has no more; what it gave before may still be here.
  bool ended_ = false;
  bool held_ = false;
  std::string reason_;
};

}  // namespace dlaunch::transport
