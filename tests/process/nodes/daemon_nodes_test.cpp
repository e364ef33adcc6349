// Agents that meet at a dlaunchd, and the secret that lets them in.
#include "runtime/base/os/socket.hpp"
#include "tests/process/daemon.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/interposer.hpp"
#include "tests/support/secret_file.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using test::Interposer;
using testing::contains;
using testing::SecretFile;

using Strings = std::vector<std::string>;

const std::string all_reduce = DLAUNCH_BINARY_DIR "/bin/examples/all_reduce";

const std::string master = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const std::string other = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

}  // namespace

TEST_CASE("two jobs of two nodes each meet at one dlaunchd, and one after the other under one id") {
  Daemon daemon;
  const Strings two = {"--nnodes", "2", "--rdzv-role", "join", "--nproc-per-node", "2"};
  for (int round = 0; round < 2; ++round) {
    Job a(daemon.line("red", two, {all_reduce}));
    Job b(daemon.line("blue", two, {all_reduce}));
    Job c(daemon.line("red", two, {all_reduce}));
    Job d(daemon.line("blue", two, {all_reduce}));
    for (Job* job : {&a, &b, &c, &d}) {
      CHECK(job->wait().code == 0);
      INFO(job->err());
      CHECK_FALSE(contains(job->err(), "lost"));
    }
    CHECK(contains(a.out() + c.out(), "4 ranks"));
    CHECK(contains(b.out() + d.out(), "4 ranks"));
  }
}

TEST_CASE("a dlaunchd needs the job's id; an endpoint that is its own port is joined, not hosted") {
  Daemon daemon;
  Job nameless({"--nnodes", "2", "--rdzv-endpoint", daemon.endpoint(), "/bin/true"});
  CHECK(nameless.wait().code == 64);
  INFO(nameless.err());
  CHECK(contains(nameless.err(), "--rdzv-id"));
  CHECK(contains(nameless.err(), "joining the rendezvous at " + daemon.endpoint() + ": refused: "));
  // One node may use it, too.
  Job one(daemon.line("one", {"--rdzv-role", "join"}, {"/bin/sh", "-c", "echo $RANK/$WORLD_SIZE"}));
  CHECK(one.wait().code == 0);
  CHECK(contains(one.out(), "0/1"));
}

TEST_CASE("a node of the job is killed: the others end, the daemon serves on") {
  Daemon daemon;
  const std::string token = unique_token();
  const Strings two = {"--nnodes", "2"};
  Job a(daemon.line("j", two, {victim(), "tree", token, "0"}));
  Job b(daemon.line("j", two, {victim(), "tree", token, "0"}));
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  ::kill(b.agent(), SIGKILL);
  b.wait();
  CHECK(a.wait().code == 79);
  CHECK(all_gone(token));
  Job next(daemon.line("j", {"--rdzv-role", "join"}, {"/bin/true"}));
  CHECK(next.wait().code == 0);
}

