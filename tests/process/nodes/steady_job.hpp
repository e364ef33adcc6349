#pragma once

#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {

/// Two agents with a rank each, which writes to the store and reads it all the time.
struct SteadyJob {
  SteadyJob(const std::string& endpoint, const std::string& end_file,
            const std::string& role = "auto")
      : a(line(endpoint, "a", end_file, role)), b(line(endpoint, "b", end_file, role)) {
    require("tick 3\n");
  }
  static std::vector<std::string> options(const std::string& id) {
    return {"--nnodes", "2", "--node-id", id, "--node-rank", id == "a" ? "0" : "1"};
  }
  static std::vector<std::string> line(const std::string& endpoint, const std::string& id,
                                       const std::string& end_file, const std::string& role) {
    std::vector<std::string> all = {"--rdzv-endpoint", endpoint, "--rdzv-id", "j",
                                    "--rdzv-role",     role};
    std::ranges::copy(options(id), std::back_inserter(all));
    std::ranges::copy(program(end_file), std::back_inserter(all));
    return all;
  }
  static std::vector<std::string> program(const std::string& end_file) {
    return {DLAUNCH_BINARY_DIR "/tests/steady", end_file, "20"};
  }
  void require(const std::string& words) {
    REQUIRE_MESSAGE(a.saw("rank 0 " + words), a.err());
    REQUIRE_MESSAGE(b.saw("rank 1 " + words), b.err());
  }
  /// Each rank is answered what it asks next.
  void require_progress() {
    for (Job* job : {&a, &b}) {
      const std::string rank = job == &a ? "rank 0 " : "rank 1 ";
      job->catch_up();
      const auto at = job->out().rfind(rank + "asks ");
      REQUIRE(at != std::string::npos);
      const int asked = std::atoi(job->out().c_str() + at + rank.size() + 5);
      REQUIRE_MESSAGE(job->saw(rank + "stored " + std::to_string(asked + 1) + "\n"), job->err());
    }
  }
  void end(const std::string& end_file) {
    std::ofstream(end_file) << "end";
    for (Job* job : {&a, &b}) {
      CHECK_MESSAGE(job->wait().code == 0, job->err());
      CHECK(testing::contains(job->out(), " ends"));
      CHECK_FALSE(testing::contains(job->out(), "LOST"));
      CHECK_FALSE(testing::contains(job->err(), "lost rank"));
    }
  }
  Job a, b;
};

}  // namespace dlaunch::process_test
