// Jobs that do not go on: what dlaunch says of them, once, and who can ask.
#include "launcher/watch/status_socket.hpp"
#include "tests/process/job.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/failure_block.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using nlohmann::json;

namespace {

std::vector<std::string> command(const std::string& mode, std::vector<std::string> options,
                                 const std::string& seconds = "60", int ranks = 4) {
  options.insert(options.begin(), {"--nproc-per-node", std::to_string(ranks), "--stuck-after",
                                   "300ms", "--shutdown-timeout", "1"});
  options.insert(options.end(),
                 {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), seconds});
  return options;
}

/// Every record, and the divergence, says of which communicator it is.
void check_names(const json& flight) {
  CHECK(flight["divergence"]["communicator_name"] == "world");
  for (const auto& rank : flight["ranks"]) {
    for (const auto& call : rank["records"]) CHECK(call["communicator_name"] == "world");
  }
}

constexpr const char* waits = "ranks 0-2 wait; absent: rank 3 (";

}  // namespace

TEST_CASE("a stuck call is told once, with who is absent and what it does") {
  const Folder folder;
  Job job(command("compute", {}), folder.environment());
  REQUIRE(job.saw(waits));
  CHECK(job.err().find("all_reduce #3 (sum, f32, 1 element) [stuck_rank.cpp:") !=
        std::string::npos);
  CHECK(job.err().find("rank 3 (in no call for ") != std::string::npos);
  CHECK(job.err().find(", after all_reduce #2 [stuck_rank.cpp:") != std::string::npos);
  job.send(SIGTERM);
  job.wait();
  CHECK(count(job.err(), "has been waiting for") == 1);
}

TEST_CASE("a communicator's own limit counts where the launcher has none") {
  const Folder folder;
  Job job(command("own limit", {"--stuck-after", "0"}), folder.environment());
  REQUIRE(job.saw(waits));
  job.send(SIGTERM);
  job.wait();
}

TEST_CASE("status finds a job while it is stuck, and who is behind") {
  const Folder folder;
  Job job(command("compute", {"--rdzv-id", "demo"}), folder.environment());
  REQUIRE(job.saw(waits));

  const std::string text = status(folder, {});
  CHECK(text.find("job demo, epoch 1, attempt 0: 4 ranks") != std::string::npos);
  CHECK(text.find("stuck: all_reduce #3") != std::string::npos);
  const auto told = json::parse(status(folder, {"demo", "--json"}));
  REQUIRE(told["ranks"].size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto& one = told["ranks"][static_cast<std::size_t>(rank)];
    CHECK(one["rank"] == rank);
    CHECK(one["state"] == "running");
    CHECK(one["behind"] == (rank == 3 ? 1 : 0));
    CHECK(
        one["doing"].get<std::string>().starts_with(rank == 3 ? "in no call" : "in all_reduce #3"));
  }
  const auto flight = json::parse(status(folder, {"--flight"}));
  CHECK(flight["divergence"]["kind"] == "absent");
  CHECK(flight["divergence"]["sequence"] == 3);
  CHECK(flight["divergence"]["absent"] == json::array({3}));
  CHECK(flight["ranks"][0]["records"].back()["diverges"] == true);
  CHECK(flight["ranks"][0]["waiting"][0]["waits_for"] == 3);
  const std::string page = folder.path + "/page.html";
  CHECK(status(folder, {"--timeline", page}) == page + "\n");
  std::ifstream file(page);
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  CHECK(html.find("stuck_rank.cpp:") != std::string::npos);
  CHECK(html.find("src=") == std::string::npos);  // Nothing is fetched.

  job.send(SIGTERM);
  job.wait();
  Job nobody({"status"}, folder.environment());
  CHECK(nobody.wait().code == 69);
  CHECK(nobody.err().find("no job of this user runs on this host") != std::string::npos);
}

