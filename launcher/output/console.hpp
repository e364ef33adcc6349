#pragma once

#include "launcher/output/output.hpp"

#include <functional>
#include <memory>
#include <string>

namespace dlaunch::launcher {

/// The launcher itself speaks here: among the workers' lines, in order; or straight to stderr, if
/// its only worker has our streams.
class Console {
 public:
  explicit Console(std::unique_ptr<Output> output) : output_(std::move(output)) {}

  /// Null where the only worker has our streams.
  Output* output() const { return output_.get(); }
  /// Some output did not get where it was to go.
  bool incomplete() const { return output_ && output_->incomplete(); }
  /// "dlaunch: <sentence>".
  void say(const std::string& sentence);
  /// Lines, each ended.
  void say_lines(const std::string& text);
  /// Calls `drained` when all that the workers wrote is out: on this thread, or another.
  void drain(std::function<void()> drained);

 private:
  std::unique_ptr<Output> output_;
};

}  // namespace dlaunch::launcher
