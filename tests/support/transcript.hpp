#pragma once

#include <dlaunch/error.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

/// Replays the transcripts of a pure core, tests/scenario/FOLDER/*.txt: a line "config ..." begins
/// a story, a line "t=MS event -> effects" is a step of it. A core that knows no time has no
/// "t=MS".
namespace dlaunch::transcript {

using Words = std::vector<std::string>;

inline Clock::time_point at_ms(long ms) { return Clock::time_point(std::chrono::milliseconds(ms)); }
inline long ms_of(Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
}

inline Words split(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// "spawn 0; timer 500", by a visitor that prints one effect.
template <class Print>
std::string print(const auto& effects) {
  std::string text;
  for (const auto& effect : effects) {
    text += (text.empty() ? "" : "; ") + std::visit(Print{}, effect);
  }
  return text.empty() ? "none" : text;
}

using Begin = std::function<void(const Words& config)>;
using Step = std::function<std::string(const Words& event, Clock::time_point now)>;

/// All files of the folder, of which there are so many at least.
inline void replay(const std::string& folder, int files_least, const Begin& begin,
                   const Step& step) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(DLAUNCH_SOURCE_DIR "/tests/scenario/" + folder)) {
    std::ifstream in(file.path());
    ++files;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      if (line.empty() || line.starts_with("#")) continue;
      const std::string where = file.path().filename().string() + ":" + std::to_string(number);
      const auto arrow = line.find(" -> ");
      Words words = split(line.substr(0, arrow));
      if (words.at(0) == "config") {
        begin(words);
        continue;
      }
      REQUIRE_MESSAGE(arrow != std::string::npos, where << ": expected 'event -> effects'");
      Clock::time_point now{};
      if (words.at(0).starts_with("t=")) {
        now = at_ms(std::stol(words[0].substr(2)));
        words.erase(words.begin());
      }
      const std::string got = step(words, now);
      CHECK_MESSAGE(got == line.substr(arrow + 4), where << ": " << line << "\n  got " << got);
    }
  }
  CHECK(files >= files_least);
}

}  // namespace dlaunch::transcript
