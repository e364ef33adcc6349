// Several nodes on this host: an agent each, meeting over the loopback address.
#include "tests/process/nodes.hpp"

#include "runtime/base/os/socket.hpp"
#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;

Strings victims(const std::string& mode, const std::string& token,
                const std::string& number = "0") {
  return {victim(), mode, token, number};
}

std::string example(const std::string& name) {
  return std::string(DLAUNCH_BINARY_DIR) + "/bin/examples/" + name;
}

/// The check of a node "bad" fails.
Strings check_by_id(const std::string& id) {
  const std::string command = id == "bad" ? "echo looking; echo no GPU here >&2; exit 3" : "true";
  return {"--node-id", id, "--node-check", command};
}

}  // namespace

TEST_CASE("a program that one node lacks: the others hear on which host, and why") {
  const testing::TemporaryFolder with, without;
  std::filesystem::create_symlink("/bin/sleep", with.path() / "here");
  Nodes nodes("2", {"./here", "1000"});
  Job& first = nodes.add({"--node-rank", "0", "--cwd", with.path().string()});
  Job& second = nodes.add({"--node-rank", "1", "--cwd", without.path().string()});
  CHECK(second.wait().code == 127);
  CHECK(first.wait().code == 127);
  CHECK_MESSAGE(contains(first.err(), "the job ends: the workers of node rank 1 on "), first.err());
  const std::string why =
      " could not be started: there is no file '" + without.path().string() + "/./here'\n";
  CHECK_MESSAGE(contains(first.err(), why), first.err());
}

TEST_CASE("two nodes form one world, ranks in the order of their names") {
  Nodes nodes("2", {"/bin/sh", "-c",
                    "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node "
                    "$NODE_RANK/$GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"});
  Job& b = nodes.add({"--node-id", "b", "--nproc-per-node", "1"});
  Job& a = nodes.add({"--node-id", "a", "--nproc-per-node", "2"});
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  INFO(a.out() << a.err() << b.out() << b.err());
  CHECK(contains(a.out(), "[a:0] 0/3 local 0/2 node 0/2 at 127.0.0.1:"));
  CHECK(contains(a.out(), "[a:1] 1/3 local 1/2 node 0/2 at 127.0.0.1:"));
  CHECK(contains(b.out(), "[b:2] 2/3 local 0/1 node 1/2 at 127.0.0.1:"));
  // All are told the same place.
  const auto master = [](const std::string& out) {
    const auto at = out.find(" at ");
    return out.substr(at, out.find('\n', at) - at);
  };
  CHECK(master(a.out()) == master(b.out()));
}

TEST_CASE("libdlaunch workers of two nodes compute together") {
  Nodes nodes("2", {example("all_reduce")}, {"--nproc-per-node", "2"});
  Job& a = nodes.add();
  Job& b = nodes.add();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  INFO(a.out() << a.err() << b.out() << b.err());
  CHECK(contains(a.out() + b.out(), "4 ranks"));
}

