#pragma once

#include "launcher/pmi/core/program.hpp"

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

namespace dlaunch::launcher {

/// Finds ranks that have loaded an MPI although their program's file did not show it: dlaunch
/// offered them nothing, so each of them is a world of its own. One thread: that of `io`.
class UnservedMpi {
 public:
  UnservedMpi(boost::asio::io_context& io, std::function<void(const std::string&)> say)
      : say_(std::move(say)), timer_(io) {}

  /// An attempt has begun. `pids` are by local rank; 0 for a rank that was not started.
  void begin(const std::vector<pid_t>& pids, int first_rank);
  /// The attempt is over.
  void stop() { timer_.cancel(); }

 private:
  void look_after(std::size_t look);
  void look();

  const std::function<void(const std::string&)> say_;
  boost::asio::steady_timer timer_;
  std::vector<pid_t> pids_;
  int first_rank_ = 0;
  bool told_ = false;  ///< Said once for the whole job.
};

}  // namespace dlaunch::launcher
