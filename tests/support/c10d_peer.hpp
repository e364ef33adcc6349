#pragma once

#include "runtime/store/c10d/c10d_session.hpp"
#include "tests/support/c10d_bytes.hpp"

#include <memory>
#include <string>
#include <utility>

namespace dlaunch::c10d_test {

/// A client's end of a c10d session without a socket: what is said goes straight into the session,
/// what the session writes is kept until it is taken.
class Peer final : public store::Outbox {
 public:
  Peer(std::uint64_t client, c10d::Namespace& shared) : session_(shared.open(client, *this)) {}

  /// False when the session calls it garbage; the connection counts as closed then, too.
  bool say(BytesView bytes) {
    if (closed_) return false;
    const bool spoken = session_->feed(bytes, now_);
    if (!spoken) closed_ = true;
    return spoken;
  }
  bool say(const std::string& bytes) { return say(as_bytes(bytes)); }
  /// One byte at a time, each in a buffer of its own.
  bool say_slowly(const std::string& bytes) {
    for (const char byte : bytes) {
      if (!say(std::string(1, byte))) return false;
    }
    return true;
  }

  /// The bytes that this peer has heard since the last call.
  std::string heard() {
    const std::string text(as_text(bytes_));
    bytes_.clear();
    return text;
  }
  bool closed() const { return closed_; }
  /// From so many bytes on that have not been heard, the session shall pause.
  void congest_at(std::size_t bytes) { congested_at_ = bytes; }
  /// What is said from now on is said then.
  void at(Clock::time_point now) { now_ = now; }
  void hang_up() { session_.reset(); }

  Bytes& buffer() override { return bytes_; }
  Bytes& ahead() override { return bytes_; }
  void share(std::shared_ptr<const Bytes> block) override {
    bytes_.insert(bytes_.end(), block->begin(), block->end());
  }
  void close() override { closed_ = true; }
  bool congested() const override { return bytes_.size() >= congested_at_; }
  void fail() noexcept override { closed_ = true; }

 private:
  Bytes bytes_;
  bool closed_ = false;
  Clock::time_point now_{};
  std::size_t congested_at_ = std::size_t{1} << 40;
  std::unique_ptr<store::Session> session_;
};

}  // namespace dlaunch::c10d_test
