// Live jobs, looked at and ended from outside: dlaunch ps, stop and status.
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"

#include <csignal>
#include <cstdlib>
#include <sstream>
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

std::string ps(const Folder& folder, Strings arguments = {}) {
  arguments.insert(arguments.begin(), "ps");
  Job asking(std::move(arguments), folder.environment());
  CHECK(asking.wait().code == 0);
  return asking.out();
}

std::vector<json> listed(const Folder& folder) {
  std::istringstream text(ps(folder, {"--json"}));
  std::vector<json> jobs;
  for (std::string line; std::getline(text, line);) jobs.push_back(json::parse(line));
  return jobs;
}

/// What becomes of a node in time is waited for by asking; it is there at once, or soon.
template <class Holds>
bool becomes(Holds holds) {
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    if (holds()) return true;
  }
  return false;
}

Strings sleeper(const std::string& name, const std::string& token) {
  return {"--rdzv-id", name, "--nproc-per-node", "2", victim(), "tree", token};
}

}  // namespace

TEST_CASE("two jobs at once are listed, and one of them is stopped by its name") {
  const Folder folder;
  const std::string first_token = unique_token(), second_token = unique_token();
  Job first(sleeper("first", first_token), folder.environment());
  Job second(sleeper("second", second_token), folder.environment());
  REQUIRE(first.saw("READY", 2));
  REQUIRE(second.saw("READY", 2));

  const auto jobs = listed(folder);
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0]["job"] == "first");
  CHECK(jobs[1]["job"] == "second");
  CHECK(jobs[0]["state"] == "running");
  CHECK(jobs[0]["pid"] == first.pid());
  CHECK(jobs[0]["agent"] == first.agent());
  CHECK(jobs[0]["ranks_here"] == 2);
  CHECK(jobs[0]["world_size"] == 2);
  CHECK(jobs[0]["attempt"] == 0);
  CHECK(jobs[0]["program"] == victim() + " tree " + first_token);
  CHECK(jobs[0]["age"].get<double>() >= 0);
  const std::string text = ps(folder);
  CHECK(text.find("job     state    ranks   age ") == 0);
  CHECK(text.find("first   running  2 of 2  ") != std::string::npos);

  // Which one is not said.
  Job unclear({"stop"}, folder.environment());
  CHECK(unclear.wait().code == 64);
  CHECK(unclear.err().find("several jobs run here; name one\n") != std::string::npos);
  CHECK(unclear.err().find("second  running") != std::string::npos);

  Job stop({"stop", "first"}, folder.environment());
  CHECK(stop.wait().code == 0);
  CHECK(stop.out() ==
        "job first (pid " + std::to_string(first.pid()) + ") has ended with 143 (SIGTERM)\n");
  CHECK(first.wait().code == 143);
  CHECK(all_gone(first_token));
  REQUIRE(listed(folder).size() == 1);

  // The only one needs no name.
  Job last({"stop", "--signal", "SIGINT"}, folder.environment());
  CHECK(last.wait().code == 0);
  CHECK(last.out().ends_with(" has ended with 130 (SIGINT)\n"));
  CHECK(second.wait().code == 130);
  CHECK(ps(folder).find("dlaunch ps: no job of this user runs on this host") == 0);
}

