// Where workers run, and with which variables: real launcher, real workers.
#include "tests/process/job.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <sched.h>
#include <stdlib.h>

namespace fs = std::filesystem;

namespace dlaunch::process_test {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "dlaunch_place_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  /// A script of the shell's.
  std::string script(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    fs::permissions(path_ + "/" + name, fs::perms::owner_all);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("--env and --cwd: the workers have the variables, and run there") {
  const Folder folder;
  folder.script("mine", "#!/bin/sh\necho $RANK $GREETING $PASSED in $(pwd -P) $PWD\n");
  const std::string place = fs::canonical(folder.path()).string();
  for (const std::string program : {"./mine", "mine"}) {
    Job job({"--standalone", "--nproc-per-node=2", "--env", "GREETING=hi", "--env", "PASSED",
             "--env", "PATH=.:/usr/bin:/bin", "--cwd", place, program},
            {{"PASSED", "on"}});
    CHECK(job.wait().code == 0);
    CHECK(job.out().find("[0] 0 hi on in " + place + " " + place + "\n") != std::string::npos);
    CHECK(job.out().find("[1] 1 hi on in " + place + " " + place + "\n") != std::string::npos);
  }
}

TEST_CASE("--cwd: a directory that is missing is said before anything starts") {
  for (const std::string option : {"--dry-run", "--standalone"}) {
    Job missing({option, "--cwd", "/no/such", "true"});
    CHECK(missing.wait().code == 127);
    CHECK(missing.err() == "dlaunch: --cwd: there is no directory '/no/such'\n");
    Job file({option, "--cwd", "/etc/passwd", "true"});
    CHECK(file.wait().code == 127);
    CHECK(file.err() == "dlaunch: --cwd: '/etc/passwd' is no directory\n");
    const Folder folder;
    Job program({option, "--cwd", folder.path(), "./none"});
    CHECK(program.wait().code == 127);
    CHECK(program.err() == "dlaunch: there is no file '" + folder.path() + "/./none'\n");
  }
}

TEST_CASE("--dry-run says which file would run") {
  const Folder folder;
  const auto shown = [](const std::vector<std::string>& arguments) {
    auto line = arguments;
    line.insert(line.begin(), {"--dry-run"});
    Job job(line);
    CHECK(job.wait().code == 0);
    const auto at = job.out().find("\n  program         ");
    REQUIRE(at != std::string::npos);
    return job.out().substr(at + 19, job.out().find('\n', at + 1) - at - 19);
  };
  const std::string by_shell = folder.script("by_shell", "echo\n");
  const std::string by_name = folder.script("by_name", "#! /bin/sh -e\n");
  const std::string python = folder.script("py", "#!/bin/sh\n");
  folder.script("x.py", "");
  CHECK(shown({victim()}) == victim());
  CHECK(shown({"--env=PATH=" + folder.path(), "by_name"}) == by_name + ", which /bin/sh reads");
  CHECK(shown({by_shell}) == by_shell + ", which /bin/sh reads");
  CHECK(shown({"--cwd", folder.path(), "--env", "PYTHON_EXEC=./py", "x.py"}) ==
        folder.path() + "/./py, which reads " + folder.path() + "/x.py");
}

TEST_CASE("--dry-run ends as the job would that cannot start its program") {
  const Folder folder;
  const std::vector<std::string> programs = {
      "/no/such/program",
      "no-such-program-anywhere",
      "/etc/passwd",
      "/",
      "/no/such/script.py",
      folder.script("no_interpreter", "#!/no/such/interpreter\n"),
      folder.script("no_name", "#!\n"),
      folder.script("bad_interpreter", "#!" + folder.script("text", "echo\n") + "\n"),
      folder.script("locked_interpreter", "#!/etc/passwd\n"),
      folder.script("itself", "#!" + folder.path() + "/itself\n"),
      folder.script("data", std::string("\1\0\2\n", 4)),
      folder.script("cut",
                    "\x7f"
                    "ELF"),
  };
  // There the kernel may execute what is neither a program nor a script.
  const bool taught = fs::exists("/proc/sys/fs/binfmt_misc/status");
  for (const auto& program : programs) {
    CAPTURE(program);
    Job job({"--standalone", program}), dry({"--dry-run", "--standalone", program});
    const int code = job.wait().code;
    CHECK(code >= 126);
    const bool cannot_tell = taught && (program.ends_with("data") || program.ends_with("cut"));
    if (cannot_tell) continue;
    CHECK(dry.wait().code == code);
    CHECK(dry.err() == job.err());
    CHECK(dry.out().find("\n  program         none that can be run\n") != std::string::npos);
  }
  // The second of two programs.
  const std::vector<std::string> line = {"--standalone", "true", ":", "no-such-program-anywhere"};
  auto dry_line = line;
  dry_line.insert(dry_line.begin(), "--dry-run");
  Job job(line), dry(dry_line);
  CHECK(job.wait().code == 127);
  CHECK(dry.wait().code == 127);
  CHECK(dry.err() == job.err());
  CHECK(dry.out().find("\n  program         none that can be run\n  of ranks        1\n") !=
        std::string::npos);
}

TEST_CASE("a line of several programs is one world, whose ranks are numbered part by part") {
  const Folder folder;
  const std::string place = fs::canonical(folder.path()).string();
  const std::string script = "echo $0 $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE $A. ";
  const std::vector<std::string> line = {"--standalone",
                                         "--env",
                                         "A=1",
                                         "sh",
                                         "-c",
                                         script + "in ${PWD##*/}",
                                         "server",
                                         ":",
                                         "--nproc-per-node",
                                         "2",
                                         "--cwd",
                                         place,
                                         "sh",
                                         "-c",
                                         script + "in ${PWD##*_}",
                                         "client"};
  Job job(line);
  CHECK(job.wait().code == 0);
  const std::string there = place.substr(place.rfind('_') + 1);
  CHECK(job.out().find("[0] server 0 of 3, 0 of 3 1. in ") != std::string::npos);
  CHECK(job.out().find("[1] client 1 of 3, 1 of 3 . in " + there + "\n") != std::string::npos);
  CHECK(job.out().find("[2] client 2 of 3, 2 of 3 . in " + there + "\n") != std::string::npos);

  Job failing({"--standalone", "--nproc-per-node=2", "sleep", "60", ":", "sh", "-c", "exit 5"});
  CHECK(failing.wait().code == 5);
  CHECK(failing.err().find("sleep : sh FAILED") != std::string::npos);

  for (const std::string option : {"--dry-run", "--standalone"}) {
    Job missing({option, "true", ":", "/no/such/program"});
    CHECK(missing.wait().code == 127);
    CHECK(missing.err() == "dlaunch: there is no file '/no/such/program'\n");
  }
}

TEST_CASE("--bind: each worker runs on its cores, as --dry-run shows them") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  const int cores = CPU_COUNT(&ours);
  for (const std::string unit : {"core", "l3", "numa", "socket", "none"}) {
    CAPTURE(unit);
    const std::vector<std::string> line = {"--bind",
                                           unit,
                                           "--nproc-per-node",
                                           std::to_string(cores + 1),
                                           "sh",
                                           "-c",
                                           "grep Cpus_allowed_list /proc/self/status"};
    auto dry = line;
    dry.insert(dry.begin(), "--dry-run");
    Job planned(dry), job(line);
    CHECK(planned.wait().code == 0);
    CHECK(job.wait().code == 0);
    std::istringstream lines(job.out());
    int seen = 0;
    for (std::string text; std::getline(lines, text); ++seen) {
      const auto list = text.substr(text.find_last_of('\t') + 1);
      CAPTURE(text);
      CHECK((planned.out().find(", cores " + list) != std::string::npos) == (unit != "none"));
    }
    CHECK(seen == cores + 1);
    if (unit == "core") CHECK(count(job.err(), "dlaunch: --bind core: ") == 1);
  }
}

}  // namespace dlaunch::process_test
