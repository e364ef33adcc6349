// A job that is started on other hosts; an ssh of the test's own starts its lines on this one.
#include "tests/process/job.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>

namespace fs = std::filesystem;

namespace dlaunch::process_test {
namespace {

/// Hosts by any name are this one, save "gone", which cannot be reached.
class Ssh {
 public:
  Ssh() {
    std::string pattern = (fs::temp_directory_path() / "dlaunch_ssh_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder_ = fs::canonical(pattern).string();
    std::ofstream(path()) << "#!/bin/sh\n"
                             "if [ \"$1\" = gone ]; then\n"
                             "  echo 'ssh: connect to host gone port 22: Connection refused' >&2\n"
                             "  exit 255\n"
                             "fi\n"
                             "shift\n"
                             "exec sh -c \"$*\"\n";
    fs::permissions(path(), fs::perms::owner_all);
  }
  Ssh(const Ssh&) = delete;
  Ssh& operator=(const Ssh&) = delete;
  ~Ssh() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/ssh"; }

  std::vector<std::string> line(const std::string& hosts,
                                const std::vector<std::string>& rest) const {
    std::vector<std::string> all = {"--hosts", hosts, "--ssh", path()};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

 private:
  std::string folder_;
};

/// What each rank says, for three on two hosts.
const std::string place = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK, node $GROUP_RANK $A in $PWD.";

}  // namespace

TEST_CASE("hosts: ranks in the hosts' order, with variables, directory and output") {
  const Ssh ssh;
  Job job(
      ssh.line("localhost:2,127.0.0.1:1", {"--env", "A", "--cwd", ssh.folder(), "sh", "-c", place}),
      {{"A", "it's $A"}});
  CHECK(job.wait().code == 0);
  const std::string end = " it's $A in " + ssh.folder() + ".\n";
  CHECK(job.out().find(":0] 0 of 3, 0, node 0" + end) != std::string::npos);
  CHECK(job.out().find(":1] 1 of 3, 1, node 0" + end) != std::string::npos);
  CHECK(job.out().find(":2] 2 of 3, 0, node 1" + end) != std::string::npos);
  // They have one, which nobody had to give them.
  CHECK(job.err().find("secret") == std::string::npos);
}

TEST_CASE("hosts: the first failure's code is the job's, and is told") {
  const Ssh ssh;
  const std::string token = unique_token();
  Job job(ssh.line("localhost,.",
                   {"sh", "-c", "[ $RANK = 0 ] || exit 7; exec " + victim() + " wait " + token}));
  CHECK(job.wait().code == 7);
  CHECK(job.err().find("rank 1") != std::string::npos);
  CHECK(all_gone(token));
  // All hosts know of it, and it is told once.
  CHECK(count(job.err(), "sh FAILED\n") == 1);
  CHECK(count(job.err(), "dlaunch: epoch 1: 2 nodes, 2 workers\n") == 1);
  Job none(ssh.line("localhost,.", {"./nosuch"}));
  CHECK(none.wait().code == 127);
  CHECK(count(none.err(), "dlaunch: there is no file './nosuch'\n") == 1);
}

TEST_CASE("hosts: each writes a --result of its own") {
  const Ssh ssh;
  const std::string result = ssh.folder() + "/r.json";
  Job job(ssh.line("localhost:2,.", {"--result", result, "true"}));
  CHECK(job.wait().code == 0);
  CHECK(fs::file_size(result) > fs::file_size(result + ".1"));
  CHECK_FALSE(fs::exists(result + ".0"));
}

TEST_CASE("hosts: a name that only ssh knows: what helps is said") {
  const Ssh ssh;
  Job job(ssh.line("a.invalid,b.invalid", {"--rdzv-conf", "join_timeout=500ms", "true"}));
  CHECK(job.wait().code == 69);
  CHECK(job.err().find("looking up the host name 'a.invalid'") != std::string::npos);
  CHECK(job.err().find("--rdzv-endpoint gives it a name or an address") != std::string::npos);
}

TEST_CASE("hosts: one that cannot be reached is named, and the others are stopped") {
  const Ssh ssh;
  const std::string token = unique_token();
  Job job(ssh.line("localhost,gone,localhost", {victim(), "wait", token}));
  CHECK(job.wait().code == 69);
  CHECK(job.err().find("ssh: connect to host gone port 22: Connection refused\n") !=
        std::string::npos);
  CHECK(job.err().find("dlaunch: host gone: ssh exited with 255 (ssh: connect to host gone port "
                       "22: Connection refused); the others are stopped\n") != std::string::npos);
  CHECK(all_gone(token));
  Job no_ssh({"--hosts", "localhost", "--ssh", "/no/such/ssh", "true"});
  CHECK(no_ssh.wait().code == 127);
  CHECK(no_ssh.err() == "dlaunch: host localhost: there is no program '/no/such/ssh' (--ssh)\n");
}

TEST_CASE("hosts: a signal, and the death of the one who started all, end every agent") {
  const Ssh ssh;
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(number);
    const std::string token = unique_token();
    Job job(ssh.line("localhost:2,localhost:2", {victim(), "wait", token}));
    CHECK(job.saw("READY ", 4));
    job.send(number);
    const auto status = job.wait();
    CHECK((number == SIGKILL ? status.signal : status.code - 128) == number);
    CHECK(all_gone(token));
  }
}

TEST_CASE("hosts: an elastic job goes on without one") {
  const Ssh ssh;
  Job job(ssh.line("localhost,gone", {"--nnodes=1:2", "--rdzv-conf=last_call_timeout=1", "true"}));
  CHECK(job.wait().code == 0);
  CHECK(job.err().find("Connection refused); the others go on\n") != std::string::npos);
}

TEST_CASE("hosts: each runs all programs of the line") {
  const Ssh ssh;
  Job job(ssh.line("localhost,localhost", {"sh", "-c", "echo a is $RANK.", ":", "sh", "-c",
                                           "echo b is $RANK $0.", "\\:"}));
  CHECK(job.wait().code == 0);
  for (const std::string said : {"a is 0.", "b is 1 :.", "a is 2.", "b is 3 :."}) {
    CHECK(count(job.out(), said + "\n") == 1);
  }
}

TEST_CASE("hosts: a host may start others") {
  const Ssh ssh;
  std::string hosts = "localhost";
  for (int i = 0; i < 33; ++i) hosts += ",localhost";
  const std::string token = unique_token();
  Job job(ssh.line(hosts, {"sh", "-c", "echo is $RANK of $WORLD_SIZE."}));
  CHECK(job.wait().code == 0);
  CHECK(job.err().find("secret") == std::string::npos);
  for (int rank = 0; rank < 34; ++rank) {
    CHECK(count(job.out(), "is " + std::to_string(rank) + " of 34.\n") == 1);
  }
}

TEST_CASE("hosts: a directory that a host lacks is said, with the host") {
  const Ssh ssh;
  const std::string missing = ssh.folder() + "/was_here";
  fs::create_directory(missing);
  std::ofstream(ssh.path()) << "#!/bin/sh\nrmdir " << missing
                            << " 2>/dev/null\nshift\nexec sh -c \"$*\"\n";
  Job job({"-C", missing, dlaunch_path(), "--hosts", "b", "--ssh", ssh.path(), "true"}, {}, "env");
  CHECK(job.wait().code == 127);
  // The shells, which stand in it, say so first.
  CHECK(job.err().ends_with("dlaunch: host b: there is no directory " + missing + "\n"));
}

TEST_CASE("--ends-with-stdin: a job ends when nobody holds its input any more") {
  const std::string token = unique_token();
  // The pipe's writer ends when a rank has come up.
  const Ssh ssh;
  const std::string up = ssh.folder() + "/up";
  Job job({"-c", "mkfifo " + up + "; cat " + up + " | " + dlaunch_path() +
                     " --standalone --ends-with-stdin --stdin none sh -c 'echo > " + up +
                     "; exec " + victim() + " wait " + token + "'"},
          {}, "sh");
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("--ends-with-stdin: a job ends with its parent, though others hold its input") {
  const std::string token = unique_token();
  const Ssh ssh;
  const std::string up = ssh.folder() + "/up", in = ssh.folder() + "/in";
  // The job itself holds the writing end.
  Job job({"-c", "mkfifo " + up + " " + in + "; exec 3<>" + in + "; " + dlaunch_path() +
                     " --standalone --ends-with-stdin sh -c 'echo > " + up + "; exec " + victim() +
                     " wait " + token + "' <&3 & cat " + up + "; kill -9 $$"},
          {}, "sh");
  CHECK(job.wait().signal == SIGKILL);
  CHECK(all_gone(token));
}

TEST_CASE("--ends-with-stdin: no rank reads the input, which stays blocking") {
  const Ssh ssh;
  const std::string read = ssh.folder() + "/read", in = ssh.folder() + "/in";
  // A rank that had the input would wait for ever.
  Job job(
      {"-c", "mkfifo " + read + " " + in + "; exec 3<>" + in + " 4<>" + read + "; " +
                 dlaunch_path() + " --standalone --ends-with-stdin --nproc-per-node 2 sh -c " +
                 "'cat; echo > " + read + "; exec cat " + in + "' <&3 & read a <&4; read b <&4; " +
                 "grep flags: /proc/$$/fdinfo/3; kill $!; wait $!"},
      {}, "sh");
  CHECK(job.wait().code == 143);
  const auto flags = job.out().find("flags:");
  REQUIRE(flags != std::string::npos);
  CHECK((std::stol(job.out().substr(flags + 6), nullptr, 8) & O_NONBLOCK) == 0);
}

}  // namespace dlaunch::process_test
