// The workers' own cgroup: who is in it, and that nothing outlives them.
#include "launcher/process/own_cgroup.hpp"
#include "tests/process/job.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <fstream>
#include <iterator>

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using launcher::own_cgroup_directory;
using launcher::OwnCgroup;

/// The folder in which launchers make theirs; nullopt, with the reason said, if they cannot.
std::optional<std::string> parent() {
  boost::asio::io_context io;
  const auto directory = own_cgroup_directory();
  if (directory && OwnCgroup::make(io, *directory, [] {})) return directory;
  testing::skipped("no cgroup (v2) can be made here");
  return std::nullopt;
}

std::string cgroup_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "";
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool write_to(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

std::vector<std::string> waiting(const std::string& token) {
  return {"--standalone", "--nproc-per-node", "2", victim(), "tree", token};
}

/// A process of the test's own, whose parent dlaunch is not.
class Stranger {
 public:
  Stranger() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  ~Stranger() {
    if (ended_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  pid_t pid() const { return pid_; }
  bool was_killed() {
    int status = 0;
    ended_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
    return ended_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t pid_;
  bool ended_ = false;
};

}  // namespace

TEST_CASE("all processes of the workers are in one cgroup, and the launcher is not") {
  const auto above = parent();
  if (!above) return;
  const std::string token = unique_token();
  Job job(waiting(token));
  REQUIRE(job.saw("READY", 2));
  const std::string name = "dlaunch-" + std::to_string(job.agent()) + "-0";
  const std::string ours = cgroup_of(::getpid());
  for (const pid_t pid : processes_with(token)) {
    const bool launcher = pid == job.pid() || pid == job.agent();
    CHECK(cgroup_of(pid) == (launcher ? ours : (ours == "/" ? "" : ours) + "/" + name));
  }
  CHECK(exists(*above + "/" + name));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK_FALSE(exists(*above + "/" + name));
}

TEST_CASE("--cgroup none leaves the workers where the launcher is") {
  const std::string token = unique_token();
  auto line = waiting(token);
  line.insert(line.begin(), "--cgroup=none");
  Job job(line);
  REQUIRE(job.saw("READY", 2));
  for (const pid_t pid : processes_with(token)) CHECK(cgroup_of(pid) == cgroup_of(::getpid()));
}

TEST_CASE("a process that no worker is a parent of ends with them") {
  const auto above = parent();
  if (!above) return;
  const std::string token = unique_token();
  Job job(waiting(token));
  REQUIRE(job.saw("READY", 2));
  const std::string path = *above + "/dlaunch-" + std::to_string(job.agent()) + "-0";
  Stranger stranger;
  REQUIRE(write_to(path + "/cgroup.procs", std::to_string(stranger.pid())));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(stranger.was_killed());
  CHECK_FALSE(exists(path));
}

TEST_CASE("kill -9 of the launcher leaves an empty cgroup, which the next start removes") {
  const auto above = parent();
  if (!above) return;
  const std::string token = unique_token();
  std::string path;
  {
    Job job(waiting(token));
    REQUIRE(job.saw("READY", 2));
    path = *above + "/dlaunch-" + std::to_string(job.agent()) + "-0";
    REQUIRE(exists(path));
    REQUIRE(::kill(job.agent(), SIGKILL) == 0);
    CHECK(job.wait().code == 70);
    CHECK(all_gone(token));
  }
  CHECK(exists(path));
  CHECK(Job({"--standalone", "true"}).wait().code == 0);
  CHECK_FALSE(exists(path));
}

TEST_CASE("each attempt has a cgroup of its own") {
  if (!parent()) return;
  Job job(
      {"--standalone", "--max-restarts", "1", "sh", "-c", "grep ^0:: /proc/self/cgroup; exit 3"});
  CHECK(job.wait().code == 3);
  CHECK(count(job.out(), "/dlaunch-") == 2);
}

TEST_CASE("a process that the kernel does not let go of is named") {
  // The old kind of freezer holds a process even against SIGKILL.
  const std::string freezer = "/sys/fs/cgroup/freezer/" + unique_token();
  if (::mkdir(freezer.c_str(), 0755) != 0) return testing::skipped("no freezer (cgroup v1)");
  const std::string token = unique_token();
  Job job({"--standalone", victim(), "wait", token});
  REQUIRE(job.saw("READY "));
  const std::string pid = job.out().substr(6, job.out().find('\n') - 6);
  REQUIRE(write_to(freezer + "/cgroup.procs", pid));
  REQUIRE(write_to(freezer + "/freezer.state", "FROZEN"));
  job.send(SIGTERM);
  // Two at the same moment may come as one.
  REQUIRE(job.saw("stopping: rank 0 still runs"));
  job.send(SIGTERM);
  CHECK(
      job.saw("some processes do not die of SIGKILL (they hang in the kernel); leaving without "
              "them: pid " +
              pid + " (victim), state "));
  CHECK(write_to(freezer + "/freezer.state", "THAWED"));
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
  ::rmdir(freezer.c_str());
}

}  // namespace dlaunch::process_test