TEST_CASE("a job whose name begins with a dash is named behind --") {
  const Folder folder;
  const std::string token = unique_token();
  Job job(sleeper("-y", token), folder.environment());
  REQUIRE(job.saw("READY", 2));
  CHECK(status(folder, {"--", "-y"}).find("job -y, ") == 0);
  for (const auto* subcommand : {"status", "logs", "stack", "drain", "stop"}) {
    Job option({subcommand, "-y"}, folder.environment());
    CHECK(option.wait().code == 64);
    CHECK_MESSAGE(option.err().find("unknown option -y") != std::string::npos, option.err());
    Job other({subcommand, "--", "-x"}, folder.environment());
    CHECK(other.wait().code != 64);
    CHECK_MESSAGE(other.err().find("-x") != std::string::npos, other.err());
  }
  Job stop({"stop", "--", "-y"}, folder.environment());
  CHECK(stop.wait().code == 0);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("two jobs of one node by one name are both found, and stopped by it") {
  const Folder folder;
  const std::string token = unique_token();
  Job first(sleeper("rr", token), folder.environment());
  REQUIRE(first.saw("READY", 2));
  Job second(sleeper("rr", token), folder.environment());
  REQUIRE(second.saw("READY", 2));
  CHECK(listed(folder).size() == 2);
  const std::string shown = status(folder, {"rr"});
  CHECK(count(shown, "job rr, epoch 1, attempt 0: 2 ranks\n") == 2);
  Job page({"status", "rr", "--timeline", folder.path + "/page.html"}, folder.environment());
  CHECK(page.wait().code == 64);

  // The one that ends first takes nothing of the other's.
  first.send(SIGTERM);
  CHECK(first.wait().code == 143);
  auto jobs = listed(folder);
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0]["pid"] == second.pid());
  CHECK(count(status(folder, {}), "job rr, ") == 1);

  Job third(sleeper("rr", token), folder.environment());
  REQUIRE(third.saw("READY", 2));
  Job stop({"stop", "rr"}, folder.environment());
  CHECK(stop.wait().code == 0);
  INFO(stop.out());
  CHECK(stop.out().starts_with("2 launchers of job rr on this host: each is stopped\n"));
  for (Job* job : {&second, &third}) {
    CHECK(count(stop.out(), "job rr (pid " + std::to_string(job->pid()) +
                                ") has ended with 143 (SIGTERM)\n") == 1);
    CHECK(job->wait().code == 143);
  }
  CHECK(listed(folder).empty());
  CHECK(all_gone(token));
}

TEST_CASE("a job that several stop at the same moment has its time to end") {
  const Folder folder;
  const std::string token = unique_token();
  // Workers that say which signals come, and end on none of them.
  Job job({"--rdzv-id", "pp", "--nproc-per-node", "2", "--shutdown-timeout", "600", victim(),
           "stubborn", token, "0"},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  const auto got = [](int number) { return "] got " + std::to_string(number) + "\n"; };
  Job stop({"stop", "pp"}, folder.environment());
  REQUIRE(job.saw(got(SIGTERM), 2));
  Job again({"stop", "pp", "--timeout", "1ms"}, folder.environment());
  CHECK(again.wait().code == 1);
  Job drain({"drain", "pp"}, folder.environment());
  REQUIRE(drain.saw("which is being stopped (dlaunch stop)"));
  // Neither has sent a signal, which would have killed the workers before this one came.
  job.send(SIGUSR1);
  REQUIRE(job.saw(got(SIGUSR1), 2));
  CHECK(count(job.out(), got(SIGTERM)) == 2);
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  for (Job* tool : {&stop, &drain}) {
    CHECK(tool->wait().code == 0);
    INFO(tool->out() << tool->err());
    CHECK(tool->out().find(") has ended with 143 (SIGTERM)\n") != std::string::npos);
  }
  CHECK(all_gone(token));
}

TEST_CASE("where there is no job, ps says so, and stop fails") {
  const Folder folder;
  // Without it the other place is looked at, where this user's own jobs may be.
  REQUIRE(::mkdir((folder.path + "/dlaunch").c_str(), 0700) == 0);
  CHECK(ps(folder, {"--json"}).empty());
  Job stop({"stop"}, folder.environment());
  CHECK(stop.wait().code == 69);
  CHECK(stop.err().find("dlaunch stop: no job of this user runs on this host") == 0);
  Job unknown({"stop", "demo"}, folder.environment());
  CHECK(unknown.wait().code == 69);
  CHECK(unknown.err().find("no job 'demo' of this user") != std::string::npos);
  Job wrong({"stop", "--signal", "SIGWINCH"}, folder.environment());
  CHECK(wrong.wait().code == 64);
  CHECK(wrong.err().find("'SIGWINCH' is none of SIGTERM, ") != std::string::npos);
}

TEST_CASE("a job whose ranks do not end is told to still run, and is killed by name") {
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "1", "--shutdown-timeout", "1h", "sh", "-c",
           "trap '' TERM; echo READY; while :; do read line; done < /dev/zero; : " + token},
          folder.environment());
  REQUIRE(job.saw("READY"));
  Job stop({"stop", "--timeout", "100ms"}, folder.environment());
  CHECK(stop.wait().code == 1);
  CHECK(stop.err().find(" still runs after 100 ms; ") != std::string::npos);
  CHECK(listed(folder).at(0)["state"] == "stopping");
  Job kill({"stop", "--signal", "SIGKILL"}, folder.environment());
  CHECK(kill.wait().code == 0);
  CHECK(job.wait().signal == SIGKILL);
  CHECK(all_gone(token));
}

