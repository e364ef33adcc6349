#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::launcher {

/// Leaves out of one host's stderr what another host's launcher has already said word for word: of
/// a job, all hosts say most things. Workers' lines, whose prefix names the rank, are never held.
/// Pure; not thread-safe.
class ToldLines {
 public:
  /// How often each line has been shown: the filters of all hosts share it.
  using Shown = std::map<std::string, int>;
  /// Once so many lines are known, others are shown each time; longer ones always are.
  static constexpr std::size_t lines_max = 1024;
  static constexpr std::size_t line_bytes_max = 4096;

  explicit ToldLines(std::shared_ptr<Shown> shown) : shown_(std::move(shown)) {}

  /// Takes what the host wrote; what of it is to be shown. Waits for the end of a line that may be
  /// its launcher's.
  std::string feed(std::string_view bytes);
  /// The stream has ended: the beginning of a line without end.
  std::string end() { return std::exchange(held_, {}); }

 private:
  bool is_news(const std::string& line);

  std::shared_ptr<Shown> shown_;
  std::map<std::string, int> own_;  ///< How often this host has said each line.
  std::string held_;                ///< The beginning of a line that may be the launcher's.
  bool passes_ = false;             ///< The line that has begun is not.
};

}  // namespace dlaunch::launcher
