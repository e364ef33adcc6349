// The memory that the ranks of a node share, under the real launcher: each sees what the others
// write, every attempt has its own, whoever cannot have it goes on without, and nothing stays.
#include "runtime/base/os/unique_fd.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/secret_file.hpp"
#include "tests/support/skipped.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <set>

#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

const std::string rank_program = DLAUNCH_BINARY_DIR "/tests/by_hand_rank";

Strings launched(const std::string& workers, const Strings& command) {
  Strings arguments{"--standalone", "--nproc-per-node", workers, "--no-python"};
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

Strings ranks(const std::string& action, const std::string& token = "") {
  return {rank_program, "dlaunch://", "30000", action, token};
}

/// The ranks, each started by a shell that does this first.
Strings ranks_after(const std::string& preparation, const std::string& action) {
  return {"bash", "-c", preparation + "; exec " + rank_program + " dlaunch:// 30000 " + action};
}

/// The numbers of all segments that were spoken of.
std::set<std::string> segments_in(const std::string& text) {
  constexpr std::string_view before = "in segment ";
  std::set<std::string> found;
  for (auto at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const auto begin = at + before.size();
    found.insert(text.substr(begin, text.find(',', begin) - begin));
  }
  return found;
}

/// The inodes of the segments that a process has open.
std::set<ino_t> segments_of(const std::string& pid) {
  std::set<ino_t> found;
  const std::string directory = "/proc/" + pid + "/fd";
  DIR* const open = ::opendir(directory.c_str());
  if (open == nullptr) return found;
  while (const dirent* entry = ::readdir(open)) {
    const std::string path = directory + "/" + entry->d_name;
    char target[64] = {};
    if (::readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    struct stat status {};
    if (!std::string_view(target).starts_with("/memfd:dlaunch")) continue;
    if (::stat(path.c_str(), &status) == 0) found.insert(status.st_ino);
  }
  ::closedir(open);
  return found;
}

bool anybody_has(ino_t segment) {
  DIR* const open = ::opendir("/proc");
  bool found = false;
  while (const dirent* entry = ::readdir(open)) {
    found = found || segments_of(entry->d_name).contains(segment);
  }
  ::closedir(open);
  return found;
}

/// The two ranks of each of these agents share memory that the other agent's have not.
void check_own_memory(Job& one, Job& two) {
  const auto first = segments_in(one.out()), second = segments_in(two.out());
  REQUIRE(first.size() == 1);
  REQUIRE(second.size() == 1);
  CHECK(first != second);
  CHECK(count(one.out() + two.out(), "and reads 1000 1001") == 2);
  CHECK(count(one.out() + two.out(), "and reads 1002 1003") == 2);
}

}  // namespace

TEST_CASE("the ranks of a node read what the others write") {
  Job job(launched("3", ranks("share")));
  CHECK(job.wait().code == 0);
  for (const int rank : {0, 1, 2}) {
    CHECK(count(job.out(), "rank " + std::to_string(rank) + " is " + std::to_string(rank) +
                               " of 3 in segment ") == 1);
  }
  CHECK(count(job.out(), "epoch 1, and reads 1000 1001 1002") == 3);
  CHECK(segments_in(job.out()).size() == 1);
  CHECK(job.err() == "");
}

TEST_CASE("it comes over the agent's name, too, where the control socket was closed on the way") {
  Job job(launched("2", ranks_after("exec {DLAUNCH_WORKER_CONTROL}<&-", "share")));
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "and reads 1000 1001") == 2);
  CHECK(segments_in(job.out()).size() == 1);
}

TEST_CASE("a rank alone on its node shares nothing") {
  Job job(launched("1", ranks("share")));
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "rank 0 shares nothing") == 1);
  CHECK(job.err() == "");
}

TEST_CASE("every attempt has a fresh one") {
  Strings arguments = launched("2", ranks("share-again"));
  arguments.insert(arguments.begin(), {"--max-restarts", "1"});
  Job job(arguments);
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "epoch 1, and reads 1000 1001") == 2);
  CHECK(count(job.out(), "epoch 2, and reads 1000 1001") == 2);
  CHECK(segments_in(job.out()).size() == 2);
}

TEST_CASE("the agents of a host have one for all their ranks") {
  Nodes nodes("2", ranks("share"), {"--nproc-per-node", "2", "--no-python"});
  Job &one = nodes.add(), &two = nodes.add();
  CHECK(one.wait().code == 0);
  CHECK(two.wait().code == 0);
  CHECK(segments_in(one.out() + two.out()).size() == 1);
  CHECK(count(one.out(), "and reads 1000 1001 1002 1003") == 2);
  CHECK(count(two.out(), "and reads 1000 1001 1002 1003") == 2);
}

