// CUDA buffers on a real GPU: gpu_test starts itself, `dlaunch bench` and an example under dlaunch,
// as ranks that may share one GPU; all of the jobs that --list names, or those it is given. Exit
// code 77, and a sentence, where there is no GPU or no NCCL.
#include "tests/gpu/command.hpp"
#include "tests/gpu/scenarios.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::gpu_test;

constexpr int exit_skipped = 77;
constexpr int exit_usage = 64;
constexpr double loss_seconds_max = 2;
constexpr int loss_tries_max = 3;
constexpr std::chrono::seconds limit{120};
constexpr std::chrono::seconds sanitizer_limit{300};

/// One rank of a job that this test started.
int run_rank(const Driver& driver, std::string_view what) {
  const World world = World::init();
  const int device = world.rank() % driver.devices();
  void* context = nullptr;
  if (driver.retain(&context, device) != 0 || driver.set_current(context) != 0) {
    std::printf("FAILED: device %d cannot be used\n", device);
    return 1;
  }
  Communicator comm(world);
  // A call that hangs says which it is before the job is ended.
  comm.set_timeout((what == "few-calls" ? sanitizer_limit : limit) / 2);
  const Rank rank{driver, world, comm, device};
  std::string now(what);
  try {
    if (what == "lose") {
      const double knew = lose_the_last(rank, [] { ::raise(SIGKILL); });
      std::printf("ok: a lost rank was known after %.2f s, and survived\n", knew);
      if (knew < loss_seconds_max) std::printf("ok: soon enough\n");
      return 0;
    }
    if (what == "leave-a-graph") {
      leave_a_graph(rank);
      return 0;
    }
    for (const Scenario& scenario : scenarios()) {
      if (world.size() < scenario.ranks_min) continue;
      if (what == "few-calls" && scenario.has_many_calls) continue;
      now = scenario.name;
      const auto begin = Clock::now();
      scenario.run(rank);
      const std::chrono::duration<double> took = Clock::now() - begin;
      if (world.rank() == 0) std::printf("ok: %s, %.2f s\n", scenario.name, took.count());
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s on rank %d: %s\n", now.c_str(), world.rank(), error.what());
    return 1;
  }
}

/// The commands of this build, wherever its folder lies now.
class Commands {
 public:
  explicit Commands(int devices)
      : devices_(devices),
        self_(std::filesystem::read_symlink("/proc/self/exe")),
        build_(self_.parent_path().parent_path()) {}

  std::string ranks_of_this(const std::string& what) const {
    return self_.string() + " --rank " + what;
  }
  std::string program(const char* path) const { return (build_ / path).string(); }
  /// A Python program of tests/gpu, which finds dlaunch's package beside it, and this library.
  std::string python(const char* script, const std::string& variables = "") const {
    const auto folder = build_ / "tests/gpu";
    return "env " + variables + " PYTHONPATH=" + folder.string() +
           " DLAUNCH_LIBRARY=" + (build_ / "lib/libdlaunch.so.0").string() + " python3 " +
           (folder / script).string();
  }
  /// NCCL takes ranks of one host on one GPU for a mistake, unless each says it is another host.
  std::string job(int ranks, const std::string& program, const std::string& more = "") const {
    const std::string apart = devices_ < ranks ? "NCCL_HOSTID=$RANK " : "";
    return "exec " + (build_ / "bin/dlaunch").string() + " --standalone --nproc-per-node " +
           std::to_string(ranks) + " " + more + " -- sh -c '" + apart + "exec " + program + "'";
  }

 private:
  const int devices_;
  const std::filesystem::path self_;
  const std::filesystem::path build_;
};

enum class Verdict { ok, failed, skipped };

Verdict succeeds(const std::string& command, std::chrono::seconds within = limit) {
  const CommandResult result = run_command(command, within);
  if (result.timed_out) {
    std::printf("it did not end within %d s\n", static_cast<int>(within.count()));
  }
  return result.ok() ? Verdict::ok : Verdict::failed;
}

/// That it survives is asked each time, that it is soon enough once: the host may be loaded.
Verdict survives_a_loss(const Commands& commands) {
  for (int i = 0; i < loss_tries_max; ++i) {
    const CommandResult result = run_command(
        commands.job(3, commands.ranks_of_this("lose"), "--on-failure continue"), limit);
    if (result.timed_out || result.lines_with("and survived") != 2) return Verdict::failed;
    if (result.lines_with("ok: soon enough") == 2) return Verdict::ok;
  }
  return Verdict::failed;
}

/// Finds the one that NVIDIA installs: on the PATH, or where CUDA is.
std::string find_sanitizer() {
  for (const char* name : {"compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"}) {
    if (run_command(std::string(name) + " --version", limit, false).ok()) return name;
  }
  return {};
}

/// NCCL asks for kinds of memory that there may not be: calls that fail are no finding.
Verdict passes_sanitizer(const Commands& commands) {
  const std::string sanitizer = find_sanitizer();
  if (sanitizer.empty()) {
    std::printf("compute-sanitizer is not installed\n");
    return Verdict::skipped;
  }
  return succeeds(commands.job(2, sanitizer + " --report-api-errors no --error-exitcode 9 " +
                                      commands.ranks_of_this("few-calls")),
                  sanitizer_limit);
}

Verdict by_python(const std::string& needs, const std::function<Verdict()>& run) {
  if (run_command("python3 -c '" + needs + "'", limit, false).ok()) return run();
  std::printf("python3 cannot do this: %s\n", needs.c_str());
  return Verdict::skipped;
}

constexpr const char* torch_needed = "import torch; assert torch.cuda.is_available()";

/// Rank 1 never comes: PyTorch gives up, and the block names the reason and the absent rank.
Verdict tells_why_it_timed_out(const Commands& commands) {
  const CommandResult result = run_command(
      commands.job(2,
                   commands.python("torch_ranks.py", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=1000") +
                       " timeout",
                   "--stack-on-timeout"),
      limit);
  const bool told = result.lines_with("c10::DistBackendError: Watchdog caught") == 1 &&
                    result.lines_with("\nrank 1 is ") == 1;
  return !result.timed_out && result.code != 0 && told ? Verdict::ok : Verdict::failed;
}

struct Job {
  const char* name;
  const char* what;
  std::function<Verdict(const Commands&)> run;
};

Job scenarios_of(const char* name, const char* what, int ranks) {
  return {name, what, [ranks](const Commands& commands) {
            return succeeds(commands.job(ranks, commands.ranks_of_this("scenarios")));
          }};
}

const std::vector<Job>& jobs() {
  static const std::vector<Job> all = {
      scenarios_of("one-rank", "every scenario, by a rank that is alone", 1),
      scenarios_of("two-ranks", "every scenario", 2),
      scenarios_of("three-ranks", "every scenario", 3),
      {"loss", "a rank that is killed is known within 2 s, and survived", survives_a_loss},
      {"leave-a-graph", "a communicator ends while a graph holds its calls",
       [](const Commands& commands) {
         return succeeds(commands.job(2, commands.ranks_of_this("leave-a-graph")));
       }},
      {"bench", "dlaunch bench --device cuda --check",
       [](const Commands& commands) {
         return succeeds(commands.job(
             2, commands.program("bin/dlaunch-bench") + " --device cuda --sizes 4:4M:x32 --check"));
       }},
      {"gradient_cuda", "the example",
       [](const Commands& commands) {
         return succeeds(
             commands.job(2, commands.program("bin/examples/gradient_cuda") + " 64 20"));
       }},
      {"device_call", "what a call costs the host, beside NCCL's own",
       [](const Commands& commands) {
         return succeeds(commands.job(2, commands.program("bench/device_call")));
       }},
      {"python", "dlaunch's calls on PyTorch's tensors, and CuPy's arrays",
       [](const Commands& commands) {
         return by_python(torch_needed, [&] {
           return succeeds(commands.job(2, commands.python("python_ranks.py")));
         });
       }},
      {"pytorch", "DistributedDataParallel by NCCL",
       [](const Commands& commands) {
         return by_python(torch_needed, [&] {
           return succeeds(commands.job(2, commands.python("torch_ranks.py") + " train"));
         });
       }},
      {"pytorch-hang", "a rank that never comes is named when PyTorch gives up",
       [](const Commands& commands) {
         return by_python(torch_needed, [&] { return tells_why_it_timed_out(commands); });
       }},
      {"sanitizer", "scenarios of few calls, under compute-sanitizer", passes_sanitizer},
  };
  return all;
}

int run_jobs(const std::vector<std::string_view>& names, const Commands& commands) {
  int failures = 0;
  std::string summary;
  for (const Job& job : jobs()) {
    if (!names.empty() && std::find(names.begin(), names.end(), job.name) == names.end()) continue;
    std::printf("== %s: %s\n", job.name, job.what);
    const auto begin = Clock::now();
    const Verdict verdict = job.run(commands);
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (verdict == Verdict::failed) ++failures;
    char line[160];
    std::snprintf(line, sizeof line, "%-8s %-14s %6.1f s\n",
                  verdict == Verdict::ok       ? "ok"
                  : verdict == Verdict::failed ? "FAILED"
                                               : "skipped",
                  job.name, took.count());
    std::printf("== %s\n", line);
    summary += line;
  }
  std::printf("%s", summary.c_str());
  return failures == 0 ? 0 : 1;
}

/// Refuses words on the command line that name no job.
int refuse_unknown(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    if (std::any_of(jobs().begin(), jobs().end(), [&](const Job& job) { return job.name == name; }))
      continue;
    std::printf("gpu_test: there is no job '%s'; --list names them\n", std::string(name).c_str());
    return exit_usage;
  }
  return 0;
}

bool can_load(const char* file) { return ::dlopen(file, RTLD_NOW | RTLD_LOCAL) != nullptr; }

/// The one that dlaunch will find, or the one that pip installed with PyTorch, which no search path
/// leads to.
bool find_nccl() {
  const char* named = std::getenv("DLAUNCH_NCCL_LIBRARY");
  if (can_load(named != nullptr ? named : "libnccl.so.2")) return true;
  const std::string why = ::dlerror();
  if (named == nullptr) {
    const CommandResult wheel = run_command(
        "python3 -c 'import importlib.util as u; "
        "print(u.find_spec(\"nvidia.nccl\").submodule_search_locations[0], end=\"\")'",
        limit, false);
    const std::string file = wheel.output + "/lib/libnccl.so.2";
    if (wheel.ok() && can_load(file.c_str())) {
      std::printf("NCCL is %s\n", file.c_str());
      ::setenv("DLAUNCH_NCCL_LIBRARY", file.c_str(), 1);
      return true;
    }
  }
  std::printf("skipped: there is no NCCL here: %s; name the file in DLAUNCH_NCCL_LIBRARY\n",
              why.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words == std::vector<std::string_view>{"--list"}) {
    for (const Job& job : jobs()) std::printf("%-14s %s\n", job.name, job.what);
    return 0;
  }
  const bool is_rank = words.size() == 2 && words[0] == "--rank";
  if (!is_rank) {
    if (const int code = refuse_unknown(words)) return code;
  }
  Driver driver;
  const int devices = driver.load() ? driver.devices() : 0;
  if (devices == 0) {
    std::printf("skipped: there is no NVIDIA GPU here\n");
    return exit_skipped;
  }
  if (is_rank) return run_rank(driver, words[1]);
  return find_nccl() ? run_jobs(words, Commands(devices)) : exit_skipped;
} catch (const std::exception& error) {
  std::printf("FAILED: %s\n", error.what());
  return 1;
}
