// What operators ask of a daemon that keeps its state: a backup while nodes change it, and drains
// that it remembers.
#include "launcher/subcommands/daemon_http.hpp"
#include "rendezvous/state/state_file.hpp"
#include "runtime/base/text/values.hpp"
#include "tests/process/nodes/durable_history.hpp"
#include "tests/process/subcommands/operated.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/stat.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
namespace request = dlaunch::store::request;
using testing::contains;

namespace {

/// A daemon with its state on disk.
struct Keeper {
  explicit Keeper(std::string file = "")
      : path(file.empty() ? (folder.path() / "state.db").string() : std::move(file)) {}
  std::string saved(const std::string& name) const { return path + "-backups/" + name + ".db"; }

  testing::TemporaryFolder folder;
  const std::string path;
  OperatedDaemon cluster{{"--state", "sqlite:" + path}};
};

/// A key of the job's only namespace in a copy; empty where it is not there.
std::string value_in(const rendezvous::StateContents& contents, const std::string& job,
                     const std::string& key) {
  for (const auto& [name, space] : contents.spaces) {
    if (name.job != job) continue;
    for (const auto& each : space.contents.keys) {
      if (each.key == key) return std::string(as_text(each.value));
    }
  }
  return "";
}

rendezvous::StateContents contents_of(const std::string& path) {
  return rendezvous::StateFile::open_existing(path).load();
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The only node of a job, which fills the state.
struct Filler {
  explicit Filler(const Daemon& daemon) {
    gate.open(address_of(daemon));
    auto join = test::node("n", 1);
    join.rules.liveness.lease = std::chrono::hours(1);  // It sends no heartbeats.
    node = std::make_unique<DurableNode>(gate, "filled", 7, join);
  }
  std::string set(const std::string& key, std::size_t bytes) const {
    return node->refusal(request::Set{key, Bytes(bytes, std::byte{'v'})});
  }
  Gate gate;
  std::unique_ptr<DurableNode> node;
};

launcher::DaemonAnswer asked(const OperatedDaemon& cluster, const std::string& method,
                             const std::string& target) {
  const auto at = read_endpoint(cluster.http());
  const auto& [host, port] = std::get<EndpointAsked>(at);
  launcher::DaemonRequest asked{method, target, ""};
  if (method != "GET") asked.token = "0123456789abcdef0123456789abcdef";
  return launcher::ask_daemon(host, *port, asked, test::soon());
}

}  // namespace

TEST_CASE("what was answered before a backup began is in it, while 64 clients go on") {
  constexpr int jobs = 4, nodes_per_job = 16;
  const Keeper keeper;
  Gate gate;
  gate.open(address_of(keeper.cluster.daemon));
  const Filler filler(keeper.cluster.daemon);
  // So that a copy takes many steps.
  for (int i = 0; i < 16; ++i) REQUIRE(filler.set("k" + std::to_string(i), 1u << 20).empty());
  DurableLoad load(gate, jobs, nodes_per_job);
  for (int i = 0; i < 3; ++i) {
    load.await_steps(200);
    const std::string mark = std::to_string(i);
    filler.node->ask<wire::Done>(request::Set{"mark", as_bytes(mark)});
    const std::string name = "under-load-" + mark;
    const auto said = keeper.cluster.ctl({"backup", name});
    CHECK_MESSAGE(said.code == 0, said.err);
    CHECK(contains(said.out, "saved in '" + keeper.saved(name) + "': "));
    const auto contents = contents_of(keeper.saved(name));
    CHECK(value_in(contents, "filled", "mark") == mark);
    // A counter, and the log that grew beside it.
    for (int job = 0; job < jobs; ++job) {
      const std::string id = "job-" + std::to_string(job);
      CHECK(std::stoi("0" + value_in(contents, id, "n")) > 0);
      CHECK(value_in(contents, id, "log").size() % 8 == 0);
    }
    CHECK(contents.spaces.size() == jobs + 1);
    CHECK_FALSE(std::filesystem::exists(keeper.saved(name) + "-wal"));
    struct stat file {};
    REQUIRE(::stat(keeper.saved(name).c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
  }
  load.stop_and_check();
  filler.node->end();
  REQUIRE(keeper.cluster.daemon.job().saw("backup 'under-load-2': saved in"));

  const std::string again = keeper.path + "-again";
  for (const auto& line :
       {Strings{"check", keeper.saved("under-load-2")},
        Strings{"restore", keeper.saved("under-load-2"), again}, Strings{"check", again}}) {
    Job command(line, {}, Daemon::path());
    CHECK_MESSAGE(command.wait().code == 0, command.err());
  }
}

TEST_CASE("one backup is made at a time, and none takes the place of another") {
  const Keeper keeper;
  const Filler filler(keeper.cluster.daemon);
  for (int i = 0; i < 64; ++i) REQUIRE(filler.set("k" + std::to_string(i), 1u << 20).empty());
  const std::string first = "/api/v1/backups/first", second = "/api/v1/backups/second";
  CHECK(asked(keeper.cluster, "GET", first).code == 404);
  CHECK(asked(keeper.cluster, "POST", first).code == 200);
  const auto refused = asked(keeper.cluster, "POST", second);
  // Where the first was over already, the second is made.
  if (refused.code != 200) {
    CHECK(refused.code == 409);
    CHECK(refused.body == "the backup 'first' is under way; one is made at a time\n");
    CHECK(asked(keeper.cluster, "GET", second).code == 404);
  }
  const std::string& last = refused.code == 200 ? second : first;
  while (asked(keeper.cluster, "GET", last).code == 202) continue;
  CHECK(asked(keeper.cluster, "GET", last).code == 200);
  const auto again = keeper.cluster.ctl({"backup", "first"});
  CHECK(again.code == 1);
  CHECK(again.err == "dlaunch ctl: it failed: '" + keeper.saved("first") +
                         "' is there already; move it away first\n");
  CHECK(contains(keeper.cluster.ctl({"backup", "../first"}).err,
                 "a backup's name has at most 64 letters, digits, '-' and '_'"));
  CHECK(contains(keeper.cluster.ctl({"backup", std::string(65, 'x')}).err, "at most 64 letters"));
  CHECK(contents_of(keeper.saved("first")).spaces.size() == 1);
  filler.node->end();
}

TEST_CASE("a backup that cannot be written is refused with the reason, and nothing else suffers") {
  const Keeper keeper;
  const Filler filler(keeper.cluster.daemon);
  const std::string folder = keeper.path + "-backups";
  std::ofstream(folder) << "no folder";
  auto said = keeper.cluster.ctl({"backup", "a"});
  CHECK(said.code == 1);
  CHECK(said.err ==
        "dlaunch ctl: it failed: cannot write '" + folder + "/unfinished.part': Not a directory\n");
  std::filesystem::remove(folder);
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink("nowhere", keeper.saved("link"));
  CHECK(contains(keeper.cluster.ctl({"backup", "link"}).err, "is there already"));
  CHECK(filler.set("k", 1).empty());
  if (::mount("tmpfs", folder.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0) {
    testing::skipped("a small disk takes root: mount");
  } else {
    said = keeper.cluster.ctl({"backup", "b"});
    CHECK(contains(said.err, "unfinished.part': Read-only file system"));
    ::umount2(folder.c_str(), MNT_DETACH);
  }
  CHECK(keeper.cluster.ctl({"backup", "c"}).code == 0);
  filler.node->end();
}

TEST_CASE("a backup for which the disk has no room is given up, and leaves nothing") {
  const Keeper keeper;
  const Filler filler(keeper.cluster.daemon);
  for (int i = 0; i < 8; ++i) REQUIRE(filler.set("k" + std::to_string(i), 1u << 20).empty());
  const std::string folder = keeper.path + "-backups";
  std::filesystem::create_directory(folder);
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") != 0) {
    return testing::skipped("a small disk takes root: mount");
  }
  const auto said = keeper.cluster.ctl({"backup", "a"});
  CHECK(said.code == 1);
  CHECK(said.err == "dlaunch ctl: it failed: cannot write '" + folder +
                        "/unfinished.part': no space left on device\n");
  CHECK(files_in(folder).empty());
  CHECK(filler.set("k", 1).empty());
  REQUIRE(::mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0);
  CHECK(keeper.cluster.ctl({"backup", "a"}).code == 0);
  CHECK(files_in(folder) == std::vector<std::string>{"a.db"});
  ::umount2(folder.c_str(), MNT_DETACH);
  filler.node->end();
}

TEST_CASE("a backup never takes the room that the state needs") {
  const testing::TemporaryFolder disk;
  if (::mount("tmpfs", disk.path().c_str(), "tmpfs", 0, "size=128m") != 0) {
    return testing::skipped("a small disk takes root: mount");
  }
  {
    const Keeper keeper((disk.path() / "state.db").string());
    const Filler filler(keeper.cluster.daemon);
    // State, its log and the reserve leave less than another such state.
    for (int i = 0; i < 40; ++i) REQUIRE(filler.set("k" + std::to_string(i), 1u << 20).empty());
    const auto said = keeper.cluster.ctl({"backup", "a"});
    CHECK_MESSAGE(said.code == 1, said.out);
    CHECK(files_in(keeper.path + "-backups").empty());
    const auto deadline = test::soon();
    while (!filler.set("more", 1u << 20).empty()) REQUIRE(Clock::now() < deadline);
    filler.node->end();
  }
  ::umount2(disk.path().c_str(), MNT_DETACH);
}

TEST_CASE("a daemon that is killed in the middle leaves no file that is taken for a backup") {
  const Keeper keeper;
  const std::string folder = keeper.path + "-backups";
  {
    const Filler filler(keeper.cluster.daemon);
    for (int i = 0; i < 64; ++i) REQUIRE(filler.set("k" + std::to_string(i), 1u << 20).empty());
  }
  // As often as it takes to kill one that has begun, and has not come to its end.
  std::string half;
  for (int tries = 0; half.empty(); ++tries) {
    const std::string name = "half-" + std::to_string(tries);
    REQUIRE(asked(keeper.cluster, "POST", "/api/v1/backups/" + name).code == 200);
    const auto deadline = test::soon();
    while (!std::filesystem::exists(folder + "/unfinished.part") &&
           !std::filesystem::exists(keeper.saved(name))) {
      REQUIRE(Clock::now() < deadline);
    }
    keeper.cluster.daemon.kill();
    if (!std::filesystem::exists(keeper.saved(name))) half = name;
    keeper.cluster.daemon.start();
  }
  CHECK(std::filesystem::exists(folder + "/unfinished.part"));
  CHECK_FALSE(std::filesystem::exists(keeper.saved(half)));
  CHECK(asked(keeper.cluster, "GET", "/api/v1/backups/" + half).code == 404);
  const auto said = keeper.cluster.ctl({"backup", half});
  CHECK_MESSAGE(said.code == 0, said.err);
  CHECK_FALSE(std::filesystem::exists(folder + "/unfinished.part"));
  CHECK(contents_of(keeper.saved(half)).spaces.begin()->second.contents.keys.size() == 64);
}

TEST_CASE("where nothing is kept on disk there is nothing to save") {
  const OperatedDaemon cluster;
  const auto said = cluster.ctl({"backup", "a"});
  CHECK(said.code == 1);
  CHECK(contains(said.err, "the state is in memory alone"));
}

TEST_CASE("a job and a daemon that are drained stay so when the daemon is killed") {
  const Keeper keeper;
  const auto& cluster = keeper.cluster;
  const std::string mark = unique_token();
  const auto line = [&](const std::string& job, const std::string& id, const Strings& program) {
    return cluster.daemon.line(
        job, {"--nnodes", job == "j" ? "1:3" : "1", "--node-id", id, "--rdzv-role", "join"},
        program);
  };
  const Strings waits = {victim(), "wait", mark};
  Job a(line("j", "a", waits)), b(line("j", "b", waits)), c(line("j", "c", waits));
  for (Job* job : {&a, &b, &c}) REQUIRE(job->saw("READY"));
  CHECK(cluster.ctl({"drain", "j", "--reason", "new cables"}).code == 0);
  CHECK(cluster.ctl({"drain", "--reason", "moved"}).code == 0);
  cluster.daemon.kill();
  cluster.daemon.start();
  REQUIRE(
      cluster.daemon.job().saw("drained by operator 'ada': moved, before this start: no new job "
                               "is taken until 'dlaunch ctl resume'"));
  REQUIRE(a.saw("goes on with all 3 nodes"));
  CHECK(contains(cluster.ctl({"jobs"}).out, "running, drained"));
  const auto refusal = [&](const std::string& job) {
    Job late(line(job, "late", waits));
    CHECK(late.wait().code == 69);
    return late.err();
  };
  CHECK(
      contains(refusal("j"), "is being drained by operator 'ada': new cables: no node is let in"));
  CHECK(contains(refusal("k"), "this rendezvous is being drained and takes no new job"));
  CHECK(cluster.ctl({"resume"}).code == 0);
  CHECK(cluster.ctl({"stop", "j"}).code == 0);
  for (Job* job : {&a, &b, &c}) CHECK(job->wait().code == 143);
  cluster.daemon.kill();
  cluster.daemon.start();
  Job taken(line("k", "again", {"/bin/true"}));
  CHECK_MESSAGE(taken.wait().code == 0, taken.err());
  CHECK(all_gone(mark));
}
