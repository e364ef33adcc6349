#pragma once

#include "runtime/base/os/random.hpp"
#include "tests/process/by_hand/by_hand_process.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/free_port.hpp"

#include <filesystem>
#include <map>
#include <string>

/// Starts by_hand_rank as a person would, in one of several terminals.

using Variables = std::map<std::string, std::string>;

inline const std::string program = DLAUNCH_BINARY_DIR "/tests/by_hand_rank";
inline constexpr const char* plenty = "30000";
inline constexpr const char* brief = "300";  // If the outcome does not depend on who is faster.

inline Process start(const std::string& url, const Variables& variables, const std::string& action,
                     const std::string& timeout = plenty) {
  return Process({program, url, timeout, action}, variables);
}

using dlaunch::testing::contains;
using dlaunch::testing::free_port;

inline Variables four(int port, int rank, int size) {
  return {{"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)}};
}

/// A path in the temporary folder, removed at the end.
struct MeetingPath {
  std::string path =
      (std::filesystem::temp_directory_path() / ("meet-" + dlaunch::random_hex(32))).string();
  std::string url(int rank, int size) const {
    return "file://" + path + "?rank=" + std::to_string(rank) +
           "&world_size=" + std::to_string(size);
  }
  ~MeetingPath() { std::filesystem::remove(path); }
};
