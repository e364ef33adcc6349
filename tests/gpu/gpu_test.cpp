// CUDA buffers on a real GPU: gpu_test starts itself, `dlaunch bench` and an example under dlaunch,
// as ranks that may share one GPU. Exit code 77, and a sentence, where there is none.
#include "tests/gpu/scenarios.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::gpu_test;

constexpr int skipped = 77;
constexpr double loss_seconds_max = 2;

/// One rank of a job that this test started; "lose": its last rank dies.
int run_rank(const Driver& driver, std::string_view what) {
  const World world = World::init();
  const int device = world.rank() % driver.devices();
  void* context = nullptr;
  if (driver.retain(&context, device) != 0 || driver.set_current(context) != 0) {
    std::printf("FAILED: device %d cannot be used\n", device);
    return 1;
  }
  Communicator comm(world);
  const Rank rank{driver, comm, device};
  const char* now = "lose a rank";
  try {
    if (what == "lose") {
      const double knew = lose_the_last(rank, [] { ::raise(SIGKILL); });
      std::printf("ok: a lost rank was known after %.2f s, and survived\n", knew);
      return knew < loss_seconds_max ? 0 : 1;
    }
    for (const Scenario& scenario : scenarios()) {
      now = scenario.name;
      scenario.run(rank);
      if (world.rank() == 0) std::printf("ok: %s\n", now);
    }
    return 0;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s on rank %d: %s\n", now, world.rank(), error.what());
    return 1;
  }
}

struct Result {
  int code = -1;
  std::string output;

  int lines_with(std::string_view text) const {
    int found = 0;
    for (auto at = output.find(text); at != output.npos; at = output.find(text, at + 1)) ++found;
    return found;
  }
};

Result run_command(const std::string& command) {
  Result result;
  std::fflush(nullptr);
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char some[4096];
  while (const auto got = std::fread(some, 1, sizeof some, pipe)) result.output.append(some, got);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

int devices = 0;

/// NCCL takes ranks of one host on one GPU for a mistake, unless each says it is another host.
std::string job(int ranks, const std::string& program, const std::string& more = "") {
  const std::string apart = devices < ranks ? "NCCL_HOSTID=$RANK " : "";
  return DLAUNCH_BINARY_DIR "/bin/dlaunch --standalone --nproc-per-node " + std::to_string(ranks) +
         " " + more + " -- sh -c '" + apart + "exec " + program + "'";
}

int failures = 0;

Result expect_success(const char* what, const std::string& command) {
  const Result result = run_command(command);
  std::printf("%s: %s\n%s\n", what, result.code == 0 ? "ok" : "FAILED", result.output.c_str());
  if (result.code != 0) ++failures;
  return result;
}

void check_loss(const std::string& self) {
  const Result result = run_command(job(3, self + " lose", "--on-failure continue"));
  const bool fine = result.lines_with("and survived") == 2 && result.lines_with("FAILED:") == 0;
  std::printf("a rank that is killed: %s\n%s\n", fine ? "ok" : "FAILED", result.output.c_str());
  if (!fine) ++failures;
}

int run_all(const std::string& self) {
  expect_success("two ranks", job(2, self + " scenarios"));
  expect_success("three ranks", job(3, self + " scenarios"));
  check_loss(self);
  expect_success("dlaunch bench", job(2, DLAUNCH_BINARY_DIR
                                      "/bin/dlaunch-bench --device cuda --sizes 4:4M:x32 --check"));
  expect_success("gradient_cuda", job(2, DLAUNCH_BINARY_DIR "/bin/examples/gradient_cuda 64 20"));
  expect_success("device_call", job(2, DLAUNCH_BINARY_DIR "/bin/../bench/device_call"));
  if (run_command("compute-sanitizer --version").code == 0) {
    expect_success("compute-sanitizer",
                   job(2, "compute-sanitizer --error-exitcode 9 " + self + " scenarios"));
  } else {
    std::printf("compute-sanitizer: skipped, it is not installed\n");
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  Driver driver;
  if (driver.load()) devices = driver.devices();
  if (devices == 0) {
    std::printf("skipped: there is no NVIDIA GPU here\n");
    return skipped;
  }
  return argc > 1 ? run_rank(driver, argv[1]) : run_all(argv[0]);
} catch (const std::exception& error) {
  std::printf("FAILED: %s\n", error.what());
  return 1;
}