TEST_CASE("torchrun's static way: node rank 0 hosts under the master port") {
  const std::string port = std::to_string(free_port());
  const Strings rest = {"--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port};
  const auto line = [&](const std::string& rank) {
    Strings all = rest;
    all.insert(all.end(), {"--node-rank", rank, "/bin/sh", "-c", "echo $RANK at $MASTER_PORT"});
    return all;
  };
  Job one(line("1"));
  Job zero(line("0"));
  CHECK(zero.wait().code == 0);
  CHECK(one.wait().code == 0);
  INFO(zero.err() << one.err());
  CHECK(contains(zero.out(), "0 at " + port));
  CHECK(contains(one.out(), "1 at " + port));
}

TEST_CASE("torchrun's static way: who was not told its rank and has the address is node rank 0") {
  const std::string port = std::to_string(free_port());
  const auto line = [&](Strings own) {
    Strings all = {"--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port};
    all.insert(all.end(), own.begin(), own.end());
    all.insert(all.end(), {"/bin/sh", "-c", "echo $RANK at $MASTER_PORT"});
    return all;
  };
  for (const Strings& others : {Strings{"--node-rank", "1"}, Strings{"--node-id", "a"}}) {
    Job zero(line({"--node-id", "z"}));
    REQUIRE(zero.saw("1 of 2 nodes"));
    Job one(line(others));
    CHECK(zero.wait().code == 0);
    CHECK(one.wait().code == 0);
    INFO(zero.err() << one.err());
    CHECK(contains(zero.out(), "0 at " + port));
    CHECK(contains(one.out(), "1 at " + port));
  }
}

TEST_CASE("agents that share a host's name, its address and a process number are two nodes") {
  Job probe({"--pid", "--fork", "--mount-proc", "true"}, {}, "unshare");
  const bool contained = probe.wait().code == 0;
  if (!contained)
    MESSAGE("without process numbers that are alike: no right to make a pid namespace here");
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  Strings line = {"--nnodes", "2",  "--rdzv-endpoint",          endpoint,
                  "/bin/sh",  "-c", "echo $RANK of $WORLD_SIZE"};
  line.insert(line.begin(), dlaunch_path());
  if (contained) line.insert(line.begin(), {"--pid", "--fork", "--mount-proc"});
  const auto start = [&] {
    return std::make_unique<Job>(Strings(line.begin() + (contained ? 0 : 1), line.end()),
                                 Job::Environment{}, contained ? "unshare" : dlaunch_path());
  };
  const auto a = start(), b = start();
  CHECK(a->wait().code == 0);
  CHECK(b->wait().code == 0);
  INFO(a->err() << b->err());
  CHECK(contains(a->out() + b->out(), "0 of 2"));
  CHECK(contains(a->out() + b->out(), "1 of 2"));
}

TEST_CASE("every node's files bear the job's name, whoever gave it") {
  const std::string folder = "/tmp/" + unique_token();
  Nodes nodes("2", {"/bin/sh", "-c", "echo $TORCHELASTIC_RUN_ID"}, {"-t", "1"});
  Job& a = nodes.add({"--log-dir", folder + "/a", "--result", folder + "/a.json"});
  REQUIRE(a.saw("1 of 2 nodes"));
  Job& b = nodes.add({"--log-dir", folder + "/b", "--result", folder + "/b.json"});
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  const auto begin = a.out().find("] ") + 2;
  const std::string job = a.out().substr(begin, a.out().find('\n') - begin);
  CHECK(job.starts_with("dlaunch-"));
  CHECK(contains(b.out(), job));
  for (const std::string node : {"/a", "/b"}) {
    int logs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder + node)) {
      ++logs;
      CHECK(contains(entry.path().filename().string(), job + "_"));
    }
    CHECK(logs == 1);
    std::ifstream in(folder + node + ".json");
    const std::string story{std::istreambuf_iterator<char>(in), {}};
    CHECK(contains(story, "\"job\": \"" + job + "\""));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE(
    "a port that an outgoing connection has: its owner is named, and then a node hosts there") {
  const unique_fd elsewhere = listen_tcp(resolve("127.0.0.1", 0).front());
  const Address there = local_address(elsewhere.get());
  const Address any_port = resolve("127.0.0.1", 0).front();
  unique_fd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* own = reinterpret_cast<const sockaddr*>(&any_port.storage);
  const auto* peer = reinterpret_cast<const sockaddr*>(&there.storage);
  REQUIRE(::bind(holder.get(), own, any_port.size) == 0);
  REQUIRE(::connect(holder.get(), peer, there.size) == 0);
  // Its end frees the port at once.
  const linger reset{1, 0};
  REQUIRE(::setsockopt(holder.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);

  const std::string endpoint = local_address(holder.get()).to_string();
  const Strings line = {"--nnodes", "2",  "--rdzv-endpoint",          endpoint,
                        "/bin/sh",  "-c", "echo $RANK of $WORLD_SIZE"};
  Job a(line), b(line);
  const std::string owner = "pid " + std::to_string(::getpid());
  for (Job* job : {&a, &b}) {
    REQUIRE(job->saw("; it is tried again"));
    CHECK(
        contains(job->err(), "listening on " + endpoint + ": Address already in use by " + owner));
  }
  holder.reset();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  INFO(a.err() << b.err());
  CHECK(count(a.err() + b.err(), "this node hosts the rendezvous") == 1);
  CHECK(contains(a.out() + b.out(), "0 of 2"));
  CHECK(contains(a.out() + b.out(), "1 of 2"));
}

TEST_CASE("a port that is held until the join timeout: the end names its owner, too") {
  const unique_fd elsewhere = listen_tcp(resolve("127.0.0.1", 0).front());
  const Address there = local_address(elsewhere.get());
  const unique_fd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* peer = reinterpret_cast<const sockaddr*>(&there.storage);
  REQUIRE(::connect(holder.get(), peer, there.size) == 0);
  Job job({"--nnodes", "2", "--rdzv-endpoint", local_address(holder.get()).to_string(),
           "--rdzv-conf", "join_timeout=500ms", "/bin/true"});
  CHECK(job.wait().code == 69);
  INFO(job.err());
  CHECK(contains(job.err(), "in use by pid " + std::to_string(::getpid())));
  CHECK(contains(job.err(), "; tried for 500 ms"));
}

TEST_CASE("what answers nothing is given up when the join timeout says so") {
  const unique_fd silent = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string endpoint = local_address(silent.get()).to_string();
  Job job(
      {"--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-conf", "join_timeout=1", "/bin/true"});
  CHECK(job.wait().code == 69);
  CHECK(contains(job.err(),
                 "connected, but it does not answer within 1 s; is it one, and is the "
                 "port right?; tried for 1 s\n"));
  CHECK_FALSE(contains(job.err(), "5 s"));
}

TEST_CASE("a failure ends every node alike, and each names the rank") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("fail", token, "3"), {"--nproc-per-node", "2"});
  Job& a = nodes.add({"--node-id", "a"});
  Job& b = nodes.add({"--node-id", "b"});
  CHECK(a.wait().code == 3);
  CHECK(b.wait().code == 3);
  INFO(a.err() << b.err());
  CHECK(contains(a.err(), "dlaunch: rank 3 on "));
  CHECK(contains(b.err(), "the reason of rank 3"));
  CHECK(all_gone(token));
}

TEST_CASE(
    "all nodes of a job pause before a restart, and a signal to one ends a job of fixed size") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("attempts", token), {"--max-restarts", "9", "--restart-backoff", "600"});
  Job& a = nodes.add();
  Job& b = nodes.add();
  REQUIRE(a.saw("it restarts in 600 s: 2 failures within "));
  REQUIRE(b.saw("it restarts in 600 s: 2 failures within "));
  b.send(SIGTERM);
  CHECK(b.wait().code == 143);
  CHECK(a.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("the earliest deadline of a node ends an elastic job on all nodes") {
  const std::string token = unique_token();
  Nodes nodes("1:2", victims("wait", token), {"--rdzv-conf", "last_call_timeout=60"});
  SUBCASE("of the node that hosts") {
    nodes.add({"--node-id", "a", "--deadline", "5", "--deadline-notice", "0"});
    REQUIRE(nodes[0].saw("1 of 1 to 2 nodes"));
    nodes.add({"--node-id", "b", "--deadline", "1h"});
  }
  SUBCASE("of another one") {
    nodes.add({"--node-id", "b"});
    REQUIRE(nodes[0].saw("1 of 1 to 2 nodes"));
    nodes.add({"--node-id", "a", "--deadline", "5", "--deadline-notice", "0"});
  }
  CHECK(nodes[0].wait().code == 75);
  CHECK(nodes[1].wait().code == 75);
  Job& other = nodes[0].err().find("(node a)") != std::string::npos ? nodes[0] : nodes[1];
  INFO(nodes[0].err() << nodes[1].err());
  CHECK(contains(other.err(), "the job ends: the deadline 2"));
  CHECK(contains(other.err(), " has come (node a)"));
  CHECK(contains(nodes[0].err() + nodes[1].err(), " has come: the workers are stopped"));
  CHECK(all_gone(token));
}

TEST_CASE("a node whose check fails ends a job of fixed size, and the others hear of it") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("wait", token));
  Job& good = nodes.add(check_by_id("good"));
  Job& bad = nodes.add(check_by_id("bad"));
  CHECK(bad.wait().code == 79);
  CHECK(good.wait().code == 79);
  INFO(good.err() << bad.err());
  CHECK(contains(bad.err(),
                 "this node is not fit for work: the check (--node-check) exited with 3: no "
                 "GPU here\n"));
  CHECK(contains(good.err(),
                 "node bad left: it is not fit for work: its check exited with 3: no "
                 "GPU here\n"));
  CHECK_FALSE(contains(bad.out(), "READY"));
  CHECK(all_gone(token));
}

