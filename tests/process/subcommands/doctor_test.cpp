// dlaunch doctor on this host, and what it says of a host and port.
#include "runtime/base/os/socket.hpp"
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using nlohmann::json;

namespace {

struct Answer {
  int code = 0;
  json told;
  json about(const std::string& what) const {
    const auto& all = told["findings"];
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const json& finding) { return finding["about"] == what; });
    return found == all.end() ? json() : *found;
  }
};

Answer doctor(Strings arguments, const Job::Environment& environment = {}) {
  arguments.insert(arguments.begin(), {"doctor", "--json"});
  Job job(std::move(arguments), environment);
  Answer answer{.code = job.wait().code, .told = json::parse(job.out())};
  CHECK(job.err().empty());
  // The code says whether there is a problem.
  CHECK(answer.code == (answer.told["problems"] == 0 ? 0 : 1));
  return answer;
}

}  // namespace

TEST_CASE("this host is looked at, and all is said") {
  const Answer answer = doctor({}, {{"SLURM_JOB_ID", "7"}});
  CHECK(answer.told["findings"].size() == 15);
  CHECK(answer.about("loopback")["level"] == "ok");
  CHECK(answer.about("loopback")["text"] == "127.0.0.1 can be reached");
  CHECK(answer.about("interfaces")["text"].get<std::string>().find("127.0.0.1") !=
        std::string::npos);
  CHECK(answer.about("scheduler")["text"].get<std::string>().find("SLURM_JOB_ID") !=
        std::string::npos);
  Job text({"doctor"});
  text.wait();
  CHECK(text.out().find("loopback") != std::string::npos);
  CHECK(text.out().ends_with(" warnings\n"));
}

TEST_CASE("the Python that would run a script is asked") {
  const testing::TemporaryFolder folder;
  const auto python = [&](const std::string& program) {
    return doctor({}, {{"PYTHON_EXEC", program}}).about("python");
  };
  CHECK(python("/no/such/python")["text"] == "there is none");
  CHECK(python("/bin/false")["text"] == "/bin/false does not run");
  CHECK(python("/bin/echo")["text"] == "/bin/echo does not run");
}

TEST_CASE("a peer is told by who answers there") {
  // A launcher that waits for another node hosts its job.
  const Folder folder;
  Nodes nodes("2", {"true"}, {"--rdzv-id", "peer"}, folder.environment());
  Job& job = nodes.add({"--node-id", "n0"});
  const auto peer_at = [](const std::string& endpoint) {
    const Answer answer = doctor({"--peer", endpoint});
    CHECK(answer.told["findings"].size() == 16);
    return answer.about("peer");
  };
  const auto deadline = Clock::now() + patience;
  json peer;
  do {
    peer = peer_at(nodes.endpoint());
  } while (peer["level"] != "ok" && Clock::now() < deadline);
  CHECK(peer["text"].get<std::string>().starts_with(nodes.endpoint() + " is reached in "));
  CHECK(
      peer["text"].get<std::string>().ends_with(" is a dlaunchd, or a launcher that hosts a job"));
  job.send(SIGTERM);
  job.wait();

  const std::string nobody = "127.0.0.1:" + std::to_string(free_port());
  peer = peer_at(nobody);
  CHECK(peer["level"] == "problem");
  CHECK(peer["text"].get<std::string>().starts_with(nobody + " is not reached: "));

  const unique_fd listening = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string other = local_address(listening.get()).to_string();
  std::jthread server([&] {
    const unique_fd client(::accept(listening.get(), nullptr, nullptr));
    ::send(client.get(), "220 mail.example.org\r\n", 22, MSG_NOSIGNAL);
  });
  peer = peer_at(other);
  CHECK(peer["level"] == "problem");
  CHECK(peer["text"].get<std::string>().ends_with(", and is no dlaunchd or launcher"));
}

TEST_CASE("other hosts are asked for their time, by what --ssh names") {
  const testing::TemporaryFolder folder;
  // A host on which it is an hour later, one that does not know parts of a second, and one that
  // nobody can log in to.
  const std::string ssh = folder.path() / "ssh";
  std::ofstream(ssh) << R"(#!/bin/sh
date() { case $host in
  late) set -- $(command date +%s.%N | tr . ' '); echo $(($1 + 3600)).$2 ;;
  old) echo 1795442400.N ;;
  *) command date "$@" ;;
esac; }
host=$1
test $host != closed || exit 255
eval "$2"
)";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  const Answer answer = doctor({"--hosts", "same,late:4,old,closed,.", "--ssh", ssh});
  CHECK(answer.told["findings"].size() == 19);
  CHECK(answer.about("clock of same")["level"] == "ok");
  const auto late = answer.about("clock of late");
  CHECK(late["level"] == "warning");
  CHECK(late["text"].get<std::string>().find(" ms ahead of this host's, within ") !=
        std::string::npos);
  CHECK(answer.about("clock of old")["text"] ==
        "it is not known: its date does not tell parts of a second");
  CHECK(answer.about("clock of closed")["text"] ==
        "it is not known: " + ssh + " does not get there, or not in time");
  const auto nothing = doctor({"--hosts", "b", "--ssh", "/no/such/ssh"}).about("clock of b");
  CHECK(nothing["text"] == "it is not known: there is no program '/no/such/ssh'");
}

TEST_CASE("a peer that cannot be one is refused") {
  Job job({"doctor", "--peer", "http://head"});
  CHECK(job.wait().code == 64);
  CHECK(job.err().find("dlaunch doctor: --peer http://head") != std::string::npos);
}
