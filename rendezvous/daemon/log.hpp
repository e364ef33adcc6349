#pragma once

#include "rendezvous/service/service.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace dlaunch::rendezvous {

/// The names of levels and kinds of event in logs and pages; empty for Event::other.
std::string_view name_of(LogLine::Level level);
std::string_view name_of(LogLine::Event event);

/// Writes log lines. Never waits: while their reader does not read, lines are dropped, and counted
/// in the line that comes after. One thread.
class Log {
 public:
  enum class Form {
    text,  ///< With time and program, or in the journal's form where it reads.
    json,  ///< An object a line.
  };
  /// To `fd`. If that is the journal's, `journal` is the path of its socket, and a line's job,
  /// event, epoch and attempt go there as fields of their own; where nobody listens at it, lines go
  /// to `fd` with their priorities ("<6>...", sd-daemon(3)). Empty: `fd` is somebody else's.
  explicit Log(int fd, std::string journal = {}) : fd_(fd), journal_(std::move(journal)) {}

  void set_form(Form form) { form_ = form; }
  void set_least(LogLine::Level level) { least_ = level; }
  void write(const LogLine& line);
  void info(std::string sentence) {
    write({.level = LogLine::Level::info, .job = "", .sentence = std::move(sentence)});
  }
  void warning(std::string sentence) {
    write({.level = LogLine::Level::warning, .job = "", .sentence = std::move(sentence)});
  }
  void error(std::string sentence) {
    write({.level = LogLine::Level::error, .job = "", .sentence = std::move(sentence)});
  }
  /// Lines dropped since the start because nobody read.
  std::uint64_t lost() const { return lost_; }

 private:
  enum class Sent { yes, full, nobody };

  bool put(const LogLine& line);
  Sent put_to_journal(const LogLine& line);
  bool write_to_fd(std::string_view text) const;

  int fd_;
  std::string journal_;
  unique_fd journal_socket_;
  Form form_ = Form::text;
  LogLine::Level least_ = LogLine::Level::info;
  std::uint64_t dropped_ = 0;  ///< Lines dropped since the last line that was written.
  std::uint64_t lost_ = 0;
};

/// The path at which the journal listens for lines with fields.
constexpr std::string_view journal_path = "/run/systemd/journal/socket";

/// Whether `fd` is what JOURNAL_STREAM ("device:inode") names, so that priorities are understood.
bool is_journal(int fd, std::string_view journal_stream);

}  // namespace dlaunch::rendezvous
