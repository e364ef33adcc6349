#pragma once

#include "rendezvous/service/service.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace dlaunch::rendezvous {

/// Writes log lines to a descriptor. For the journal ("<6>..." as sd-daemon(3) has it, time and
/// program added by it), else with time and program. Never waits: while the descriptor's reader
/// does not read, lines are dropped, and counted in the line that comes after. One thread.
class Log {
 public:
  enum class Form { journal, plain };

  Log(int fd, Form form) : fd_(fd), form_(form) {}

  void set_least(LogLine::Level level) { least_ = level; }
  void write(const LogLine& line);
  void info(std::string sentence) { write({LogLine::Level::info, "", std::move(sentence)}); }
  void warning(std::string sentence) { write({LogLine::Level::warning, "", std::move(sentence)}); }
  void error(std::string sentence) { write({LogLine::Level::error, "", std::move(sentence)}); }

 private:
  bool put(const LogLine& line);

  int fd_;
  Form form_;
  LogLine::Level least_ = LogLine::Level::info;
  std::uint64_t dropped_ = 0;
};

/// Whether `fd` is what JOURNAL_STREAM ("device:inode") names, so that priorities are understood.
bool is_journal(int fd, std::string_view journal_stream);

}  // namespace dlaunch::rendezvous
