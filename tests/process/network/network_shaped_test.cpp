// Collectives between machines whose lines are slow, and lose what comes in larger bursts than they
// take. That results are right is asserted; how much of the line was used is printed.
#include "tests/process/job.hpp"
#include "tests/process/network/network.hpp"
#include "tests/process/network/network_job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <cstdio>
#include <memory>
#include <stdexcept>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace dlaunch::process_test {
namespace {

using testing::is_full;

using Strings = std::vector<std::string>;

/// Starts `program` on all machines, one rank on each; returns what rank 0 wrote when all are done.
std::string run_everywhere(const Network& network, int machines, const Strings& options,
                           const Strings& program) {
  std::vector<std::unique_ptr<Job>> jobs;
  for (int machine = 0; machine < machines; ++machine) {
    Strings line{dlaunch_path()};
    const auto add = [&](const Strings& words) {
      line.insert(line.end(), words.begin(), words.end());
    };
    add(options);
    add({"--nnodes", std::to_string(machines), "--nproc-per-node", "1", "--node-rank",
         std::to_string(machine), "--rdzv-endpoint", network.address(0) + ":29400"});
    add(program);
    line = network.on(machine, line);
    const std::string first = line.front();
    line.erase(line.begin());
    jobs.push_back(std::make_unique<Job>(std::move(line), Job::Environment{}, first));
  }
  std::string said;
  bool all_right = true;
  for (auto& job : jobs) {
    all_right = job->wait().code == 0 && all_right;
    said += job->out() + job->err();
  }
  CHECK_MESSAGE(all_right, said);
  return jobs[0]->out();
}

/// Measures every collective, and compares every element of every result.
void measure(int machines, const std::string& rate, double rate_gb_s, const std::string& burst,
             const std::string& sizes) {
  Network network(machines);
  try {
    for (int machine = 0; machine < machines; ++machine) network.shape(machine, rate, burst);
  } catch (const std::runtime_error& error) {
    return testing::skipped(std::string("no line can be made slow here: ") + error.what());
  }
  // Two launches, each of which ends in the time that a launcher is waited for.
  for (const char* ops :
       {"barrier,broadcast,reduce,all_reduce", "all_gather,reduce_scatter,all_to_all,ping_pong"}) {
    const std::string out =
        run_everywhere(network, machines, {"bench"},
                       {"--check", "--sizes", sizes, "--warmup", "0", "--iters", "1",
                        "--repetitions", is_full() ? "5" : "2", "--ops", ops, "--json", "-"});
    const auto report = nlohmann::json::parse(out, nullptr, false);
    REQUIRE_MESSAGE(!report.is_discarded(), out);
    CHECK(report["rows"].size() > 8);
    for (const auto& row : report["rows"]) {
      INFO(row.dump());
      CHECK(row["wrong"] == 0);
      if (row["op"] == "barrier") continue;
      std::printf(
          "  %d machines at %s, burst %-5s %-15s %8lld bytes %9.0f us, %3.0f %% of the line\n",
          machines, rate.c_str(), burst.c_str(), row["op"].get<std::string>().c_str(),
          row["size"].get<long long>(), row["time_us"].get<double>(),
          100 * row["busbw_gb_s"].get<double>() / rate_gb_s);
    }
  }
  std::fflush(stdout);
}

}  // namespace

// As much as a line takes in a few seconds: the machine may have other things to do.
TEST_CASE("collectives over slow lines are right") {
  const std::string sizes = is_full() ? "4,64K,1M" : "4,64K,256K";
  SUBCASE("two machines") { measure(2, "100mbit", 0.0125, "32kb", sizes); }
  SUBCASE("four machines") { measure(4, "100mbit", 0.0125, "32kb", sizes); }
}

TEST_CASE("collectives are right over lines that take small bursts only, and lose the rest") {
  measure(3, "20mbit", 0.0025, "4kb", is_full() ? "4,1K,16K,256K" : "4,16K,64K");
}

TEST_CASE("every communicator made from one world reaches the other machines") {
  const Network network(2);
  const std::string out =
      run_everywhere(network, 2, {}, {std::string(DLAUNCH_BINARY_DIR) + "/tests/meshes", "6"});
  CHECK_MESSAGE(out.find("sums 1 1 1 1 1 1\n") != std::string::npos, out);
}

}  // namespace dlaunch::process_test