TEST_CASE("a stopped rank is named as stopped, by the agent and by those who wait") {
  const Folder folder;
  Job job(command("stop", {}, "2"), folder.environment());
  REQUIRE(job.saw("absent: rank 3 (stopped by a signal"));
  job.wait();
  CHECK(count(job.err(), "waited 2 s; absent: rank 3 (stopped by a signal, ") >= 1);
}

TEST_CASE("a rank that waits elsewhere is named with where") {
  const Folder folder;
  // The agents say so, or the ranks, which find out that they wait for each other.
  Job job(command("elsewhere", {"--stuck-after", "100ms"}), folder.environment());
  REQUIRE(job.saw("in barrier #1 of 'world/members1(3,0)' [stuck_rank.cpp:"));
  job.send(SIGTERM);
  job.wait();
}

TEST_CASE("ranks that have returned from a call with different roots are told by the agent") {
  const Folder folder;
  Job job(command("roots", {}), folder.environment());
  REQUIRE(job.saw("the ranks do not agree: rank "));
  CHECK(job.saw("broadcast #3 (f32, 1 element, root 0) [stuck_rank.cpp:"));
  CHECK(job.saw("rank 3 made broadcast #3 (f32, 1 element, root 3) [stuck_rank.cpp:"));
  job.send(SIGTERM);
  job.wait();
  CHECK(count(job.err(), "the ranks do not agree") == 1);
}

TEST_CASE("ranks that wait for each other in different calls are all told so, with both") {
  for (const std::string mode : {"group", "swapped", "crossed", "probed", "ssent"}) {
    CAPTURE(mode);
    const Folder folder;
    Job job(command(mode, {"--stuck-after", "20s"}), folder.environment());
    CHECK(job.wait().code == 1);
    INFO(job.err());
    for (int rank = 0; rank < 4; ++rank) {
      const std::string begin = "[" + std::to_string(rank) + "] stuck_rank: ";
      const auto at = job.err().find(begin);
      REQUIRE(at != std::string::npos);
      const std::string said = job.err().substr(at, job.err().find('\n', at) - at);
      CHECK(said.find("the ranks wait for each other: rank") != std::string::npos);
      CHECK((said.find("rank 3 is in ") != std::string::npos ||
             said.find("ranks 3, ") != std::string::npos));
      CHECK(count(said, " [stuck_rank.cpp:") == 2);
    }
  }
}

TEST_CASE("ranks that ssend to each other, of which none receives, are told so") {
  const Folder folder;
  Job job(command("ssends", {"--stuck-after", "20s"}, "60", 2), folder.environment());
  CHECK(job.wait().code == 1);
  INFO(job.err());
  CHECK(count(job.err(), "] stuck_rank: ") == 2);
  for (const std::string peer : {"0", "1"}) {
    CHECK(count(job.err(), "is in ssend to rank " + peer + " ") >= 2);
  }
}

TEST_CASE("ranks that send to each other, of which none receives, are told by the agent") {
  const Folder folder;
  Job job(command("sends", {}, "60", 2), folder.environment());
  REQUIRE(job.saw(" for each other"));
  job.send(SIGTERM);
  job.wait();
  CHECK(job.err().find("; ranks 0-1 wait for each other") != std::string::npos);
  CHECK(job.err().find("send to rank 0 (tag 0) ") != std::string::npos);
  CHECK(job.err().find("send to rank 1 (tag 0) ") != std::string::npos);
}

TEST_CASE("ranks that say themselves that they do not agree are not told by the agent, too") {
  const Folder folder;
  Job job(command("roots, then more", {}), folder.environment());
  CHECK(job.wait().code == 1);
  CHECK(count(job.err(), "broadcast #3 (f32, 1 element, root 3)") >= 4);  // Each rank's own words.
  CHECK(count(job.err(), "the ranks do not agree") == 0);
}

TEST_CASE("a rank that has not come is named as such") {
  const Folder folder;
  Job job(command("silent", {}, "60", 2), folder.environment());
  REQUIRE(job.saw("absent: rank 1 (it has made no communicator yet)"));
  job.send(SIGTERM);
  job.wait();
}

