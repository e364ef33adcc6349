#pragma once

#include "runtime/base/text/wall_clock.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::launcher {

/// How much a line of the launcher's own matters.
enum class Level {
  info,     ///< Progress of the job.
  warning,  ///< Worth a look; or the summary tells it again.
  error,    ///< It ends the job or loses output, and only this line tells it.
};

/// Something that the launcher says of itself.
struct Remark {
  Level level = Level::info;
  std::string sentence;
  std::string event = {};  ///< "failed"; empty for most.
  std::optional<int> rank = std::nullopt;
  std::vector<std::pair<std::string, std::string>> details = {};  ///< In JSON only.
};

/// How the launcher writes its own lines: --quiet and --log-format. Pure, a plain value.
struct Voice {
  bool json = false;
  bool quiet = false;  ///< Errors only.
  std::string job = {};
  std::string node = {};

  /// The line, without its end: "dlaunch: <sentence>", or a JSON object; nullopt where it is not
  /// to be said.
  std::optional<std::string> line(const Remark& remark, WallClock::time_point now) const;
};

}  // namespace dlaunch::launcher
