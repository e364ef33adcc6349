// The rank that a job blames, and its code, in all layouts: the same on every node.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"
#include "tests/support/temporary_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

struct Layout {
  int ranks;  ///< Per agent.
  int agents;
};

struct Ending {
  const char* mode;
  int code;
  const char* words;  ///< Said of the culprit, the last rank.
};
const Ending endings[] = {
    {"exit 0", 75, " exited with 0 before the others"},
    {"return 0", 75, " exited with 0 before the others"},
    {"exit 3", 3, " exited with 3"},
    {"kill", 137, " was killed by SIGKILL"},
    {"throw", 134, " was killed by SIGABRT"},
    {"argument", 9, " exited with 9"},
    {"count", 9, " made another call than the others"},
    {"root", 9, " made another call than the others"},
    {"abort", 75, " gave up a call that the others were in"},
    {"absent", 75, " did not come in time"},
    {"stop", 75, " did not come in time: stopped by a signal"},
};

using testing::contains;
using testing::is_full;

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

void check(const std::vector<std::unique_ptr<Job>>& jobs, Layout layout, const Ending& ending) {
  const int size = layout.ranks * layout.agents;
  // Hosts are told where there are several nodes.
  const std::string on = layout.agents > 1 ? " on " + host_name() : "";
  const std::string culprit = "rank " + std::to_string(size - 1) + on;
  const bool disagree = contains(ending.words, "another call");
  // Two ranks that disagree are both named, and the first gives the code.
  const bool both = disagree && size == 2;
  const std::string sentence =
      both ? "rank 0" + on + " and " + culprit + " made calls that do not agree"
           : culprit + ending.words;
  for (int node = 0; node < layout.agents; ++node) {
    Job& job = *jobs[static_cast<std::size_t>(node)];
    const int code = job.wait().code;
    CHECK_MESSAGE(code == (both ? 75 : ending.code), "node " << node << ": " << job.err());
    const std::string cause = testing::field_of(testing::failure_block(job.err()), "cause");
    // A rank that aborts and leaves at once may be known to have left before its word has come.
    const bool only_left =
        std::string(ending.mode) == "abort" && cause.starts_with(culprit + " exited with 0 before");
    CHECK_MESSAGE((only_left || cause.starts_with(sentence)), job.err());
  }
}

void run(Layout layout, const Ending& ending, const Daemon* daemon) {
  CAPTURE(layout.ranks);
  CAPTURE(layout.agents);
  CAPTURE(std::string(ending.mode));
  const Strings program = {
      DLAUNCH_BINARY_DIR "/tests/cause_rank", ending.mode,
      std::string(ending.mode) == "stop" || std::string(ending.mode) == "absent" ? "1" : "30"};
  static int number = 0;
  Strings line = {"--nproc-per-node", std::to_string(layout.ranks), "--shutdown-timeout", "1"};
  if (layout.agents > 1) {
    const Strings more = {"--nnodes", std::to_string(layout.agents), "--rdzv-endpoint",
                          daemon ? daemon->endpoint() : "127.0.0.1:" + std::to_string(free_port())};
    line.insert(line.end(), more.begin(), more.end());
    if (daemon) {
      line.insert(line.end(), {"--rdzv-id", "cause-" + std::to_string(++number)});
    }
  }
  std::vector<std::unique_ptr<Job>> jobs;
  for (int node = 0; node < layout.agents; ++node) {
    Strings own = line;
    if (layout.agents > 1) {
      own.insert(own.end(),
                 {"--node-rank", std::to_string(node), "--node-id", "n" + std::to_string(node)});
    }
    own.insert(own.end(), program.begin(), program.end());
    jobs.push_back(std::make_unique<Job>(own));
  }
  check(jobs, layout, ending);
}

}  // namespace

TEST_CASE("the rank that is to blame is named on every node, with the job's code") {
  const std::vector<Layout> layouts = {{2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 4}, {2, 3}};
  std::size_t turn = 0;
  for (const Ending& ending : endings) {
    // One layout each, and with DLAUNCH_TEST_FULL all of them.
    if (!is_full()) run(layouts[turn++ % 2 == 0 ? 4 : 3], ending, nullptr);
    for (const Layout& layout : layouts) {
      for (int again = 0; is_full() && again < 3; ++again) run(layout, ending, nullptr);
    }
  }
}