TEST_CASE("an early end is a failure whose root cause is the one who left") {
  const Folder folder;
  Job job(command("exit", {}), folder.environment());
  CHECK(job.wait().code == 75);
  CHECK(count(job.err(), "lost rank 3 on ") >= 3);
  CHECK(testing::field_of(testing::failure_block(job.err()), "cause") ==
        "rank 3 exited with 0 before the others");
}

TEST_CASE("the last calls of a killed rank, and of those who waited for it, are written") {
  const Folder folder;
  const std::string path = folder.path + "/flight.json";
  Job job(command("kill", {"--flight-file", path}), folder.environment());
  CHECK(job.wait().signal == 0);
  CHECK(testing::field_of(testing::failure_block(job.err()), "see") ==
        "every rank's last calls: " + path);
  std::ifstream file(path);
  const auto flight = json::parse(file);
  REQUIRE(flight["ranks"].size() == 4);
  const auto& dead = flight["ranks"][3];
  CHECK(dead["end"] == "killed by SIGKILL");
  REQUIRE(dead["records"].size() == 2);
  CHECK(dead["records"][1]["op"] == "all_reduce");
  CHECK(dead["records"][1]["state"] == "done");
  CHECK(flight["ranks"][0]["records"].back()["state"] == "failed");
  CHECK(flight["divergence"]["absent"] == json::array({3}));
  // The survivors' communicators have ended since.
  CHECK(flight["ranks"][0]["communicators"][0]["ended"] == true);
  CHECK(dead["communicators"][0]["ended"] == false);
  check_names(flight);
}

TEST_CASE("after a mismatch the first call that differs is marked") {
  const Folder folder;
  const std::string path = folder.path + "/flight.json";
  Job job(command("differ", {"--flight-file", path}), folder.environment());
  CHECK(job.wait().code == 1);
  std::ifstream file(path);
  const auto flight = json::parse(file);
  CHECK(flight["divergence"]["kind"] == "mismatch");
  CHECK(flight["divergence"]["sequence"] == 3);
  const auto& calls = flight["divergence"]["calls"];
  REQUIRE(calls.size() == 4);
  CHECK(calls[0]["call"] == "all_reduce #3 (sum, f32, 1 element)");
  CHECK(calls[3]["call"] == "broadcast #3 (f32, 1 element, root 0)");
  check_names(flight);
}

