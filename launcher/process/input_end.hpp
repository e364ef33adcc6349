#pragma once

#include <array>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace dlaunch::launcher {

/// Waits for the end of our standard input, when nobody holds its other end any more. Data before
/// the end is dropped. It must outlive the loop's last run, and no child of ours may have the
/// input.
class InputEnd {
 public:
  /// `ended` is called once, from the loop; also where the input cannot be waited for, as a file.
  InputEnd(boost::asio::io_context& io, std::function<void()> ended);

 private:
  void read();

  std::function<void()> ended_;
  boost::asio::posix::stream_descriptor input_;
  std::array<char, 4096> dropped_{};
};

}  // namespace dlaunch::launcher