TEST_CASE("an unfinished job refuses a second one under its id, and both sides say so") {
  Daemon daemon;
  const std::string token = unique_token();
  const auto node = [&](const std::string& id, const Strings& program) {
    return daemon.line("j", {"--nnodes", "2", "--node-id", id, "--max-restarts", "1"}, program);
  };
  const Strings works = {victim(), "tree", token, "0"};
  Job a(node("a", works));
  Job b(node("b", works));
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  Job third(node("c", {all_reduce}));
  CHECK(third.wait().code == 64);
  INFO(third.err());
  CHECK(contains(third.err(), "the job 'j' has run for"));
  CHECK(contains(third.err(), "on 2 nodes, a and b"));
  CHECK(contains(third.err(), "another --rdzv-id"));
  REQUIRE(daemon.job().saw("node c was refused: the job 'j'"));
  Job twin(node("a", works));
  CHECK(twin.wait().code == 64);
  CHECK(contains(twin.err(), "another job needs another --rdzv-id"));
  // One more of the same line is a spare, two are a second set.
  Job spare(node("d", works));
  REQUIRE(spare.saw("you are next if one is lost"));
  Job second(node("e", works));
  CHECK(second.wait().code == 64);
  CHECK(spare.wait().code == 64);
  CHECK(contains(spare.err(), "a job of their own"));
  // A replacement after a loss is none.
  ::kill(b.agent(), SIGKILL);
  b.wait();
  REQUIRE(a.saw("is lost"));
  Job replacement(node("f", works));
  REQUIRE(replacement.saw("READY"));
  replacement.send(SIGTERM);
  CHECK(replacement.wait().code == 143);
  a.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a node that hosts says whom it refuses") {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const std::string token = unique_token();
  const auto node = [&](const std::string& id, const Strings& program) {
    Strings line = {"--nnodes", "2", "--rdzv-endpoint", endpoint, "--node-id", id};
    line.insert(line.end(), program.begin(), program.end());
    return line;
  };
  Job a(node("a", {victim(), "tree", token, "0"}));
  REQUIRE(a.saw("1 of 2 nodes"));
  Job b(node("b", {victim(), "tree", token, "0"}));
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  Job c(node("c", {victim(), "tree", token, "0"}));
  CHECK(c.wait().code == 64);
  CHECK(contains(c.err(), "no restart left"));
  REQUIRE(a.saw("node c was refused: the job"));
  a.send(SIGTERM);
  CHECK(a.wait().code == 143);
  b.wait();
  CHECK(all_gone(token));
}

TEST_CASE("with a secret: the job works, and whoever does not know it ends with 77") {
  const SecretFile key(master), wrong(other);
  Daemon daemon({"--secret-file", key.path()});
  const auto& endpoint = daemon.endpoint();
  Job stranger(daemon.line("j", {"--nnodes", "2", "--secret-file", wrong.path()}, {"/bin/true"}));
  CHECK(stranger.wait().code == 77);
  INFO(stranger.err());
  CHECK(contains(stranger.err(), "wrong secret, or no such job"));
  CHECK(contains(stranger.err(), endpoint));
  REQUIRE(daemon.job().saw("did not prove a job's secret: its secret is another one"));

  const Strings two = {"--nnodes", "2", "--secret-file", key.path()};
  Job a(daemon.line("j", two, {all_reduce}));
  // The other node has the key of this job alone.
  Job print({"job-key", "j", "--secret-file", key.path()}, {}, Daemon::path());
  CHECK(print.wait().code == 0);
  const SecretFile own(print.out().substr(0, print.out().find('\n')));
  Job b(daemon.line("j", {"--nnodes", "2", "--secret-file", own.path()}, {all_reduce}));
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  CHECK(contains(a.out() + b.out(), "2 ranks"));
  Job elsewhere(daemon.line("k", {"--nnodes", "2", "--secret-file", own.path()}, {"/bin/true"}));
  CHECK(elsewhere.wait().code == 78);
}

TEST_CASE("a daemon's own host is asked for the secret as others are, unless it trusts loopback") {
  const SecretFile key(master);
  const Strings one = {"--rdzv-role", "join"};
  {
    Daemon daemon({"--secret-file", key.path()});
    Job bare(daemon.line("j", one, {"/bin/true"}));
    CHECK(bare.wait().code == 77);
    INFO(bare.err());
    CHECK(contains(bare.err(), "it asks for the job's secret, and none was given: --secret-file"));
    CHECK(contains(bare.err(), "trust-loopback of a dlaunchd lets that in without"));
    REQUIRE(daemon.job().saw("no secret was given"));
  }
  Daemon trusting({"--secret-file", key.path(), "--trust-loopback"});
  Job bare(trusting.line("j", one, {"/bin/true"}));
  CHECK(bare.wait().code == 0);
}