TEST_CASE("workers without the runtime: who still runs is told, and ended when that is asked for") {
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", "--straggler-timeout", "300ms", "--shutdown-timeout", "1", "sh",
           "-c", "test $RANK = 0 || exec tail -f /dev/null; : " + token},
          folder.environment());
  CHECK(job.wait().code == 80);
  CHECK(job.err().find("rank 0 exited with 0, ") != std::string::npos);
  CHECK(job.err().find(" ago, and rank 1 still runs: the job is ended (--straggler-timeout)") !=
        std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("workers without the runtime: who still runs is told, and the job goes on") {
  const Folder folder;
  Job job({"--nproc-per-node", "2", "--straggler-notice", "300ms", "--shutdown-timeout", "1", "sh",
           "-c", "test $RANK = 0 || exec tail -f /dev/null; : " + unique_token()},
          folder.environment());
  REQUIRE(job.saw(" ago, and rank 1 still runs; --straggler-timeout ends such a job\n"));
  CHECK(count(job.err(), "rank 0 exited with 0, ") == 1);
  const auto told = json::parse(status(folder, {"--json"}));
  CHECK(told["ranks"][0]["state"] == "ended");
  CHECK(told["ranks"][1]["doing"] == "no call of libdlaunch so far");
  CHECK(told["ranks"][1]["behind"].is_null());
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("a worker that never becomes ready ends the job, with its last words") {
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", "--ready-timeout", "3", "--shutdown-timeout", "1", "bash", "-c",
           "if test $RANK = 1; then echo loading data >&2; "
           "else exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; fi; exec tail -f /dev/null; : " +
               token});
  CHECK(job.wait().code == 80);
  INFO(job.err());
  CHECK(job.err().find("rank 1 never became ready: neither World::init nor MPI_Init nor a "
                       "connection to PyTorch's store within 3 s: the attempt is ended "
                       "(--ready-timeout)\n") != std::string::npos);
  CHECK(job.err().find("dlaunch: rank 1 wrote last: loading data\n") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("workers that have come to PyTorch's store are ready") {
  Job job({"--nproc-per-node", "2", "--ready-timeout", "3", "bash", "-c",
           "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; exec sleep 4"});
  CHECK(job.wait().code == 0);
  INFO(job.err());
  CHECK(job.err().find("ready") == std::string::npos);
}

TEST_CASE("workers without the runtime: who is stopped is told") {
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", "--stuck-after", "300ms", "--shutdown-timeout", "1", victim(),
           "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  const auto told = json::parse(status(folder, {"--json"}));
  const pid_t pid = told["ranks"][1]["pid"].get<pid_t>();
  ::kill(pid, SIGSTOP);
  REQUIRE(job.saw("rank 1 (pid " + std::to_string(pid) + ") has been stopped by a signal for "));
  CHECK(json::parse(status(folder, {"--json"}))["ranks"][1]["doing"] == "stopped by a signal");
  ::kill(pid, SIGCONT);
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("workers without the runtime: one that left with 0 is not blamed for a later failure") {
  const Folder folder;
  // Rank 0 fails when its launcher has seen the end of rank 1.
  const std::string pid = folder.path + "/pid";
  Job job({"--nproc-per-node", "2", "--result", folder.path + "/result", "sh", "-c",
           "test $RANK = 0 || { echo $$ > " + pid + "; exit 0; }; until test -s " + pid +
               "; do :; done; while kill -0 $(cat " + pid + ") 2> /dev/null; do :; done; exit 5"},
          folder.environment());
  CHECK(job.wait().code == 5);
  const auto block = testing::failure_block(job.err());
  CHECK(testing::field_of(block, "cause").starts_with("rank 0 "));
  CHECK(testing::field_of(block, "others") == "rank 1 exited with 0");
  CHECK(count(job.err(), "rank 1") == 1);
  std::ifstream file(folder.path + "/result");
  CHECK(json::parse(file)["attempts"][0]["root_cause"] == 0);
}

TEST_CASE("what a killed agent left behind is removed by its front, or by the next agent") {
  const Folder folder;
  const std::string token = unique_token();
  const std::string place = folder.path + "/dlaunch/old/n0.sock";
  Job job({"--rdzv-id", "old", "--node-id", "n0", "--nproc-per-node", "2", victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  REQUIRE(::access(place.c_str(), F_OK) == 0);
  const pid_t agent = job.agent();
  SUBCASE("by its front") { ::kill(agent, SIGKILL); }
  SUBCASE("by the next agent") {
    ::kill(job.pid(), SIGSTOP);
    ::kill(agent, SIGKILL);
    Job next({"--nproc-per-node", "2", "true"}, folder.environment());
    CHECK(next.wait().code == 0);
    CHECK(::access(place.c_str(), F_OK) != 0);
    ::kill(job.pid(), SIGCONT);
  }
  CHECK(job.wait().code == 70);
  CHECK(::access(place.c_str(), F_OK) != 0);
  CHECK(all_gone(token));
}

TEST_CASE("where there is no place for status sockets the job runs, and says so") {
  const Folder folder;
  // Others may enter it: no place for this.
  REQUIRE(::mkdir((folder.path + "/dlaunch").c_str(), 0755) == 0);
  REQUIRE(::chmod((folder.path + "/dlaunch").c_str(), 0755) == 0);
  Job job({"--nproc-per-node", "1", "true"}, folder.environment());
  CHECK(job.wait().code == 0);
}