TEST_CASE("the place of a killed launcher is no job, and is removed") {
  const Folder folder;
  const std::string token = unique_token();
  Job job(sleeper("killed", token), folder.environment());
  REQUIRE(job.saw("READY", 2));
  const pid_t agent = job.agent();
  // Its front would remove it.
  ::kill(job.pid(), SIGSTOP);
  ::kill(agent, SIGKILL);
  const std::string place = folder.path + "/dlaunch/killed";
  CHECK(becomes([&] { return listed(folder).empty() && ::access(place.c_str(), F_OK) != 0; }));
  ::kill(job.pid(), SIGCONT);
  CHECK(job.wait().code == 70);
  CHECK(all_gone(token));
}

TEST_CASE("another user does not see a job") {
  if (::geteuid() != 0 || ::access("/usr/bin/setpriv", X_OK) != 0) {
    MESSAGE("skipped: only root may be another user");
    return;
  }
  const Folder folder;
  const std::string token = unique_token();
  Job job(sleeper("mine", token), folder.environment());
  REQUIRE(job.saw("READY", 2));
  // A stranger may come as far as the folder.
  REQUIRE(::chmod(folder.path.c_str(), 0755) == 0);
  const auto as_nobody = [&](const std::string& command) {
    return Job({"--reuid", "65534", "--clear-groups", dlaunch_path(), command},
               folder.environment(), "/usr/bin/setpriv");
  };
  Job theirs = as_nobody("ps");
  CHECK(theirs.wait().code == 0);
  CHECK(theirs.out().find("no job of this user runs on this host") != std::string::npos);
  Job stop = as_nobody("stop");
  CHECK(stop.wait().code == 69);
  CHECK(listed(folder).at(0)["state"] == "running");
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("a node that waits for others is listed, shown by status, and can be stopped") {
  const Folder folder;
  const std::string token = unique_token();
  Nodes nodes("3", {victim(), "tree", token}, {"--rdzv-id", "three", "--nproc-per-node", "2"},
              folder.environment());
  nodes.add({"--node-id", "n0"});
  nodes.add({"--node-id", "n1"});
  REQUIRE(becomes([&] { return listed(folder).size() == 2; }));
  const auto jobs = listed(folder);
  REQUIRE(jobs.size() == 2);
  for (int node = 0; node < 2; ++node) {
    const auto& one = jobs[static_cast<std::size_t>(node)];
    CHECK(one["job"] == "three");
    CHECK(one["node"] == "n" + std::to_string(node));
    CHECK(one["state"] == "waiting");
    CHECK(one["ranks_here"] == 2);
    CHECK(one["world_size"].is_null());
    CHECK(one["pid"] == nodes[static_cast<std::size_t>(node)].pid());
  }
  const std::string text = status(folder, {});
  INFO(text);
  CHECK(text.starts_with("job three, waiting for its nodes; here are n0 (pid " +
                         std::to_string(nodes[0].agent()) + "), n1 (pid " +
                         std::to_string(nodes[1].agent()) + ")\n"));
  const auto told = json::parse(status(folder, {"--json"}));
  CHECK(told["waiting"] == true);
  CHECK(told["world_size"] == 0);

  // Both launchers of the job are here, and are stopped.
  Job stop({"stop", "three"}, folder.environment());
  CHECK(stop.wait().code == 0);
  INFO(stop.out());
  CHECK(count(stop.out(), "job three (pid ") == 2);
  CHECK(nodes[0].wait().code == 143);
  nodes[1].wait();
  CHECK(listed(folder).empty());
}

TEST_CASE("status shows again and again what a job does, until it ends") {
  const Folder folder;
  const std::string token = unique_token();
  Job job(sleeper("watched", token), folder.environment());
  REQUIRE(job.saw("READY", 2));
  Job watch({"status", "watched", "--watch", "50ms"}, folder.environment());
  CHECK(watch.saw("job watched, epoch 1, attempt 0: 2 ranks\n", 3));
  // What is no terminal is not cleared.
  CHECK(watch.out().find('\033') == std::string::npos);
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(watch.wait().code == 0);
  Job none({"status", "watched", "--watch", "1"}, folder.environment());
  CHECK(none.wait().code == 69);
  Job both({"status", "--watch", "1", "--flight"}, folder.environment());
  CHECK(both.wait().code == 64);
  CHECK(both.err().find("--flight and --timeline do not go with it") != std::string::npos);
}
