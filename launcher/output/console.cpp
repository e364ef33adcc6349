#include "launcher/output/console.hpp"

#include <utility>

#include <poll.h>
#include <unistd.h>

namespace dlaunch::launcher {

namespace {

/// A pipe without a reader says so. The only worker writes to it itself, so no write of ours fails.
bool has_no_reader(int fd) {
  pollfd pipe{fd, 0, 0};
  return ::poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0;
}

}  // namespace

std::string Console::reader_gone() const {
  const auto is_gone = [this](Stream stream, int fd) {
    return output_ ? output_->is_reader_gone(stream) : has_no_reader(fd);
  };
  if (is_gone(Stream::out, STDOUT_FILENO)) return "stdout";
  return is_gone(Stream::err, STDERR_FILENO) ? "stderr" : "";
}

void Console::say(const Remark& remark) {
  if (const auto line = voice_.line(remark, WallClock::now())) say_lines(*line + "\n");
}

void Console::say_lines(const std::string& text) {
  if (text.empty()) return;
  if (output_) return output_->say(text.substr(0, text.size() - 1));
  // If stderr is gone, there is nobody left to tell.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void Console::drain(std::function<void()> drained) {
  if (output_) return output_->drain(std::move(drained));
  drained();
}

}  // namespace dlaunch::launcher