TEST_CASE("a secret is changed by reloads, under a job that runs") {
  const SecretFile old(master), fresh(other), file(master);
  const testing::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "end").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Daemon daemon({"--secret-file", file.path()});
  const auto node = [&](const std::string& job, const SecretFile& secret, const char* nodes) {
    return daemon.line(job,
                       {"--nnodes", nodes, "--rdzv-role", "join", "--secret-file", secret.path()},
                       {"/bin/sh", "-c", "echo up; test $RDZV != red || cat " + pipe});
  };
  const auto reload = [&](const std::string& text, const std::string& answer) {
    std::ofstream(file.path()) << text << '\n';
    daemon.job().send(SIGHUP);
    REQUIRE(daemon.job().saw(answer));
  };
  Job standing(node("red", old, "1"), {{"RDZV", "red"}});
  REQUIRE(standing.saw("up"));

  reload(other + "\n" + master,
         "2 secrets are accepted: 0 connections by the first, 1 connection by the second");
  Job by_new(node("blue", fresh, "1"), {{"RDZV", "blue"}});
  CHECK(by_new.wait().code == 0);
  Job by_old(node("green", old, "1"), {{"RDZV", "green"}});
  CHECK(by_old.wait().code == 0);
  // Ranks prove the job's key to each other, so each job keeps to one.
  Job first(node("pair", old, "2"), {{"RDZV", "pair"}});
  REQUIRE(daemon.job().saw("pair"));
  Job second(node("pair", fresh, "2"), {{"RDZV", "pair"}});
  CHECK(second.wait().code == 77);
  CHECK(contains(second.err(), "the job's other nodes have another one"));
  first.send(SIGTERM);
  first.wait();

  reload(other, "by a withdrawn one");
  Job late(node("green", old, "1"), {{"RDZV", "green"}});
  CHECK(late.wait().code == 77);
  CHECK(contains(late.err(), "this secret is not accepted here any more"));
  REQUIRE(daemon.job().saw("that of 'green' is not accepted any more"));
  reload("abc", "the secret was not read again, the old one stays: --secret-file " + file.path() +
                    ": the secret in ");
  std::ofstream(pipe).close();
  CHECK(standing.wait().code == 0);
}

TEST_CASE("a secret for tools is none for nodes, and has to be another one") {
  const SecretFile key(master), tools(other);
  {
    Daemon daemon({"--secret-file", key.path(), "--tool-secret-file", tools.path()});
    Job node(daemon.line("j", {"--nnodes", "2", "--secret-file", tools.path()}, {"/bin/true"}));
    CHECK(node.wait().code == 77);
    CHECK(
        contains(node.err(), "its secret is for the role tool, and to join a job takes the role"));
    REQUIRE(daemon.job().saw("which came to join 'j' with a secret for the role tool"));
  }
  const auto refusal = [](const Strings& options) {
    Strings line = {"--listen", "127.0.0.1:0", "--http", "off"};
    line.insert(line.end(), options.begin(), options.end());
    Job daemon(line, {}, Daemon::path());
    CHECK(daemon.wait().code == 78);
    line.emplace_back("--check");
    Job checked(line, {}, Daemon::path());
    CHECK(checked.wait().code == 78);
    CHECK(checked.err() == daemon.err());
    return daemon.err();
  };
  CHECK(contains(refusal({"--read-only-secret-file", key.path()}), "none for nodes"));
  CHECK(contains(refusal({"--secret-file", key.path(), "--tool-secret-file", key.path()}),
                 "one secret is given for the roles node and tool"));
}

