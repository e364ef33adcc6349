// What a user reads when a job fails: the block's fields for the failures that docs/failures.md
// shows, each by real processes.
#include "tests/support/failure_block.hpp"

#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <fstream>
#include <optional>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::failure_block;
using testing::field_of;
using testing::TemporaryFolder;

/// Rank 1 of two does this, the other one waits to be ended.
Strings rank1(const std::string& script, Strings options = {}) {
  options.insert(options.end(), {"--standalone", "--nproc-per-node", "2", "sh", "-c",
                                 "if [ $RANK = 0 ]; then exec sleep 1000; fi; " + script});
  return options;
}

Strings ending(const std::string& how, Strings options = {}) {
  options.insert(options.end(),
                 {"--standalone", "--nproc-per-node", "3", DLAUNCH_BINARY_DIR "/tests/ending_rank",
                  how, "1", unique_token()});
  return options;
}

bool is_time(const std::string& text) {
  const std::string shape = "0000-00-00 00:00:00.000";
  if (text.size() < shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (digit != (shape[i] == '0') || (!digit && text[i] != shape[i])) return false;
  }
  return true;
}

/// A cgroup with little memory; gone with the object, when no process is left in it.
class SmallGroup {
 public:
  SmallGroup() {
    const std::string name = "dlaunch-test-" + std::to_string(::getpid());
    for (const std::string root : {"/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"}) {
      std::error_code failed;
      if (!std::filesystem::create_directory(root + name, failed) || failed) continue;
      path_ = root + name;
      for (const char* file : {"/memory.limit_in_bytes", "/memory.max"}) {
        std::ofstream(path_ + file) << "67108864" << std::flush;
      }
      if (is_small("/memory.limit_in_bytes") || is_small("/memory.max")) return;
      std::filesystem::remove(path_, failed);
    }
    path_.clear();
  }
  ~SmallGroup() {
    std::error_code gone;
    if (!path_.empty()) std::filesystem::remove(path_, gone);
  }
  SmallGroup(const SmallGroup&) = delete;
  SmallGroup& operator=(const SmallGroup&) = delete;
  /// Empty where none can be made.
  const std::string& path() const { return path_; }

 private:
  bool is_small(const std::string& file) const {
    std::ifstream in(path_ + file);
    long bytes = 0;
    return in >> bytes && bytes == 67108864;
  }

  std::string path_;
};

}  // namespace

TEST_CASE("a rank exits with 3") {
  Job job(rank1("echo no input >&2; exit 3"));
  CHECK(job.wait().code == 3);
  const auto block = failure_block(job.err());
  INFO(block);
  CHECK(contains(block, "\nsh FAILED\n  cause : rank 1 exited with 3: no input\n"));
  CHECK(is_time(field_of(block, "ended")));
  CHECK(field_of(block, "others") == "rank 0 ended because of it");
  CHECK(count(block, "no input") == 1);
  CHECK(field_of(block, "try") == "--log-dir DIR --tee 3, which keeps what every rank writes");
  // In few lines that fit a terminal.
  CHECK(count(block, "\n") <= 10);
}

TEST_CASE("an exception in Python, told once for all ranks that had it") {
  const TemporaryFolder folder;
  const auto script = (folder.path() / "train.py").string();
  std::ofstream(script) << "raise ValueError('no data')\n";
  Job job({"--standalone", "--nproc-per-node", "2", "--failure-grace", "5s", "--log-dir",
           folder.path().string(), "--tee", "3", script});
  CHECK(job.wait().code == 1);
  const auto block = failure_block(job.err());
  INFO(job.err());
  CHECK(contains(field_of(block, "cause"), " exited with 1: ValueError: no data"));
  CHECK(count(block, "raise ValueError('no data')") == 1);
  CHECK(contains(field_of(block, "see"), "its log " + folder.path().string()));
}

