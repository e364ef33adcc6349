// dlaunch stack: where the ranks of a live job are, by gdb, by py-spy and by the kernel.
#include "tests/process/job.hpp"
#include "tests/process/status_folder.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::process_test;

namespace {

using Strings = std::vector<std::string>;

/// A folder of programs, which is all of PATH for those who ask.
struct Tools {
  testing::TemporaryFolder own;
  std::string path = own.path().string();

  void add(const std::string& name, const std::string& script) const {
    const std::string file = path + "/" + name;
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
};

struct Shown {
  int code = 0;
  std::string out, err;
};

Shown stack(const Folder& folder, const Tools& tools, Strings arguments = {}) {
  arguments.insert(arguments.begin(), "stack");
  auto environment = folder.environment();
  environment["PATH"] = tools.path;
  Job asking(std::move(arguments), environment);
  Shown shown;
  shown.code = asking.wait().code;
  shown.out = asking.out();
  shown.err = asking.err();
  return shown;
}

bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("the kernel tells where ranks are, and what to install is said") {
  const Folder folder;
  const Tools none;
  const std::string token = unique_token();
  Job job({"--rdzv-id", "demo", "--nproc-per-node", "3", victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 3));
  const auto all = stack(folder, none);
  CHECK(all.code == 0);
  CHECK(count(all.out, ", victim), by the kernel (gdb is not installed):\nThread ") == 3);
  CHECK(all.err == "dlaunch stack: install gdb to see the program's own frames\n");
  CHECK(count(stack(folder, none, {"demo", "--rank", "0,2-7"}).out, "rank ") == 2);
  const auto other = stack(folder, none, {"--rank", "5-6"});
  CHECK(other.code == 69);
  CHECK(other.err == "dlaunch stack: ranks 5-6 are not here; ranks 0-2 are\n");
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
  CHECK(stack(folder, none, {"demo"}).code == 69);
}

TEST_CASE("gdb is asked, has a limit, and may be denied") {
  const Folder folder;
  const Tools tools;
  const std::string token = unique_token();
  // A shell's only child is the program.
  Job job({"--nproc-per-node", "2", "sh", "-c", victim() + " tree " + token + "; exit $?"},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  tools.add("gdb",
            "for i in 1 2 3 4 5 6 7 8 9 10; do [ $i = 1 ] && echo 'Thread 1 (of a double):'; "
            "echo \"#$i f ()\"; done; echo '[Inferior 1 (process 1) detached]'");
  const auto shown = stack(folder, tools, {"--rank", "1"});
  CHECK(has(shown.out, ", victim), by gdb:\nThread 1 (of a double):\n#1 f ()\n"));
  CHECK(shown.out.ends_with("#10 f ()\n"));
  CHECK(shown.err.empty());
  const auto brief = stack(folder, tools, {"--short"});
  CHECK(count(brief.out, "#8 f ()\n... 2 more frames\n") == 2);

  tools.add("gdb", "echo 'ptrace: Operation not permitted.'; exit 1");
  const auto denied = stack(folder, tools);
  CHECK(has(denied.out, ", by the kernel (gdb: ptrace: Operation not permitted.):\nThread "));
  CHECK(has(denied.err, "dlaunch stack: processes may not be looked into here; as root they may"));

  tools.add("gdb", "while :; do :; done");
  const auto slow = stack(folder, tools, {"--timeout", "100ms"});
  CHECK(count(slow.out, ", by the kernel (gdb did not end within 100 ms):\nThread ") == 2);
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a Python is shown by py-spy, where that is installed") {
  const Folder folder;
  const Tools tools;
  const std::string token = unique_token();
  // Its name is all that is asked for.
  const std::string python = tools.path + "/python3.99";
  std::filesystem::copy_file(victim(), python);
  Job job({"--rdzv-id", "snake", python, "tree", token}, folder.environment());
  REQUIRE(job.saw("READY"));
  const auto without = stack(folder, tools, {"snake"});
  CHECK(has(without.out, "python3.99), by the kernel (py-spy is not installed; gdb is not "));
  CHECK(has(without.err, "dlaunch stack: install py-spy to see Python's own frames"));
  tools.add("py-spy", "echo \"Process $3\"; echo; echo \"Thread $3 (idle)\"; echo \"    $1 $2\"");
  const auto shown = stack(folder, tools);
  CHECK(has(shown.out, ", python3.99), by py-spy:\nThread "));
  CHECK(shown.out.ends_with(" (idle)\n    dump --pid\n"));
  CHECK(shown.err.empty());
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a real gdb shows the function that a rank waits in") {
  if (::access("/usr/bin/gdb", X_OK) != 0) {
    MESSAGE("skipped: there is no gdb");
    return;
  }
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--rdzv-id", "real", victim(), "tree", token}, folder.environment());
  REQUIRE(job.saw("READY"));
  Job asking({"stack", "real", "--timeout", "1m"}, folder.environment());
  CHECK(asking.wait().code == 0);
  INFO(asking.out());
  CHECK((has(asking.out(), "pause ()") || has(asking.out(), "not permitted")));
  // It goes on.
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}
