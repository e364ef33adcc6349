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
/// Its last output is part of the reason. Not thread-safe; ends the command when it is destroyed.
class NodeCheck {
 public:
  struct Setting {
    std::string command;
    Clock::duration limit{};  ///< The time after which it is killed, and has failed.
    sigset_t mask{};          ///< The signals it starts with blocked.
  };
  /// Called once, from the loop: nullopt for success, else the problem, as "exited with 3: no GPU".
  using Done = std::function<void(std::optional<std::string> problem)>;

  NodeCheck(boost::asio::io_context& io, const Setting& setting, Done done);
  ~NodeCheck();
  NodeCheck(const NodeCheck&) = delete;
  NodeCheck& operator=(const NodeCheck&) = delete;

  /// -1 if it could not be started, or has ended.
  pid_t pid() const { return pid_; }
  /// The caller has reaped its process.
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
  /// The last part of its output.
  std::string written_;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< For what is queued.
};

}  // namespace dlaunch::launcher
