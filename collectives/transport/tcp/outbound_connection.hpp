#pragma once

#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/message/transport.hpp"
#include "collectives/transport/tcp/proof.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/base/os/socket.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::transport {

/// The sending end of a connection: says who it is, hears the receiver's proof where the job has a
/// key, and writes; without ever blocking. What it borrows lives as long.
class OutboundConnection final : public SendingEnd, public Watched {
 public:
  /// `queue` is told when it can go on, or has ended. With a key nothing is sent before its rank
  /// has proved to know it, too. It is in `unaddressed` as long as it has nowhere to connect to.
  OutboundConnection(Poller& poller, SendQueue& queue, const Hello& hello, const Key* key,
                     std::vector<OutboundConnection*>& unaddressed);
  ~OutboundConnection() override;
  OutboundConnection(const OutboundConnection&) = delete;
  OutboundConnection& operator=(const OutboundConnection&) = delete;

  SendQueue& queue() const { return queue_; }
  /// Whether it has something to send but no address, or has to try again.
  bool wants_address() const;
  /// Sets TCP_NODELAY, so that small messages leave at once.
  void connect(const Address& address);

  bool write(const Header&, BytesView) override { return false; }
  bool write_some(const Header& header, BytesView payload, std::size_t& sent) override;
  const char* end() const noexcept override { return reason_.empty() ? nullptr : reason_.c_str(); }
  void on_ready(std::uint32_t events) override;

 private:
  enum class State { looking_up, connecting, proving, open };
  /// A connection that waits for its receiver's proof.
  struct Proving {
    Meeting meeting;
    std::array<std::byte, challenge_bytes> challenge{};
    std::size_t got = 0;
  };

  bool is_ready();
  bool finish_connecting();
  bool write_hello();
  std::size_t write_whole(const Header& header, BytesView payload);
  void look();
  void read_proof();
  void connect_again();
  std::string unproven() const;
  void await_address();
  void fail(std::string reason);

  Poller& poller_;
  SendQueue& queue_;
  const Hello& own_hello_;
  const Key* const key_;
  std::vector<OutboundConnection*>& unaddressed_;
  State state_ = State::looking_up;
  home_fd fd_;
  Poller::Watch watch_;
  Bytes hello_;  ///< The part of the Hello still to be sent.
  std::optional<Proving> proving_;
  int attempts_ = 0;  ///< Attempts whose proof was not taken.
  std::string reason_;
};

}  // namespace dlaunch::transport