TEST_CASE("nodes of the daemon's host meet by its unix socket without the secret") {
  const SecretFile key(master);
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "d.sock", pipe = folder.path() / "end";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto line = [&](const std::string& job, const Strings& more) {
    Strings all = {"--rdzv-endpoint", "unix:" + path, "--rdzv-id", job};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  {
    Daemon daemon({"--listen", "unix:" + path, "--secret-file", key.path()});
    Job a(line("two", {"--nnodes", "2", all_reduce}));
    Job b(line("two", {"--nnodes", "2", all_reduce}));
    CHECK(a.wait().code == 0);
    CHECK(b.wait().code == 0);
    CHECK(contains(a.out() + b.out(), "2 ranks"));
    // One that proves the secret may come that way, too; and a node by TCP is in the same job.
    Job c(line("both", {"--nnodes", "2", "--secret-file", key.path(), all_reduce}));
    Job d(daemon.line("both", {"--nnodes", "2", "--secret-file", key.path()}, {all_reduce}));
    CHECK(c.wait().code == 0);
    CHECK(d.wait().code == 0);
    // The daemon is killed: it finds its old socket, and the agent finds the new one.
    Job standing(line("stays", {"/bin/sh", "-c", "echo up; cat " + pipe}));
    REQUIRE(standing.saw("up"));
    daemon.kill();
    REQUIRE(standing.saw("the workers go on, and it is tried again"));
    daemon.start();
    std::ofstream(pipe).close();
    CHECK(standing.wait().code == 0);
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
  Job late(line("late", {"--rdzv-conf", "join_timeout=1", "/bin/true"}));
  CHECK(late.wait().code == 69);
  CHECK(contains(late.err(), "connecting to unix:" + path + ": No such file or directory"));
  Job host(line("host", {"--rdzv-role", "host", "/bin/true"}));
  CHECK(host.wait().code == 64);
  CHECK(contains(host.err(), "a node hosts at HOST:PORT, where others can come"));
}

TEST_CASE("somebody between a node and the daemon can record and change, and gains nothing by it") {
  const SecretFile key(master);
  Daemon daemon({"--secret-file", key.path()});
  const auto port = std::stoi(daemon.endpoint().substr(daemon.endpoint().rfind(':') + 1));
  const Address target = resolve("127.0.0.1", static_cast<std::uint16_t>(port)).at(0);
  const auto line = [&](const Address& at, const std::string& job) {
    return Strings{"--rdzv-endpoint", at.to_string(), "--rdzv-id", job, "--rdzv-role", "join",
                   "--secret-file",   key.path(),     "/bin/true"};
  };
  {
    Interposer recording(target);
    Job good(line(recording.address(), "good"));
    CHECK(good.wait().code == 0);
    const Bytes said = recording.recorded(0, true);
    REQUIRE(said.size() > 400);
    CHECK_FALSE(contains(as_text(said), "/bin/true"));
    const unique_fd again = connect_tcp(target, Clock::now() + patience);
    CHECK(::send(again.get(), said.data(), said.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(said.size()));
    REQUIRE(daemon.job().saw("did not prove a job's secret"));
  }
  Interposer changing(target, [](const Interposer::Said& said) {
    Bytes bytes = said.bytes;
    if (said.by_client && said.flight == 0) bytes.back() ^= std::byte{1};
    return std::pair{said.connection, bytes};
  });
  Job changed(line(changing.address(), "changed"));
  CHECK(changed.wait().code == 77);
  CHECK(contains(changed.err(), "wrong secret, or no such job there"));
  // The daemon has told of one such refusal, and keeps count of the others for a minute.
  Job other_job(line(target, "other"));
  CHECK(other_job.wait().code == 0);
}

TEST_CASE("a node that hosts asks for the secret, too") {
  const SecretFile key(master), wrong(other);
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto line = [&](const Strings& options) {
    Strings all = {"--nnodes", "2", "--rdzv-endpoint", endpoint};
    all.insert(all.end(), options.begin(), options.end());
    all.push_back(all_reduce);
    return all;
  };
  Job host(line({"--secret-file", key.path()}));
  REQUIRE(host.saw("1 of 2 nodes"));
  Job bare(line({}));
  CHECK(bare.wait().code == 77);
  CHECK(contains(bare.err(), "asks for the job's secret"));
  Job stranger(line({"--secret-file", wrong.path()}));
  CHECK(stranger.wait().code == 77);
  Job right(line({"--secret-file", key.path()}));
  CHECK(right.wait().code == 0);
  CHECK(host.wait().code == 0);
  CHECK(contains(host.out() + right.out(), "2 ranks"));
}

TEST_CASE("secrets that are none") {
  const SecretFile short_one("abc");
  const auto tried = [](const std::string& path) {
    Job job(
        {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:1", "--secret-file", path, "/bin/true"});
    CHECK(job.wait().code == 78);
    return job.err();
  };
  CHECK(contains(tried("/no/such/secret"), "/no/such/secret"));
  CHECK(contains(tried(short_one.path()), short_one.path()));
  const SecretFile open(master);
  ::chmod(open.path().c_str(), 0644);
  CHECK(contains(tried(open.path()), "chmod"));
}

}  // namespace dlaunch::process_test
