#pragma once

#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/tcp/proof.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/store.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>

namespace dlaunch::transport {

/// Takes the connections that come to this rank's listener, as far as there is room, until each has
/// said and proved which rank it comes from.
class Acceptor final : public Watched {
 public:
  /// A connection of that rank, of which nothing but its proof was read. False: it is not wanted.
  using Admit = std::function<bool(int from, unique_fd connected)>;
  /// `own` is this rank's Hello; it and the key are borrowed.
  Acceptor(Poller& poller, unique_fd listener, const Hello& own, const Key* key, Admit admit);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Connections that were closed because they were not a rank's, or did not prove it in time.
  std::uint64_t strangers() const { return strangers_; }
  /// Why peers' connections wait: "it cannot accept connections: Too many open files"; empty if
  /// they do not.
  const std::string& shortage() const { return shortage_; }

  /// Closes those that are late, and listens again where it could not.
  void progress(Clock::time_point now);
  /// When it wants that.
  Clock::time_point next_wake() const;
  void on_ready(std::uint32_t events) override;

 private:
  /// Connections that have not said who they are.
  static constexpr std::size_t newcomers_max = 256;
  /// How long one may take to prove who it is; and after how long it makes room for another when
  /// there are too many.
  static constexpr auto proof_timeout = std::chrono::seconds(3);
  static constexpr auto newcomer_slow = std::chrono::milliseconds(250);
  /// Without a descriptor for it a connection waits in the listener's queue; looked at so often.
  static constexpr auto shortage_pause = std::chrono::milliseconds(50);

  class Newcomer;
  bool may_accept(Clock::time_point now);
  void greet(Newcomer& newcomer);
  bool hear(Newcomer& newcomer);

  Poller& poller_;
  const Hello& own_;
  const Key* const key_;
  const Admit admit_;
  unique_fd listener_;
  Poller::Watch watch_;
  std::list<Newcomer> newcomers_;  ///< In the order in which they came.
  std::uint64_t strangers_ = 0;
  std::string shortage_;
  Clock::time_point accept_again_{};
};

class Acceptor::Newcomer final : public Watched {
 public:
  Newcomer(Acceptor& acceptor, unique_fd connected, Clock::time_point now);
  /// Afterwards it is gone, or waits for more.
  void on_ready(std::uint32_t) override { acceptor_.greet(*this); }

  int fd() const { return fd_.get(); }
  /// No longer watched here.
  unique_fd release();
  Acceptance acceptance;
  const Clock::time_point since;

 private:
  Acceptor& acceptor_;
  unique_fd fd_;
  Poller::Watch watch_;
};

}  // namespace dlaunch::transport
