#pragma once

#include <array>
#include <csignal>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/signalfd.h>
#include <sys/types.h>

namespace dlaunch::launcher {

/// Sent to the agent by the kernel when its front has died.
inline int front_lost_signal() { return SIGRTMIN + 4; }
/// Carries a signal from the front to the agent, its number as the value. Signals that come to the
/// agent directly are not obeyed: a service manager sends one to every process of ours, and it
/// must count once. (This kind also queues: two of a number stay two.)
inline int handed_on_signal() { return SIGRTMIN + 5; }

/// Tells an agent of signals. All signals are blocked, and read here.
class SignalListener {
 public:
  virtual ~SignalListener() = default;
  /// A child ended or stopped.
  virtual void on_child_change() = 0;
  virtual void on_front_lost() = 0;
  /// A signal that the front was sent; the agent obeys no other.
  virtual void on_handed_on(int number) = 0;
};

class SignalInbox {
 public:
  SignalInbox(boost::asio::io_context& io, pid_t front, SignalListener& listener);

  /// Reports signals that have come and were not read yet, before it returns. To be called before
  /// acting on a later event, or on a deadline.
  void take_pending();

 private:
  void read();
  void take(const signalfd_siginfo& info);

  const pid_t front_;
  SignalListener& listener_;
  boost::asio::posix::stream_descriptor signals_;
  std::array<signalfd_siginfo, 16> buffer_{};
};

}  // namespace dlaunch::launcher
