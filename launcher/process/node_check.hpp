#pragma once

#include "runtime/base/os/exit_status.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

namespace dlaunch::launcher {

/// A command, run once by /bin/sh, that says with its exit code whether this node is fit for work.
/// What it writes is kept for the reason. Not thread-safe; ends the command when it is destroyed.
class NodeCheck {
 public:
  struct Setting {
    std::string command;
    Clock::duration limit{};  ///< Then it is killed, and has failed.
    sigset_t mask{};          ///< The signals it starts with blocked.
  };
  /// Called once, from the loop: nothing where it went well, else "exited with 3: no GPU".
  using Done = std::function<void(std::optional<std::string> problem)>;

  NodeCheck(boost::asio::io_context& io, const Setting& setting, Done done);
  ~NodeCheck();
  NodeCheck(const NodeCheck&) = delete;
  NodeCheck& operator=(const NodeCheck&) = delete;

  /// -1 where it could not be started, and when it has ended.
  pid_t pid() const { return pid_; }
  /// Its process was reaped, which the caller does.
  void ended(const ExitStatus& status);

 private:
  void read_when_ready();
  void read_all();
  void finish(std::optional<std::string> problem);
  void kill();
  std::string last_words() const;

  Done done_;
  pid_t pid_ = -1;
  boost::asio::posix::stream_descriptor output_;
  boost::asio::steady_timer timer_;
  std::string written_;                                               ///< The end of it.
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< For what is queued.
};

}  // namespace dlaunch::launcher
