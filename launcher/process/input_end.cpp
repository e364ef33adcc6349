#include "launcher/process/input_end.hpp"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::launcher {

InputEnd::InputEnd(boost::asio::io_context& io, std::function<void()> ended)
    : ended_(std::move(ended)), input_(io) {
  const int input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  boost::system::error_code error;
  if (input >= 0) input_.assign(input, error);
  if (input_.is_open()) {
    read();
  } else {
    if (input >= 0) ::close(input);
    boost::asio::post(io, ended_);
  }
}

void InputEnd::read() {
  // Reads only after waiting, so that the input, which others may share, need not be non-blocking.
  input_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](auto error) {
    if (error == boost::asio::error::operation_aborted) return;
    const auto size = error ? 0 : ::read(input_.native_handle(), dropped_.data(), dropped_.size());
    if (size <= 0) return ended_();
    read();
  });
}

}  // namespace dlaunch::launcher
