// The cgroup of an epoch's workers: where it lies, what is left of it, and what is said of
// processes that do not end.
#include "launcher/process/own_cgroup.hpp"

#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

constexpr auto patience = std::chrono::seconds(20);

/// Null, with the reason said, where this machine does not let us make one.
std::unique_ptr<OwnCgroup> make(boost::asio::io_context& io, std::function<void()> emptied) {
  const auto parent = own_cgroup_directory();
  auto made = parent ? OwnCgroup::make(io, *parent, std::move(emptied)) : nullptr;
  if (!made) testing::skipped("no cgroup (v2) can be made here");
  return made;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// Waits for its death in the cgroup.
pid_t start_in(const OwnCgroup& cgroup) {
  const char* argv[] = {"sleep", "1000", nullptr};
  SpawnRequest request;
  request.path = "/bin/sleep";
  request.argv = const_cast<char* const*>(argv);
  request.environ = ::environ;
  request.cgroup = cgroup.descriptor();
  sigemptyset(&request.mask);
  const SpawnResult result = spawn(request);
  REQUIRE(result.error == 0);
  return result.pid;
}

}  // namespace

TEST_CASE("the directory of a cgroup") {
  const std::string v2 = "26 22 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
  CHECK(cgroup_directory("0::/user.slice/a\n", v2) == "/sys/fs/cgroup/user.slice/a");
  CHECK(cgroup_directory("0::/\n", v2) == "/sys/fs/cgroup");
  // A host with both kinds.
  CHECK(cgroup_directory("9:memory:/m\n0::/a\n",
                         "25 22 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                         "26 22 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n") ==
        "/sys/fs/cgroup/unified/a");
  // A container sees the host's path, and its own part of the tree.
  CHECK(cgroup_directory("0::/docker/1\n",
                         "26 22 0:23 /docker/1 /sys/fs/cgroup rw - cgroup2 c rw\n") ==
        "/sys/fs/cgroup");
  CHECK(cgroup_directory("0::/docker/1/x\n", "26 22 0:23 /docker/1 /a\\040b rw - cgroup2 c rw\n") ==
        "/a b/x");
  CHECK_FALSE(cgroup_directory("0::/docker/12\n",
                               "26 22 0:23 /docker/1 /sys/fs/cgroup rw - cgroup2 c rw\n"));
  CHECK_FALSE(cgroup_directory("0::/../other\n", v2));
  CHECK_FALSE(cgroup_directory("9:memory:/m\n", v2));
  CHECK_FALSE(cgroup_directory("0::/a\n", ""));
}

TEST_CASE("a process is born into the cgroup, and is killed with it") {
  boost::asio::io_context io;
  bool emptied = false;
  auto cgroup = make(io, [&] { emptied = true; });
  if (!cgroup) return;
  const std::string path = cgroup->path();
  CHECK_FALSE(cgroup->is_populated());
  const pid_t pid = start_in(*cgroup);
  CHECK(cgroup->is_populated());
  CHECK(cgroup->processes() == std::vector<pid_t>{pid});
  // What it makes below goes, too.
  REQUIRE(::mkdir((path + "/inner").c_str(), 0755) == 0);
  cgroup->kill();
  cgroup->await_end();
  io.run_for(patience);
  CHECK(emptied);
  CHECK_FALSE(cgroup->is_populated());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WTERMSIG(status) == SIGKILL);
  cgroup.reset();
  CHECK_FALSE(exists(path));
}

TEST_CASE("a cgroup that is empty already is told of as such") {
  boost::asio::io_context io;
  int emptied = 0;
  const auto cgroup = make(io, [&] { ++emptied; });
  if (!cgroup) return;
  cgroup->await_end();
  cgroup->await_end();
  io.run_for(patience);
  CHECK(emptied == 1);
}

TEST_CASE("what a dead launcher has left is removed, and what a living one has is not") {
  boost::asio::io_context io;
  const auto living = make(io, [] {});
  if (!living) return;
  const std::string stale = own_cgroup_directory().value() + "/dlaunch-0-0";
  REQUIRE(::mkdir(stale.c_str(), 0755) == 0);
  const auto other = make(io, [] {});
  REQUIRE(other != nullptr);
  CHECK(other->path() != living->path());
  CHECK_FALSE(exists(stale));
  CHECK(exists(living->path()));
  CHECK(exists(other->path()));
}

TEST_CASE("where no cgroup can be made") {
  boost::asio::io_context io;
  CHECK(OwnCgroup::make(io, "/nowhere", [] {}) == nullptr);
  CHECK(OwnCgroup::make(io, "/tmp", [] {}) == nullptr);
}

TEST_CASE("what is said of processes that do not end") {
  CHECK(hanging_text({}).empty());
  CHECK(hanging_text({{7, "python3", 'D', "nfs_wait"}, {8, "cat", 'D', ""}}) ==
        "pid 7 (python3), state D, waits in nfs_wait; pid 8 (cat), state D");
  const std::vector<Hanging> many(10, {1, "x", 'D', ""});
  CHECK(hanging_text(many).ends_with("; pid 1 (x), state D, and 2 more"));
  const auto found = hanging_among({::getpid(), -1});
  REQUIRE(found.size() == 1);
  CHECK(found[0].command == "own_cgroup_test");
}
