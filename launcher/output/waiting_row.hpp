#pragma once

#include "launcher/output/console.hpp"

#include <dlaunch/error.hpp>

#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// Shows what a node waits for before its workers run, and when they are to end. On a terminal the
/// last sentence stays in one row, with its age; elsewhere each sentence is a line. For the thread
/// of `io`; `console` has to outlive it.
class WaitingRow {
 public:
  WaitingRow(boost::asio::io_context& io, Console& console) : timer_(io), console_(console) {}

  void show(std::string sentence);
  /// Less is waited for than before: the row says so. Without a row this does nothing.
  void change(std::string sentence);
  /// Nothing is waited for any more: the sentence stays, as a line.
  void end();

 private:
  void draw();

  boost::asio::steady_timer timer_;
  Console& console_;
  std::string sentence_;  ///< Empty: there is no row.
  Clock::time_point since_{};
};

}  // namespace dlaunch::launcher
