#include "runtime/base/text/age_text.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace dlaunch {

std::string age_text(Clock::duration age) {
  const double seconds = std::chrono::duration<double>(age).count();
  char text[32];
  if (seconds < 0.0995) {
    std::snprintf(text, sizeof text, "%.0f ms", std::max(seconds, 0.0) * 1000);
  } else if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (seconds < 600) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.0f h", seconds / 3600);
  }
  return text;
}

}  // namespace dlaunch
