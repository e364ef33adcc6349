#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch::store {

/// The reading half of a client's connection: turns bytes, and the descriptors that come with them,
/// into frames. Not thread-safe.
class FrameReader {
 public:
  struct Frame {
    wire::FrameHeader header;
    BytesView payload;  ///< Valid until more is taken in.
    std::vector<unique_fd> descriptors;
  };

  /// Room for the rest of the frame that has begun, and some for those behind it.
  std::span<std::byte> room();
  /// Takes note that so many bytes were read, and that these descriptors came along.
  void arrived(std::size_t size, std::vector<unique_fd> descriptors);
  /// Has `fill` append to what is unread, and returns what that returns.
  template <class Fill>
  auto append(Fill fill) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    buffer_.resize(end_ - begin_);
    begin_ = 0;
    const auto result = fill(buffer_);
    end_ = buffer_.size();
    return result;
  }
  /// Takes the other side's preface off the front: its version; nullopt while it is incomplete.
  /// Throws Errc::version where it is none.
  std::optional<std::uint32_t> preface();
  /// The next complete frame. Throws Errc::version where the length cannot be.
  std::optional<Frame> next();

 private:
  BytesView unread() const { return BytesView(buffer_).subspan(begin_, end_ - begin_); }

  Bytes buffer_ = Bytes(16u << 10);
  std::size_t begin_ = 0, end_ = 0;
  std::deque<unique_fd> descriptors_;
};

}  // namespace dlaunch::store
