// dlaunch logs: what the ranks of a live job wrote to its log files, and those of one that ended.
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;

namespace {

/// A folder for --log-dir, gone with the test.
struct Logs {
  testing::TemporaryFolder own;
  std::string path = own.path().string();

  std::string only_job() const {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      return entry.path().string();
    return "";
  }
};

struct Shown {
  int code = 0;
  std::string out, err;
};

Shown logs(const Folder& folder, Strings arguments) {
  arguments.insert(arguments.begin(), "logs");
  Job asking(std::move(arguments), folder.environment());
  Shown shown;
  shown.code = asking.wait().code;
  shown.out = asking.out();
  shown.err = asking.err();
  return shown;
}

/// Writes a line to each stream, says that it is ready, and goes on when the file `go` is there.
Strings writer(const std::string& name, const Logs& where, const std::string& go) {
  return {"--rdzv-id",
          name,
          "--nproc-per-node",
          "3",
          "--log-dir",
          where.path,
          "--tee",
          "3",
          "sh",
          "-c",
          "echo out $RANK; echo err $RANK >&2; echo READY; while [ ! -e " + go +
              " ]; do :; done; echo late $RANK; printf end"};
}

}  // namespace

TEST_CASE("the log files of a live job are shown with their ranks, and of one that has ended") {
  const Folder folder;
  const Logs where;
  const std::string go = where.path + "/go";
  Job job(writer("demo", where, go), folder.environment());
  REQUIRE(job.saw("READY", 3));
  const auto all = logs(folder, {});
  CHECK(all.code == 0);
  CHECK(all.out ==
        "[0] out 0\n[0] READY\n[0] err 0\n[1] out 1\n[1] READY\n[1] err 1\n"
        "[2] out 2\n[2] READY\n[2] err 2\n");
  CHECK(logs(folder, {"demo", "--rank", "0,2-5", "--stderr"}).out == "[0] err 0\n[2] err 2\n");
  CHECK(logs(folder, {"--rank", "1", "--stdout"}).out == "[1] out 1\n[1] READY\n");
  const auto none = logs(folder, {"--rank", "7"});
  CHECK(none.code == 69);
  CHECK(none.err == "dlaunch logs: rank 7 is not here; ranks 0-2 are\n");
  CHECK(logs(folder, {"--rank", "3-1"}).code == 64);

  CHECK(logs(folder, {"--since", "1h", "--rank", "2"}).out == "[2] out 2\n[2] READY\n[2] err 2\n");
  CHECK(logs(folder, {"--dir", where.path, "--since", "1h"}).code == 64);
  // What was said is older soon.
  const auto deadline = Clock::now() + patience;
  while (!logs(folder, {"--since", "1ms"}).out.empty() && Clock::now() < deadline) {
  }
  CHECK(logs(folder, {"--since", "1ms"}).out.empty());

  // To the job's end, with what has no end of line.
  Job follow({"logs", "demo", "--follow", "--rank", "1"}, folder.environment());
  REQUIRE(follow.saw("[1] READY\n"));
  std::filesystem::create_directory(go);
  CHECK(follow.wait().code == 0);
  CHECK(follow.out().ends_with("[1] late 1\n[1] end\n"));
  CHECK(job.wait().code == 0);
  std::filesystem::remove(go);

  for (const auto& place :
       {where.path, where.only_job(), where.only_job() + "/", where.only_job() + "/attempt_0"}) {
    const auto after = logs(folder, {"--dir", place, "--rank", "2"});
    CHECK(after.code == 0);
    CHECK(after.out == "[2] out 2\n[2] READY\n[2] late 2\n[2] end\n[2] err 2\n");
  }
  CHECK(logs(folder, {"--dir", where.path, "--follow"}).code == 64);
  const auto nothing = logs(folder, {"--dir", folder.path});
  CHECK(nothing.code == 69);
  CHECK(nothing.err.find(" has no attempt_<n> folder") != std::string::npos);
  const auto gone = logs(folder, {"--dir", folder.path + "/none"});
  CHECK(gone.err.find("is no folder that can be read") != std::string::npos);
  std::filesystem::create_directories(where.path + "/other_1/attempt_0");
  const auto several = logs(folder, {"--dir", where.path});
  CHECK(several.code == 69);
  CHECK(
      several.err.find(" has the logs of several jobs, or nodes; name the folder of one: demo_") !=
      std::string::npos);
}

TEST_CASE("ranks that are started again are followed") {
  const Folder folder;
  const Logs where;
  const std::string go = where.path + "/go", fail = where.path + "/fail";
  Job job({"--rdzv-id", "again", "--nproc-per-node", "2", "--max-restarts", "1", "--log-dir",
           where.path, "--redirects", "3", "sh", "-c",
           "echo attempt $DLAUNCH_WORKER_ATTEMPT of $RANK; while [ ! -e " + go + " ] && [ ! -e " +
               fail + "$TORCHELASTIC_RESTART_COUNT ]; do :; done; [ -e " + go + " ] || exit 3"},
          folder.environment());
  // It may not have begun.
  const auto deadline = Clock::now() + patience;
  while (logs(folder, {}).out.find("of 1") == std::string::npos && Clock::now() < deadline) {
  }
  Job follow({"logs", "--follow"}, folder.environment());
  REQUIRE(follow.saw("of 1\n"));
  std::filesystem::create_directory(fail + "0");
  CHECK(follow.saw("of 0\n", 2));
  CHECK(follow.saw("of 1\n", 2));
  std::filesystem::create_directory(go);
  CHECK(follow.wait().code == 0);
  CHECK(job.wait().code == 0);
}

TEST_CASE("a job that keeps no logs says so, and one that waits, too") {
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--rdzv-id", "plain", "--nproc-per-node", "2", victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  const auto plain = logs(folder, {});
  CHECK(plain.code == 69);
  CHECK(plain.err ==
        "dlaunch logs: job plain keeps no logs of these ranks; start it with --log-dir DIR --tee "
        "3\n");
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));

  Nodes nodes("2", {"true"}, {"--rdzv-id", "waits"}, folder.environment());
  Job& first = nodes.add({"--node-id", "n0"});
  const auto deadline = Clock::now() + patience;
  Shown waits;
  do {
    waits = logs(folder, {"waits"});
  } while (waits.err.find("no job") != std::string::npos && Clock::now() < deadline);
  CHECK(waits.err == "dlaunch logs: job waits has not started its ranks yet\n");
  first.send(SIGTERM);
  first.wait();
}
