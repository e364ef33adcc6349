#pragma once

#include "runtime/base/os/socket.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// Finds the address at which a node is reached from here: connects to all of them and takes the
/// first in the published order that answers. Ends without a word when it is destroyed.
class Probe : public std::enable_shared_from_this<Probe> {
 public:
  /// The address as it was given ("host:port"). Where none answered in time it is the first one:
  /// connecting to that later gives a better error than we can.
  using Found = std::function<void(const std::string&)>;

  static std::shared_ptr<Probe> start(boost::asio::io_context& io,
                                      std::vector<std::string> addresses, Found found);

 private:
  using Tcp = boost::asio::ip::tcp;
  struct Try {
    Tcp::socket socket;
    bool failed = false;
    bool reached = false;
  };

  Probe(boost::asio::io_context& io, std::vector<std::string> addresses, Found found);
  void begin(std::size_t index);
  void judge(bool timed_out);

  std::vector<std::string> addresses_;
  std::vector<Try> tries_;
  boost::asio::steady_timer timer_;
  Found found_;
};

}  // namespace dlaunch::launcher
