// `dlaunch bench --device cuda` as people run it, with test doubles in place of the driver and
// NCCL, or with neither.
#include "tests/process/job.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace dlaunch::process_test {
namespace {

const Job::Environment doubles = {{"DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE},
                                  {"DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE}};

/// The double's ranks find each other within a process: one rank alone comes up.
std::vector<std::string> bench(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench",
                                    "--standalone",
                                    "--nproc-per-node=1",
                                    "--device",
                                    "cuda",
                                    "--sizes",
                                    "4,4K",
                                    "--iters",
                                    "2",
                                    "--repetitions",
                                    "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("bench --device cuda: the table, what the host takes, and nothing wrong") {
  for (const char* buffers : {"warm", "rotating", "registered"}) {
    CAPTURE(buffers);
    Job job(bench({"--check", "--buffers", buffers}), doubles);
    CHECK(job.wait().code == 0);
    CAPTURE(job.out());
    CAPTURE(job.err());
    std::istringstream lines(job.out());
    int rows = 0;
    for (std::string line; std::getline(lines, line);) {
      if (rows == 0 && line.starts_with("# dlaunch")) {
        CHECK(line.find(", NCCL 2.29.7 (") != std::string::npos);
      }
      if (line.starts_with("#")) continue;
      std::istringstream words(line);
      std::vector<std::string> columns;
      for (std::string word; words >> word;) columns.push_back(word);
      REQUIRE(columns.size() == 14);
      CHECK(columns[9] == "0");           // #wrong
      CHECK(std::stod(columns[13]) > 0);  // host
      ++rows;
    }
    CHECK(rows == 2 * 8);  // Neither barriers nor messages.
    CHECK(job.out().find("host\n") != std::string::npos);
  }
}

TEST_CASE("bench --device cuda --json: where the buffers were") {
  Job job(bench({"--json", "-", "--ops", "all_reduce", "--started"}), doubles);
  CHECK(job.wait().code == 0);
  const auto all = nlohmann::json::parse(job.out());
  CHECK(all["device"] == "cuda");
  CHECK(all["rows"].size() == 2);
  CHECK(all["rows"][0]["host_us"].get<double>() > 0);
}

TEST_CASE("bench --device cuda where the driver or NCCL is not there") {
  Job no_driver(bench({}), {{"DLAUNCH_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}});
  CHECK(no_driver.wait().code == 64);
  CHECK(count(no_driver.err(), "dlaunch bench: --device cuda: on ") >= 1);
  CHECK(
      no_driver.err().find("need the NVIDIA driver, and /nowhere/libcuda.so.1 cannot be loaded") !=
      std::string::npos);
  Job no_nccl(bench({}), {{"DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE},
                          {"DLAUNCH_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}});
  CHECK(no_nccl.wait().code == 64);
  CHECK(no_nccl.err().find("need NCCL, and /nowhere/libnccl.so.2 cannot be loaded") !=
        std::string::npos);
}

}  // namespace dlaunch::process_test
