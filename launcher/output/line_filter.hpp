#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// Picks the lines of one stream that contain any of some words: --duplicate-stdout-filters and
/// its sibling. Pure; not thread-safe. As for torchrun a line ends at '\n' or '\r', so each state
/// of a progress bar is one, and no word spans two.
class LineFilter {
 public:
  /// A longer line is judged and written in pieces.
  static constexpr std::size_t line_bytes_max = 64u << 10;

  /// `prefix` goes before each line that is picked. Without words nothing is.
  LineFilter(std::vector<std::string> words, std::string prefix)
      : words_(std::move(words)), prefix_(std::move(prefix)) {}

  /// Takes what the stream wrote; the lines picked, each with prefix and '\n'.
  std::string feed(std::string_view bytes);
  /// The stream has ended: its last line, where that has no end.
  std::string end();

 private:
  void judge(std::string_view line, std::string& out) const;

  std::vector<std::string> words_;
  std::string prefix_;
  std::string partial_;  ///< Waits for the end of its line.
};

}  // namespace dlaunch::launcher
