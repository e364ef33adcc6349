#pragma once

#include "launcher/output/output.hpp"
#include "launcher/output/voice.hpp"

#include <functional>
#include <memory>
#include <string>

namespace dlaunch::launcher {

/// The launcher's own voice: its lines go among the workers' lines, in order; or straight to stderr
/// if its only worker has our streams.
class Console {
 public:
  Console(std::unique_ptr<Output> output, Voice voice)
      : output_(std::move(output)), voice_(std::move(voice)) {}

  /// Null where the only worker has our streams.
  Output* output() const { return output_.get(); }
  /// Whether some output was lost on its way.
  bool incomplete() const { return output_ && output_->incomplete(); }
  /// "stdout" where nobody reads that stream any more, or "stderr"; else empty.
  std::string reader_gone() const;
  /// The job's id has become known, or another one.
  void know_job(const std::string& job) { voice_.job = job; }
  const Voice& voice() const { return voice_; }

  void say(const Remark& remark);
  void say(const std::string& sentence, Level level = Level::info) { say(Remark{level, sentence}); }
  /// A sentence can be shown in a row of a terminal.
  bool shows_rows() const {
    return output_ && output_->shows_rows() && !voice_.json && !voice_.quiet;
  }
  /// Replaces the row's text; `end_row` leaves the last one as a line.
  void show_row(const std::string& sentence) { output_->show_row("dlaunch: " + sentence); }
  void end_row() { output_->show_row({}); }
  /// Lines, each ended, as they are.
  void say_lines(const std::string& text);
  /// Calls `drained` when all that the workers wrote is out: on this thread, or another.
  void drain(std::function<void()> drained);

 private:
  std::unique_ptr<Output> output_;
  Voice voice_;
};

}  // namespace dlaunch::launcher
