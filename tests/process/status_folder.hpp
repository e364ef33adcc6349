#pragma once

#include "tests/process/job.hpp"
#include "tests/support/temporary_folder.hpp"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {

/// A folder for status sockets and files, gone with the test.
struct Folder {
  Job::Environment environment() const { return {{"XDG_RUNTIME_DIR", path}}; }

  testing::TemporaryFolder own;
  std::string path = own.path().string();
};

inline std::string status(const Folder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "status");
  Job asking(std::move(arguments), folder.environment());
  CHECK(asking.wait().code == 0);
  return asking.out();
}

}  // namespace dlaunch::process_test
