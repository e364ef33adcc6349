#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

namespace dlaunch::launcher {

/// The terminal of our session; empty where it has none.
unique_fd controlling_terminal();

/// Lends the terminal to workers that run in its background. The kernel stops a worker that reads
/// from it, or changes its settings, by SIGTTIN or SIGTTOU; the worker then gets the foreground
/// from here and goes on. With several workers none keeps it: a read that has begun goes on in the
/// background, too, so the front has the terminal back at once, and its keys (Ctrl-C) are for the
/// whole job again.
class TerminalLoan {
 public:
  struct Setting {
    pid_t front = 0;
    bool for_good = false;  ///< The worker is alone, and may keep it.
    std::function<void(const std::string& sentence)> say;
  };
  TerminalLoan(boost::asio::io_context& io, Setting setting);

  /// The worker, leader of its group, was stopped for want of the terminal. It waits as long as
  /// the launcher itself is not in the foreground.
  void ask(pid_t worker, int rank);
  /// Whether the worker has the foreground, or had it a moment ago, and so may have got a Ctrl-C
  /// itself.
  bool was_lent_to(pid_t worker) const;
  /// Forgets the waiting workers: they have ended.
  void forget();

 private:
  struct Waiting {
    pid_t worker = 0;
    int rank = 0;
  };
  void serve();
  void serve_after(std::chrono::milliseconds time);

  Setting setting_;
  boost::asio::steady_timer timer_;
  unique_fd terminal_;
  std::deque<Waiting> waiting_;
  pid_t borrower_ = 0;
  pid_t last_borrower_ = 0;
  Clock::time_point taken_back_{};
  bool told_ = false;  ///< The user was told that a worker waits.
};

}  // namespace dlaunch::launcher
