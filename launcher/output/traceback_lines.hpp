#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// Finds the lines of one stream with which Python begins to tell of an exception, however the
/// bytes come. Before the words there may be blanks, and the marks of PyTorch ("[rank3]: ") and of
/// exception groups; in a line that '\r' has gone back over, such as a progress bar's, any text.
/// Pure; not thread-safe.
class TracebackLines {
 public:
  /// Takes bytes; true if they complete the words of such a line.
  bool feed(std::string_view bytes);

 private:
  void skip(std::string_view text);
  bool may_begin() const;

  std::string lead_;       ///< The begin of the current line, up to the words.
  bool returned_ = false;  ///< The line began with '\r'.
  std::size_t matched_ = 0;
};

}  // namespace dlaunch::launcher