TEST_CASE("SIGSEGV: the core file, or why there is none") {
  const TemporaryFolder folder;
  const std::string in_folder = "cd " + folder.path().string() + " && ulimit -c ";
  const std::string rest = " && exec \"$0\" --standalone --nproc-per-node 2 sh -c 'kill -SEGV $$'";
  Job without({"-c", in_folder + "0" + rest, dlaunch_path()}, {}, "/bin/sh");
  CHECK(without.wait().code == 139);
  auto block = failure_block(without.err());
  INFO(block);
  CHECK(contains(field_of(block, "cause"), " was killed by SIGSEGV"));
  std::ifstream rule("/proc/sys/kernel/core_pattern");
  std::string pattern;
  std::getline(rule, pattern);
  if (pattern.starts_with("|")) return testing::skipped("a program takes the core files here");
  CHECK(field_of(block, "core") == "none, for its size limit is 0 (ulimit -c unlimited)");

  const auto result = (folder.path() / "result.json").string();
  Job with({"-c",
            in_folder + "unlimited" + rest.substr(0, rest.find(" --standalone")) + " --result " +
                result + rest.substr(rest.find(" --standalone")),
            dlaunch_path()},
           {}, "/bin/sh");
  CHECK(with.wait().code == 139);
  block = failure_block(with.err());
  INFO(block);
  if (!contains(field_of(block, "cause"), "(core dumped)")) {
    return testing::skipped("no core file may be written here");
  }
  const auto core = field_of(block, "core");
  REQUIRE_MESSAGE(std::filesystem::exists(core), core);
  std::ifstream file(result);
  const auto workers = nlohmann::json::parse(file)["attempts"][0]["workers"];
  CHECK((workers[0]["end"]["core_file"] == core || workers[1]["end"]["core_file"] == core));
  if (pattern.starts_with("/")) std::filesystem::remove(core);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They need that memory.
TEST_CASE("a rank that the kernel kills for lack of memory") {
  const SmallGroup group;
  if (group.path().empty()) return testing::skipped("no cgroup with a memory limit can be made");
  {
    Job job({"-c",
             "echo $$ >\"$1\"/cgroup.procs && exec \"$0\" --standalone --nproc-per-node 2 "
             "sh -c 'if [ $RANK = 0 ]; then exec sleep 1000; fi; exec dd if=/dev/zero of=/dev/null "
             "bs=300M'",
             dlaunch_path(), group.path()},
            {}, "/bin/sh");
    CHECK(job.wait().code == 137);
    const auto block = failure_block(job.err());
    INFO(block);
    CHECK(field_of(block, "cause") == "rank 1 was killed by SIGKILL");
    CHECK(field_of(block, "why")
              .starts_with("memory ran out: the kernel killed a process meanwhile (oom_kill in " +
                           group.path()));
    CHECK(field_of(block, "try") == "fewer workers (--nproc-per-node), or a higher limit");
  }
}
#endif

TEST_CASE("somebody kills a rank, and memory was not why") {
  Job job(rank1("kill -9 $$"));
  CHECK(job.wait().code == 137);
  const auto why = field_of(failure_block(job.err()), "why");
  INFO(why);
  CHECK((why.starts_with("neither dlaunch nor, for lack of memory, the kernel sent this signal") ||
         why.starts_with("dlaunch did not send this signal")));
}

TEST_CASE("a rank exits with 0 while others wait for it") {
  Job job(ending("exit0"));
  CHECK(job.wait().code == 75);
  const auto block = failure_block(job.err());
  INFO(block);
  CHECK(field_of(block, "cause") == "rank 1 exited with 0 before the others");
  CHECK(field_of(block, "others") == "ranks 0,2 ended because of it");
  CHECK(field_of(block, "try") == "--flight-file FILE, which writes every rank's last calls");
}

TEST_CASE("a rank hangs until the others' timeout") {
  Job job(ending("absent", {"--shutdown-timeout", "1"}));
  CHECK(job.wait().code == 1);
  const auto block = failure_block(job.err());
  INFO(block);
  CHECK(field_of(block, "cause").starts_with("rank 1 did not come in time: "));
  CHECK(field_of(block, "ended").starts_with("killed by SIGTERM when dlaunch stopped the job, "));
  CHECK(field_of(block, "others") == "ranks 0,2 ended because of it");
}

TEST_CASE("a rank that lives on without its communicator: what the others said of it") {
  Job job(ending("frees", {"--shutdown-timeout", "1"}));
  CHECK(job.wait().code == 75);
  const auto block = failure_block(job.err());
  INFO(block);
  CHECK(field_of(block, "cause") ==
        "rank 1 was lost to the others while it ran: it destroyed its communicator");
  const auto why = field_of(block, "why");
  CHECK((why.starts_with("rank 0 said: ") || why.starts_with("rank 2 said: ")));
  CHECK(contains(why, "lost rank 1: it destroyed its communicator"));
}

TEST_CASE("a rank gives a call a wrong argument") {
  Job job(ending("argument"));
  CHECK(job.wait().code == 1);
  const auto block = failure_block(job.err());
  INFO(block);
  CHECK(field_of(block, "cause").starts_with("rank 1 exited with 1"));
  CHECK(contains(block, "\n    | ending_rank: broadcast #"));
}

TEST_CASE("a program that is not found is one sentence, and no block") {
  Job job({"--nproc-per-node", "2", "no-such-program-anywhere"});
  CHECK(job.wait().code == 127);
  CHECK(job.err() == "dlaunch: there is no program 'no-such-program-anywhere' in PATH\n");
}

TEST_CASE("a node is lost") {
  Nodes nodes("2", {DLAUNCH_BINARY_DIR "/tests/steady", "/no/such/file", "5"});
  Job& a = nodes.add({"--node-id", "a", "--rdzv-role", "host"});
  Job& b = nodes.add({"--node-id", "b", "--rdzv-role", "join"});
  REQUIRE(a.saw("rank 0 tick 2"));
  ::kill(b.agent(), SIGKILL);
  b.wait();
  CHECK(a.wait().code == 79);
  const auto block = failure_block(a.err());
  INFO(a.err());
  CHECK(field_of(block, "cause").starts_with("node b is lost: its connection broke"));
  CHECK(field_of(block, "ranks").starts_with("rank 0 "));
}

TEST_CASE("Ctrl-C is no failure, and has no block") {
  Job job({"--standalone", "--nproc-per-node", "2", "sh", "-c", "echo up; exec sleep 1000"});
  REQUIRE(job.saw("up", 2));
  job.send(SIGINT);
  CHECK(job.wait().code == 130);
  CHECK(failure_block(job.err()).empty());
}

TEST_CASE("on several nodes the block tells the host and the local rank, on each of them") {
  Nodes nodes("2", {"sh", "-c", "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000"});
  Job& a = nodes.add({"--node-id", "a"});
  Job& b = nodes.add({"--node-id", "b"});
  CHECK(a.wait().code == 3);
  CHECK(b.wait().code == 3);
  INFO("-- a:\n" << a.err() << "-- b:\n" << b.err());
  int there = 0;
  for (const Job* job : {&a, &b}) {
    const auto block = failure_block(job->err());
    CHECK(field_of(block, "cause").starts_with("rank 1 on "));
    CHECK(field_of(block, "cause").ends_with(" exited with 3"));
    CHECK(contains(field_of(block, "ended"), "local rank 0)"));
    there += field_of(block, "ranks") == "rank 0 ended because of it" ? 0 : 1;
  }
  CHECK(there == 1);
}

}  // namespace dlaunch::process_test
