#pragma once

#include "tests/process/job.hpp"

#include <cstdlib>
#include <string>
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
    for (const char* file : {"/flight.json", "/flight.json.1", "/page.html"})
      ::unlink((path + file).c_str());
    ::rmdir((path + "/dlaunch").c_str());
    ::rmdir(path.c_str());
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
