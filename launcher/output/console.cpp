#include "launcher/output/console.hpp"

#include <utility>

#include <unistd.h>

namespace dlaunch::launcher {

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
