#pragma once

#include "tests/process/job.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

namespace dlaunch::process_test {

/// A folder for status sockets and files, gone with the test.
struct Folder {
  Folder() {
    std::string name = "/tmp/dlaunch-stuck-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Job::Environment environment() const { return {{"XDG_RUNTIME_DIR", path}}; }
  std::string path;
};

inline std::string status(const Folder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "status");
  Job asking(std::move(arguments), folder.environment());
  CHECK(asking.wait().code == 0);
  return asking.out();
}

}  // namespace dlaunch::process_test
