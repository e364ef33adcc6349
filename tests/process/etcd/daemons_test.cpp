// Several dlaunchd with their state in etcd: one leads, and another follows it.
#include "runtime/base/exit_code.hpp"
#include "tests/process/etcd/etcd.hpp"
#include "tests/process/nodes/durable_history.hpp"
#include "tests/process/nodes/durable_node.hpp"
#include "tests/process/nodes/steady_job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/secret_file.hpp"

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
namespace request = dlaunch::store::request;
using testing::contains;
using testing::is_full;

namespace {

/// A dlaunchd that leads or stands by.
class Candidate {
 public:
  explicit Candidate(const std::string& state, const std::string& listen = "127.0.0.1:0",
                     const std::string& config = "/dev/null")
      : job_({"--listen", listen, "--http", "off", "--state", state, "--config", config}, {},
             Daemon::path()) {}
  /// The address at which it serves, once it does.
  Address await_lead() {
    REQUIRE_MESSAGE(job_.saw(" fds="), job_.err());
    const std::string& said = job_.err();
    const auto at = said.find("listen=") + 7;
    endpoint_ = said.substr(at, said.find(' ', at) - at);
    const auto colon = endpoint_.rfind(':');
    return resolve(endpoint_.substr(0, colon),
                   static_cast<std::uint16_t>(std::stoi(endpoint_.substr(colon + 1))))
        .at(0);
  }
  void await_standby() { REQUIRE_MESSAGE(job_.saw("stands by: "), job_.err()); }
  const std::string& endpoint() const { return endpoint_; }
  Job& job() { return job_; }
  void kill() {
    job_.send(SIGKILL);
    job_.wait();
  }

 private:
  Job job_;
  std::string endpoint_;
};

}  // namespace

TEST_CASE("leaders are killed, then a member, under load: nothing that was answered is lost") {
  if (!EtcdCluster::is_there()) return;
  constexpr int jobs = 4, nodes_per_job = 8;
  const int kills = is_full() ? 20 : 2;
  EtcdCluster cluster(3);
  auto leader = std::make_unique<Candidate>(cluster.state());
  Gate gate;
  gate.open(leader->await_lead());
  auto standby = std::make_unique<Candidate>(cluster.state());
  standby->await_standby();
  DurableLoad load(gate, jobs, nodes_per_job);
  for (int kill = 0; kill < kills; ++kill) {
    load.await_steps(200);
    const auto killed = Clock::now();
    leader->kill();
    gate.open(standby->await_lead());
    const std::chrono::duration<double> took = Clock::now() - killed;
    MESSAGE("the other one leads after " << took.count() << " s");
    leader = std::exchange(standby, std::make_unique<Candidate>(cluster.state()));
    standby->await_standby();
  }
  load.await_steps(200);
  cluster.kill(0);
  load.await_steps(200);
  cluster.start(0);
  load.await_steps(200);
  load.stop_and_check();
}

TEST_CASE("a leader that was stopped says nothing when it goes on after another has followed it") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  Candidate old(cluster.state());
  const Address old_at = old.await_lead();
  Candidate next(cluster.state());
  next.await_standby();
  Gate gate;
  gate.open(old_at);
  DurableNode node(gate, "j", 7, test::node("n", 1));
  node.ask<wire::Done>(request::Set{"k", as_bytes("1")});
  // Somebody else who asks the old one, and may not be told what it remembers.
  test::AgentPeer stranger(old_at, "another", 8);
  stranger.welcome();
  old.job().send(SIGSTOP);
  stranger.tell(test::node("n", 1));
  gate.open(next.await_lead());
  CHECK(text_of(node.ask<wire::Found>(request::Get{"k"}).value) == "1");
  node.ask<wire::Done>(request::Set{"k", as_bytes("2")});
  old.job().send(SIGCONT);
  CHECK(old.job().wait().code == exit_code::state_lost);
  CHECK(contains(old.job().err(), "this dlaunchd does not lead any more, and stops"));
  CHECK(stranger.closed_by_service());
  CHECK(text_of(node.ask<wire::Found>(request::Get{"k"}).value) == "2");
  node.end();
}

