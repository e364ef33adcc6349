#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// Finds the lines of one stream with which Python begins to tell of an exception, however the
/// bytes come. Blanks may stand before the words, and the marks of PyTorch ("[rank3]: ") and of
/// exception groups; in a line that '\r' has gone back over, as a progress bar's, anything may.
/// Pure; not thread-safe.
class TracebackLines {
 public:
  /// True where such a line's words became whole with these bytes.
  bool feed(std::string_view bytes);

 private:
  void skip(std::string_view text);
  bool may_begin() const;

  std::string lead_;       ///< The begin of the current line, up to the words.
  bool returned_ = false;  ///< The line began with '\r'.
  std::size_t matched_ = 0;
};

}  // namespace dlaunch::launcher
