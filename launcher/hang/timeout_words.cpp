#include "launcher/hang/timeout_words.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace dlaunch::launcher {

bool tells_timeout(const std::vector<std::string>& lines) {
  // Words of gloo, of several versions of PyTorch's stores, of NCCL's watchdog, and of Python's own
  // exception.
  constexpr std::array<std::string_view, 5> words = {"Timed out waiting", "imed out after",
                                                     "wait timeout after", "Socket Timeout",
                                                     "operation timeout:"};
  return std::ranges::any_of(lines, [&](const std::string& line) {
    return std::ranges::any_of(words, [&](auto word) { return line.find(word) != line.npos; });
  });
}

}  // namespace dlaunch::launcher