TEST_CASE("jobs do not notice that another dlaunchd follows, killed or asked to stop") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const testing::TemporaryFolder folder;
  const std::string end_file = (folder.path() / "end").string();
  const std::string listen = "127.0.0.1:" + std::to_string(free_port());
  auto leader = std::make_unique<Candidate>(cluster.state(), listen);
  leader->await_lead();
  SteadyJob job(listen, end_file);
  for (const int signal : {SIGKILL, SIGTERM}) {
    auto standby = std::make_unique<Candidate>(cluster.state(), listen);
    standby->await_standby();
    leader->job().send(signal);
    const auto status = leader->job().wait();
    if (signal == SIGTERM) {
      CHECK(status.code == exit_code::preempted);
      CHECK(contains(leader->job().err(), "SIGTERM: giving up the lead; 1 job goes on with the "));
    }
    standby->await_lead();
    leader = std::move(standby);
    REQUIRE(job.a.saw("epoch 1 goes on with all 2 nodes", signal == SIGKILL ? 1 : 2));
    job.require_progress();
  }
  job.end(end_file);
  CHECK_FALSE(contains(job.a.err(), "has forgotten"));
}

TEST_CASE("jobs wait while etcd is gone, and go on when it is back") {
  if (!EtcdCluster::is_there()) return;
  EtcdCluster cluster(1);
  const testing::TemporaryFolder folder;
  const std::string end_file = (folder.path() / "end").string();
  const std::string listen = "127.0.0.1:" + std::to_string(free_port());
  Candidate leader(cluster.state(), listen);
  leader.await_lead();
  SteadyJob job(listen, end_file);
  cluster.kill(0);
  REQUIRE(leader.job().saw("): nothing is changed until it can"));
  // Longer than a lease, and than agents wait for an answer.
  REQUIRE(job.a.saw("it does not answer within 5 s; the workers go on"));
  cluster.start(0);
  REQUIRE(leader.job().saw(" is reached again"));
  job.require_progress();
  job.end(end_file);
  CHECK(count(job.a.err(), "lost the rendezvous") == 0);
  leader.job().send(SIGTERM);
  CHECK(leader.job().wait().code == 0);
}

TEST_CASE("one that stands by reloads, and leads with what it has read") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const testing::TemporaryFolder folder;
  const testing::SecretFile old("00112233445566778899aabbccddeeff");
  const testing::SecretFile fresh("ffeeddccbbaa99887766554433221100");
  const std::string file = (folder.path() / "d.toml").string();
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write("secret-file = \"" + old.path() + "\"\n");
  Candidate leader(cluster.state());
  leader.await_lead();
  Candidate standby(cluster.state(), "127.0.0.1:0", file);
  standby.await_standby();
  write("jobs-mx = 3\n");
  standby.job().send(SIGHUP);
  REQUIRE(standby.job().saw("the old one stays: " + file + ":1: unknown key jobs-mx"));
  write("secret-file = \"" + fresh.path() + "\"\nkeys-max = 5\nlog-level = \"warning\"\n");
  standby.job().send(SIGHUP);
  REQUIRE(standby.job().saw("in effect only after a restart: keys-max"));
  CHECK(contains(standby.job().err(), "info: the configuration was reloaded"));
  leader.job().send(SIGTERM);
  CHECK(leader.job().wait().code == 0);
  standby.await_lead();
  CHECK(contains(standby.job().err(), " secret=yes "));
  // The level is in effect before it leads, too.
  CHECK_FALSE(contains(standby.job().err(), "leads now"));
  const auto code = [&](const testing::SecretFile& secret) {
    return Job({"--rdzv-endpoint", standby.endpoint(), "--rdzv-role", "join", "--rdzv-id", "j",
                "--secret-file", secret.path(), "/bin/true"})
        .wait()
        .code;
  };
  CHECK(code(old) == exit_code::authentication);
  CHECK(code(fresh) == 0);
}