TEST_CASE("an elastic job goes on without a node whose check fails") {
  const std::string token = unique_token();
  Nodes nodes("1:2", victims("wait", token), {"--rdzv-conf", "last_call_timeout=60"});
  // The first one hosts the rendezvous.
  Job& good = nodes.add(check_by_id("good"));
  REQUIRE(good.saw("1 of 1 to 2 nodes"));
  Job& bad = nodes.add(check_by_id("bad"));
  CHECK(bad.wait().code == 79);
  REQUIRE(good.saw("node bad left: it is not fit for work: its check exited with 3: no GPU here"));
  REQUIRE(good.saw("epoch 2: 1 node, 1 worker"));
  REQUIRE(good.saw("READY"));
  good.send(SIGTERM);
  CHECK(good.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("the restarts are the job's, not a node's") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("attempts", token), {"--max-restarts", "2"});
  Job& a = nodes.add();
  Job& b = nodes.add();
  CHECK(a.wait().code == 5);
  CHECK(b.wait().code == 5);
  INFO(a.err() << b.err());
  CHECK(contains(a.err(), "restart 1 of 2"));
  CHECK(contains(b.err(), "restart 2 of 2"));
  CHECK_FALSE(contains(a.err(), "restart 3"));
  CHECK(all_gone(token));
}

