// A dlaunchd that is killed and stays away, for four seconds and with DLAUNCH_TEST_FULL=1 for
// thirty: the jobs that it brought together do not notice.
#include "tests/process/daemon.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::is_full;

using Strings = std::vector<std::string>;

/// A job does something each period, and the daemon is away for so many of them.
const char* const period_ms = is_full() ? "1000" : "100";
const char* const period_s = is_full() ? "1" : "0.1";
const int periods = is_full() ? 30 : 40;

/// The number behind the last such word.
int last_number(const std::string& text, const std::string& word) {
  const auto at = text.rfind(word);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + word.size());
}

/// Tells the ranks of a job to end.
class EndFile {
 public:
  void make() const { std::ofstream(path_) << "end"; }
  ~EndFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/dlaunch-" + unique_token();
};

/// Two agents with one rank each.
struct Pair {
  Pair(const Daemon& daemon, const std::string& job, const Strings& program)
      : a(daemon.line(job, options("a"), program)), b(daemon.line(job, options("b"), program)) {}
  static Strings options(const std::string& id) {
    return {"--nnodes", "2", "--node-id", id, "--node-rank", id == "a" ? "0" : "1"};
  }
  void require_ticks(int first, int last) {
    for (int tick = first; tick <= last; ++tick) {
      REQUIRE_MESSAGE(a.saw("rank 0 tick " + std::to_string(tick) + "\n"), a.err());
      REQUIRE_MESSAGE(b.saw("rank 1 tick " + std::to_string(tick) + "\n"), b.err());
    }
  }
  int ticks() {
    a.catch_up();
    return last_number(a.out(), "rank 0 tick ");
  }
  /// A daemon without its memory does not answer with what was written, if it was killed just
  /// between the two.
  void check_end(bool was_alone = true) {
    for (Job* node : {&a, &b}) {
      CHECK(node->wait().code == 0);
      CHECK_MESSAGE(contains(node->out(), " ends"), node->err());
      CHECK_MESSAGE(!contains(node->err(), "lost rank"), node->err());
      if (was_alone) CHECK_MESSAGE(!contains(node->out(), "LOST"), node->out());
    }
  }
  Job a, b;
};

/// The interpreters that ctest names, as far as they have a torch that can use our store.
Strings torch_interpreters() {
  Strings found;
  for (const char* name : {"DLAUNCH_TEST_TORCH1_PYTHON", "DLAUNCH_TEST_TORCH2_PYTHON"}) {
    const char* python = std::getenv(name);
    if (python == nullptr || !std::filesystem::exists(python)) continue;
    Job probe({"-c",
               "import torch.distributed as d; "
               "d.TCPStore('127.0.0.1', 0, 1, True, wait_for_workers=False)"},
              {}, python);
    if (probe.wait().code == 0) found.emplace_back(python);
  }
  return found;
}

}  // namespace

TEST_CASE("a dlaunchd is killed and started again much later: jobs of two nodes run on") {
  Daemon daemon;
  const EndFile end;
  Pair native(daemon, "native", {DLAUNCH_BINARY_DIR "/tests/steady", end.path(), period_ms});
  std::deque<Pair> torch;
  for (const std::string& python : torch_interpreters()) {
    torch.emplace_back(
        daemon, "torch-" + std::to_string(torch.size()),
        Strings{python, "-u", DLAUNCH_SOURCE_DIR "/tests/torch/steady.py", end.path(), period_s});
  }
  if (torch.empty()) testing::skipped("no interpreter with torch and libuv: libdlaunch's job only");
  native.require_ticks(1, 3);
  for (Pair& pair : torch) pair.require_ticks(1, 3);
  REQUIRE(native.a.saw("rank 0 stored 1\n"));

  daemon.kill();
  const int gap = native.ticks();
  std::vector<int> torch_gaps;
  for (Pair& pair : torch) torch_gaps.push_back(pair.ticks());
  native.require_ticks(gap + 1, gap + periods);
  for (std::size_t i = 0; i < torch.size(); ++i) {
    torch[i].require_ticks(torch_gaps[i] + 1, torch_gaps[i] + periods / 2);
  }
  for (Job* node : {&native.a, &native.b}) {
    REQUIRE(node->saw("the workers go on, and it is tried again"));
  }
  // The store is not reachable: who asked waits.
  const int asked = last_number(native.a.out(), "rank 0 asks ");
  CHECK(!contains(native.a.out(), "rank 0 stored " + std::to_string(asked) + "\n"));

  daemon.start();
  REQUIRE(native.a.saw("rank 0 stored " + std::to_string(asked) + "\n"));
  REQUIRE(native.a.saw("epoch 1 goes on with all 2 nodes"));
  REQUIRE(native.b.saw("connected to the rendezvous at"));
  native.require_ticks(native.ticks() + 1, native.ticks() + 3);
  end.make();
  native.check_end();
  for (Pair& pair : torch) pair.check_end();
  REQUIRE(daemon.job().saw("finished with exit code 0", 1 + static_cast<int>(torch.size())));
}

