#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <array>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace dlaunch::launcher {

/// The process that started this one.
struct Parent {
  unique_fd process;  ///< Empty where it cannot be seen, as from inside a container.
  bool gone = false;  ///< It ended before it could be looked at.

  /// To be asked first of all: a parent that ends before is not noticed.
  static Parent at_start();
};

/// Waits for the end of our standard input, when nobody holds its other end any more, or of our
/// parent, whose other children may hold it longer. Data before the end is dropped. The input stays
/// as it is, non-blocking or not. It must outlive the loop's last run, and no child of ours may
/// have the input.
class InputEnd {
 public:
  /// `ended` is called once, from the loop; also where the input cannot be waited for, as a file.
  InputEnd(boost::asio::io_context& io, const Parent& parent, std::function<void()> ended);

 private:
  void wait();
  bool has_ended();

  std::function<void()> ended_;
  unique_fd input_;
  /// An epoll set of both. Asio makes what it waits for non-blocking, for all who share it.
  boost::asio::posix::stream_descriptor either_;
  std::array<char, 4096> dropped_{};
};

}  // namespace dlaunch::launcher