TEST_CASE("with a secret, too, and a fresh one for every attempt") {
  const testing::SecretFile secret(
      "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  Nodes nodes("2", ranks("share-again"),
              {"--nproc-per-node", "2", "--no-python", "--max-restarts", "1", "--secret-file",
               secret.path()});
  Job &one = nodes.add(), &two = nodes.add();
  CHECK(one.wait().code == 0);
  CHECK(two.wait().code == 0);
  const std::string out = one.out() + two.out();
  CHECK(segments_in(out).size() == 2);
  CHECK(count(out, "epoch 1, and reads 1000 1001 1002 1003") == 4);
  CHECK(count(out, "epoch 2, and reads 1000 1001 1002 1003") == 4);
}

TEST_CASE("an agent that may share nothing has its own, and so have the others") {
  Nodes nodes("2", ranks("share"), {"--nproc-per-node", "2", "--no-python"});
  Job &one = nodes.add(), &two = nodes.add({"--shared-memory", "node"});
  CHECK(one.wait().code == 0);
  CHECK(two.wait().code == 0);
  check_own_memory(one, two);
}

TEST_CASE(
    "agents of one host that are another's to the kernel have their own, and the job goes on") {
  struct {
    const char* of;
    Strings under;
  } const apart[] = {
      {"pids", {"unshare", "--pid", "--fork", "--mount-proc"}},
      {"users", {"unshare", "--user", "--map-root-user"}},
      {"another user", {"setpriv", "--reuid", "65534", "--clear-groups"}},
  };
  for (const auto& [of, under] : apart) {
    CAPTURE(std::string(of));
    Strings probe(under.begin() + 1, under.end());
    probe.emplace_back("true");
    if (Job(probe, {}, under.front()).wait().code != 0) {
      testing::skipped("no right to start a process with " + std::string(of) + " of its own");
      continue;
    }
    Nodes nodes("2", ranks("share"), {"--nproc-per-node", "2", "--no-python"});
    Job &one = nodes.add(), &two = nodes.add_under(under);
    CHECK(one.wait().code == 0);
    CHECK(two.wait().code == 0);
    INFO(one.err() << two.err());
    check_own_memory(one, two);
    // It is not offered to them: nobody has tried in vain.
    CHECK(count(one.err() + two.err(), "the memory of this host's nodes") == 0);
  }
}

TEST_CASE("where the agent cannot make it, one line says so, and the job goes on") {
  std::string command = "ulimit -f 100; exec " + dlaunch_path();
  for (const auto& word : launched("3", ranks("share"))) command += " '" + word + "'";
  Job job({"-c", command}, {}, "/bin/bash");
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "shares nothing") == 3);
  CHECK(count(job.err(), "dlaunch: the node's shared memory: files may have no more than") == 1);
  CHECK(count(job.err(), "go on without it, over TCP") == 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They need the address space.
TEST_CASE("a rank that cannot map it is named, and goes on without") {
  Job job(launched("3", ranks_after("test $RANK != 1 || ulimit -v 2000000", "share")));
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "rank 1 shares nothing") == 1);
  CHECK(count(job.out(), "and reads 1000 0 1002") == 2);
  CHECK(count(job.err(), "dlaunch: rank 1: the node's shared memory: mmap: ") == 1);
  CHECK(count(job.err(), "over TCP") == 1);
}
#endif

TEST_CASE("kill -9 of the front, the agent or a rank leaves no memory behind") {
  for (const std::string victim : {"front", "agent", "rank"}) {
    CAPTURE(victim);
    const std::string token = unique_token();
    Job job(launched("2", ranks("share-wait", token)));
    REQUIRE(job.saw("and reads 1000 1001", 2));
    const pid_t agent = job.agent();
    const auto held = segments_of(std::to_string(agent));
    REQUIRE(held.size() == 1);
    CHECK(anybody_has(*held.begin()));
    if (victim == "front") job.send(SIGKILL);
    if (victim == "agent") ::kill(agent, SIGKILL);
    if (victim == "rank") ::kill(children_of(agent).at(0), SIGKILL);
    CHECK(all_gone(token));
    CHECK_FALSE(anybody_has(*held.begin()));
  }
}

}  // namespace dlaunch::process_test