TEST_CASE("kill -9 of a node's launcher: the others end, and name it") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("tree", token));
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("2 nodes"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  ::kill(b.agent(), SIGKILL);
  b.wait();
  CHECK(a.wait().code == 79);
  INFO(a.err());
  CHECK(contains(a.err(), "node b"));
  CHECK(all_gone(token));
}

TEST_CASE("kill -9 of the node that hosts: the others end, and say so") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("tree", token), {"--rdzv-conf", "keep_alive_interval=200ms"});
  Job& host = nodes.add();
  REQUIRE(host.saw("2 nodes"));
  Job& other = nodes.add();
  REQUIRE(host.saw("READY"));
  REQUIRE(other.saw("READY"));
  ::kill(host.agent(), SIGKILL);
  host.wait();
  CHECK(other.wait().code == 79);
  INFO(other.err());
  CHECK(contains(other.err(), "the node that hosts the job is lost"));
  CHECK(all_gone(token));
}

TEST_CASE("ranks die on either node, and with --on-failure continue the others go on") {
  Nodes nodes("2", {DLAUNCH_BINARY_DIR "/bin/examples/shrink", "--deaths", "3"},
              {"--nproc-per-node", "2", "--on-failure", "continue"});
  Job& a = nodes.add({"--node-id", "a"});
  Job& b = nodes.add({"--node-id", "b"});
  const int code_a = a.wait().code;
  const int code_b = b.wait().code;
  INFO(a.out() << a.err() << b.out() << b.err());
  CHECK(code_a == 0);
  CHECK(code_b == 0);
  CHECK(contains(a.out(), "1 of 4 ranks did 50 steps, the model is 50 everywhere"));
  CHECK(contains(b.err(), "ended with 0, though "));
  CHECK_FALSE(contains(a.err() + b.err(), "FAILED"));
}

TEST_CASE("elastic: a node that comes late, and one that goes") {
  const std::string token = unique_token();
  Nodes nodes("1:2", victims("tree", token), {"--rdzv-conf", "last_call_timeout=0"});
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("READY"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(b.saw("READY"));
  REQUIRE(a.saw("READY", 2));
  ::kill(b.agent(), SIGKILL);
  b.wait();
  REQUIRE(a.saw("READY", 3));
  a.send(SIGTERM);
  CHECK(a.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("Ctrl-C on one node of a fixed-size job ends all of them alike") {
  const std::string token = unique_token();
  Nodes nodes("2", victims("tree", token));
  Job& host = nodes.add();
  REQUIRE(host.saw("2 nodes"));
  Job& other = nodes.add();
  REQUIRE(host.saw("READY"));
  REQUIRE(other.saw("READY"));
  SUBCASE("the one that joined") { other.send(SIGINT); }
  SUBCASE("the one that hosts") { host.send(SIGINT); }
  CHECK(host.wait().code == 130);
  CHECK(other.wait().code == 130);
  CHECK(all_gone(token));
}

TEST_CASE("who does not come is named") {
  Nodes nodes("3", {"/bin/true"}, {"--rdzv-conf", "join_timeout=500ms"});
  Job& a = nodes.add({"--node-rank", "0"});
  Job& b = nodes.add({"--node-rank", "2"});
  CHECK(a.wait().code == 76);
  CHECK(b.wait().code == 76);
  INFO(a.err() << b.err());
  CHECK(contains(a.err(), "2 of 3 nodes"));
  CHECK(contains(b.err(), "missing node rank 1"));
}

TEST_CASE("nobody hosts: which step failed, and for how long it was tried") {
  Nodes nodes("2", {"/bin/true"}, {"--rdzv-role", "join", "--rdzv-conf", "join_timeout=500ms"});
  Job& a = nodes.add();
  CHECK(a.wait().code == 69);
  INFO(a.err());
  CHECK(contains(a.err(), nodes.endpoint()));
  CHECK(contains(a.err(), "refused"));
  CHECK(contains(a.err(), "tried for 500 ms"));
}

TEST_CASE("two nodes that claim one rank, and nodes that disagree") {
  Nodes nodes("2", {"/bin/true"});
  Job& a = nodes.add({"--node-rank", "0", "--node-id", "a"});
  REQUIRE(a.saw("1 of 2 nodes"));
  Job& again = nodes.add({"--node-rank", "0", "--node-id", "b"});
  CHECK(again.wait().code == 64);
  INFO(again.err());
  CHECK(contains(again.err(), "node rank 0"));
  Job& same = nodes.add({"--node-id", "a"});
  CHECK(same.wait().code == 64);
  Job& other = nodes.add({"--max-restarts", "3"});
  CHECK(other.wait().code == 64);
  Job& right = nodes.add({"--node-id", "c"});
  CHECK(right.wait().code == 0);
  CHECK(a.wait().code == 0);
}

}  // namespace dlaunch::process_test
