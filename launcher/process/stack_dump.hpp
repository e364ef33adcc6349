#pragma once

#include "launcher/output/output.hpp"
#include "runtime/base/os/exit_status.hpp"

#include <dlaunch/error.hpp>

#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

namespace dlaunch::launcher {

/// How many ranks `dlaunch stack` examines at a time: each tool reads the symbols of all libraries.
std::size_t stacks_at_once();

/// `dlaunch stack`, run by a launcher about its own ranks: into a file, or shortened onto stderr.
/// It asks the launcher for the ranks, whose loop goes on meanwhile. Not thread-safe; ends the
/// command when it is destroyed.
class StackDump {
 public:
  struct Setting {
    std::string job;
    int first_rank = 0, last_rank = 0;
    std::optional<std::string> file;  ///< Without it, to stderr.
    Output* output = nullptr;         ///< Takes what goes to stderr; null: that is our own.
    Clock::duration limit{};          ///< The time after which it is killed.
    sigset_t mask{};                  ///< The signals it starts with blocked.
  };
  /// Called once, from the loop: nullopt for success, else the problem, as "did not end within 15
  /// s".
  using Done = std::function<void(std::optional<std::string> problem)>;

  StackDump(boost::asio::io_context& io, const Setting& setting, Done done);
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  /// -1 if it could not be started, or has ended.
  pid_t pid() const { return pid_; }
  /// The caller has reaped its process.
  void ended(const ExitStatus& status);

 private:
  int start(const Setting& setting);
  void finish(std::optional<std::string> problem);
  void kill();

  boost::asio::io_context& io_;
  Done done_;
  pid_t pid_ = -1;
  boost::asio::steady_timer timer_;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);  ///< For what is queued.
};

}  // namespace dlaunch::launcher