TEST_CASE("that etcd cannot be reached is a warning") {
  const std::string nowhere = "etcd:http://127.0.0.1:" + std::to_string(free_port());
  Job standby({"--state", nowhere, "--http", "off", "--log-level", "warning"}, {}, Daemon::path());
  CHECK(standby.saw("warning: etcd at 127.0.0.1:"));
  CHECK(standby.saw("cannot be reached, and is tried again: "));
  standby.send(SIGTERM);
  CHECK(standby.wait().code == 0);
  CHECK_FALSE(contains(standby.err(), "info:"));
  Job check({"check", nowhere}, {}, Daemon::path());
  CHECK(check.wait().code == exit_code::unreachable);
  CHECK(contains(check.err(), "cannot be read: "));
}

namespace {

/// Names and addresses that processes started from here on find in /etc/hosts.
class Hosts {
 public:
  explicit Hosts(const std::string& lines) {
    const std::string path = (folder_.path() / "hosts").string();
    std::ofstream(path) << lines;
    mounted_ = ::unshare(CLONE_NEWNS) == 0 &&
               ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount(path.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  }
  ~Hosts() {
    if (mounted_) ::umount2("/etc/hosts", MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  testing::TemporaryFolder folder_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("agents find the dlaunchd that leads among the addresses of a name") {
  if (!EtcdCluster::is_there()) return;
  const Hosts hosts("127.0.0.1 localhost\n127.0.0.2 heads\n127.0.0.3 heads\n");
  if (!hosts.mounted()) return testing::skipped("another /etc/hosts takes root: mount");
  const EtcdCluster cluster(1);
  const testing::TemporaryFolder folder;
  const std::string end_file = (folder.path() / "end").string();
  const std::string port = ":" + std::to_string(free_port());
  Candidate leader(cluster.state(), "127.0.0.2" + port);
  leader.await_lead();
  Candidate standby(cluster.state(), "127.0.0.3" + port);
  standby.await_standby();
  SteadyJob job("heads" + port, end_file, "join");
  leader.kill();
  standby.await_lead();
  REQUIRE(job.a.saw("epoch 1 goes on with all 2 nodes"));
  job.require_progress();
  job.end(end_file);
}

TEST_CASE("ports that the service manager has opened are refused: they would be open on all") {
  const std::string program =
      "import os, socket\n"
      "listener = socket.create_server(('127.0.0.1', 0))\n"
      "os.dup2(listener.fileno(), 3)\n"
      "os.set_inheritable(3, True)\n"
      "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='dlaunch')\n"
      "os.execv('" +
      Daemon::path() + "', ['dlaunchd', '--state', 'etcd:http://127.0.0.1:1'])\n";
  Job job({"-c", program}, {}, "/usr/bin/python3");
  CHECK(job.wait().code == exit_code::configuration);
  CHECK(contains(job.err(), "with its state in etcd dlaunchd opens its ports when it leads; "));
}

TEST_CASE("one that stands by stops when it is asked to, and the state is checked by name") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  Candidate leader(cluster.state());
  leader.await_lead();
  Candidate standby(cluster.state());
  standby.await_standby();
  standby.job().send(SIGTERM);
  CHECK(standby.job().wait().code == 0);
  CHECK(contains(standby.job().err(), "info: SIGTERM: stopped before it led\n"));
  Job check({"check", cluster.state()}, {}, Daemon::path());
  CHECK_MESSAGE(check.wait().code == 0, check.err());
  CHECK(contains(check.out(), "(default) is good: 0 jobs, 0 namespaces with 0 keys"));
  leader.job().send(SIGTERM);
  CHECK(leader.job().wait().code == 0);
}