TEST_CASE("ranks fail while the daemon is away: the user hears of it at once, and is not kept") {
  const Folder folder;
  Daemon daemon;
  const std::string pipe = folder.path + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const unique_fd end(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  const Strings program = {"sh", "-c", "echo up; read end <" + pipe + "; exit 5"};
  const auto node = [&](const std::string& id) {
    return Job(daemon.line("j", Pair::options(id), program), folder.environment());
  };
  Job a = node("a"), b = node("b");
  REQUIRE(a.saw("up\n"));
  REQUIRE(b.saw("up\n"));
  daemon.kill();
  REQUIRE_MESSAGE(a.saw("the workers go on, and it is tried again"), a.err());
  REQUIRE(::write(end.get(), "\n\n", 2) == 2);
  REQUIRE_MESSAGE(a.saw("all workers here have ended (rank 0 on "), a.err());
  REQUIRE_MESSAGE(a.saw(" exited with 5), and it is tried again, for up to 600 s\n"), a.err());
  REQUIRE_MESSAGE(b.saw("all workers here have ended (rank 1 on "), b.err());
  Job ps({"ps"}, folder.environment());
  CHECK(ps.wait().code == 0);
  CHECK_MESSAGE(count(ps.out(), "\nj    ended  "), ps.out());
  SUBCASE("the daemon comes back") { daemon.start(); }
  SUBCASE("the user stops it") {
    for (Job* job : {&a, &b}) job->send(SIGTERM);
  }
  for (Job* job : {&a, &b}) {
    CHECK(job->wait().code == 5);
    INFO(job->err());
    CHECK(contains(job->err(), "sh FAILED\n  cause : rank "));
  }
}

TEST_CASE("a job's id is used again before its agents are back: the job that runs goes on") {
  Daemon daemon;
  const EndFile end;
  Pair first(daemon, "j", {DLAUNCH_BINARY_DIR "/tests/steady", end.path(), "100"});
  first.require_ticks(1, 3);
  const pid_t agents[] = {first.a.agent(), first.b.agent()};
  for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGSTOP) == 0);
  daemon.kill();
  daemon.start();
  const std::string token = unique_token();
  SUBCASE("the second runs") {
    // Its nodes have the first one's names: they are on the same hosts.
    Pair second(daemon, "j", {victim(), "tree", token, "0"});
    REQUIRE(second.a.saw("READY"));
    REQUIRE(second.b.saw("READY"));
    for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGCONT) == 0);
    for (Job* job : {&second.a, &second.b}) {
      CHECK(job->wait().code == 64);
      INFO(job->err());
      CHECK(contains(job->err(), "the job 'j' was at work when the rendezvous was started again"));
      CHECK(contains(job->err(), "give another job another --rdzv-id"));
    }
    CHECK(all_gone(token));
  }
  SUBCASE("the second is over") {
    Pair second(daemon, "j", {"/bin/true"});
    CHECK(second.a.wait().code == 0);
    CHECK(second.b.wait().code == 0);
    for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGCONT) == 0);
  }
  REQUIRE_MESSAGE(first.a.saw("epoch 1 goes on with all 2 nodes"), first.a.err());
  first.require_ticks(first.ticks() + 1, first.ticks() + 3);
  end.make();
  first.check_end(false);
}

}  // namespace dlaunch::process_test
