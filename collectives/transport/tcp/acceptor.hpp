#pragma once

#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/tcp/proof.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/store.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>

namespace dlaunch::transport {

/// Accepts connections at this rank's listener, as far as there is room, and keeps each until it
/// has said and proved which rank it comes from.
class Acceptor final : public Watched {
 public:
  /// Takes over a connection of that rank, from which only the proof was read. False: it is not
  /// wanted.
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

  /// Closes late newcomers, and accepts again if it had to pause.
  void progress(Clock::time_point now);
  /// The time at which it wants that.
  Clock::time_point next_wake() const;
  void on_ready(std::uint32_t events) override;

 private:
  /// Connections that have not said who they are.
  static constexpr std::size_t newcomers_max = 256;
  /// How long a newcomer may take to prove who it is; and after how long it has to make room for
  /// another when there are too many.
  static constexpr auto proof_timeout = std::chrono::seconds(3);
  static constexpr auto newcomer_slow = std::chrono::milliseconds(250);
  /// How often accepting is tried again after descriptors ran out; connections wait in the
  /// listener's queue meanwhile.
  static constexpr auto shortage_pause = std::chrono::milliseconds(50);

  class Newcomer;
  bool may_accept(Clock::time_point now);
  void greet(Newcomer& newcomer);
  bool hear(Newcomer& newcomer);

  Poller& poller_;
  const Hello& own_;
  const Key* const key_;
  const Admit admit_;
  home_fd listener_;
  Poller::Watch watch_;
  std::list<Newcomer> newcomers_;  ///< In the order in which they came.
  std::uint64_t strangers_ = 0;
  std::string shortage_;
  Clock::time_point accept_again_{};
};

class Acceptor::Newcomer final : public Watched {
 public:
  Newcomer(Acceptor& acceptor, unique_fd connected, Clock::time_point now);
  /// Goes on with a newcomer; afterwards it is gone, or waits for more.
  void on_ready(std::uint32_t) override { acceptor_.greet(*this); }

  int fd() const { return fd_.get(); }
  /// Stops watching a newcomer.
  unique_fd release();
  Acceptance acceptance;
  const Clock::time_point since;

 private:
  Acceptor& acceptor_;
  home_fd fd_;
  Poller::Watch watch_;
};

}  // namespace dlaunch::transport