TEST_CASE("the same where dlaunchd judges") {
  const Daemon daemon;
  const std::vector<Layout> layouts = {{1, 2}, {2, 2}, {1, 4}, {2, 3}};
  if (!is_full()) return run({1, 3}, endings[0], &daemon);
  for (const Ending& ending : endings) {
    for (const Layout& layout : layouts) {
      for (int again = 0; again < 3; ++again) run(layout, ending, &daemon);
    }
  }
}

// Programs without the runtime: the first of a chain of failures takes longest to end.

namespace {

/// Four ranks in a folder of their own, where the pipe "said" tells three that one has failed, and
/// "gone" is at its end when those have ended.
void check_first_failure(const Strings& options, const std::string& script, int code,
                         const std::string& words) {
  CAPTURE(script);
  const testing::TemporaryFolder folder;
  for (const char* pipe : {"said", "gone"}) {
    REQUIRE(::mkfifo((folder.path() / pipe).c_str(), 0600) == 0);
  }
  Strings line = {"--standalone", "--nproc-per-node", "4"};
  line.insert(line.end(), options.begin(), options.end());
  line.insert(line.end(), {"sh", "-c", "cd \"$0\" || exit 99\n" + script, folder.path().string()});
  Job job(line);
  CHECK_MESSAGE(job.wait().code == code, job.err());
  const std::string block = testing::failure_block(job.err());
  CHECK_MESSAGE(testing::field_of(block, "cause").starts_with("rank 1 "), job.err());
  CHECK_MESSAGE(contains(block, words), job.err());
}

const std::string speak = "echo 'Traceback (most recent call last):' >&2; ";
const std::string tell = "exec 3<>said; printf '\\n\\n\\n' >&3; ";
const std::string stay = "exec tail -f /dev/null";
/// All are there before one fails.
const std::string victims =
    "exec 4>gone; echo >&4; read -r line <said\n"
    "echo 'Traceback (most recent call last):' >&2; echo 'peer closed' >&2; exit 4\n";
const std::string culprit =
    "if [ $RANK = 1 ]; then exec 4<gone; for other in 0 2 3; do read -r line <&4; done; " + speak +
    "echo 'root of all' >&2; ";

}  // namespace

TEST_CASE("without the runtime the first to say its failure is to blame, not the first to end") {
  check_first_failure({}, culprit + tell + "cat <&4; exit 3; fi\n" + victims, 3, "root of all");
}

TEST_CASE("the same where it is stopped before it has ended") {
  check_first_failure({"--failure-grace", "100ms"}, culprit + tell + stay + "; fi\n" + victims, 1,
                      "root of all");
}

TEST_CASE("an exception that a program has met and gone on from blames nobody") {
  // What is waited for is the time itself: a traceback of the last 2 s may explain an end.
  check_first_failure({},
                      "if [ $RANK = 0 ]; then " + speak + "sleep 3; " + tell + stay +
                          "; fi\n"
                          "read -r line <said\n"
                          "if [ $RANK = 1 ]; then exit 3; fi; " +
                          stay,
                      3, "rank 1 exited with 3");
}

TEST_CASE("the same with Python itself") {
  if (std::system("python3 -c 'import socket' 2>/dev/null") != 0) return;
  const std::string program = R"(exec python3 - <<'END'
import os, socket
end = socket.socket(socket.AF_UNIX)
if os.environ['RANK'] == '1':
    end.bind('here'); end.listen()
    os.write(os.open('said', os.O_RDWR), b'123')
    peers = [end.accept()[0] for _ in range(3)]
    raise ValueError('root of all')
os.read(os.open('said', os.O_RDONLY), 1)
end.connect('here')
if end.recv(1) == b'': raise RuntimeError('Connection closed by peer')
END
)";
  for (int again = 0; again < (is_full() ? 20 : 3); ++again) {
    check_first_failure({}, program, 1, "ValueError: root of all");
  }
}

}  // namespace dlaunch::process_test
