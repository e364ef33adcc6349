// The daemon as a program: what it prints, serves, heeds and exits with. Longer than a sitting,
// since all cases start it in the same way.
#include "runtime/base/exit_code.hpp"
#include "tests/process/by_hand/by_hand_process.hpp"
#include "tests/support/agent_peer.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>

using namespace dlaunch;
using namespace dlaunch::test;
using namespace std::chrono_literals;
namespace message = dlaunch::rendezvous::message;

namespace {

const std::string program = DLAUNCH_BINARY_DIR "/bin/dlaunchd";

/// Removed with all that is in it, which is files.
struct Folder {
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { CHECK(std::system(("rm -r " + path).c_str()) == 0); }
  std::string path = "/tmp/dlaunchd-test-XXXXXX";
};

/// dlaunchd on ports of its own, ready.
class Daemon {
 public:
  explicit Daemon(const std::vector<std::string>& arguments = {},
                  const std::map<std::string, std::string>& environment = {},
                  std::vector<std::string> starter = {})
      : process(command(std::move(starter), arguments), environment) {
    // A warning may have come with it.
    const std::string& told = process.read_until("\n");
    const std::string text = told.substr(0, told.find('\n') + 1);
    std::smatch found;
    const std::regex form(R"(\S+Z dlaunchd: info: ready pid=(\d+) listen=127.0.0.1:(\d+) )"
                          R"(http=127.0.0.1:(\d+) state=memory secret=none fds=\d+\n)");
    REQUIRE_MESSAGE(std::regex_match(text, found, form), text);
    CHECK(std::stoi(found[1]) == process.pid());
    rendezvous = resolve("127.0.0.1", static_cast<std::uint16_t>(std::stoi(found[2]))).at(0);
    http = resolve("127.0.0.1", static_cast<std::uint16_t>(std::stoi(found[3]))).at(0);
  }

  void signal(int number) const { REQUIRE(::kill(process.pid(), number) == 0); }
  /// The page as curl prints it, then its code.
  std::string page(const std::string& path, const std::string& options = "") const {
    Process curl(
        {"/bin/sh", "-c",
         "exec curl -s -m 20 -w '%{http_code}' " + options + " http://" + http.to_string() + path},
        {{"PATH", "/usr/bin:/bin"}});
    CHECK(curl.wait() == 0);
    return curl.output();
  }
  /// Waits until a page has these words; fails the test after 20 s.
  void await_page(const std::string& path, const std::string& words) const {
    const auto deadline = soon();
    while (page(path).find(words) == std::string::npos) {
      REQUIRE_MESSAGE(Clock::now() < deadline, path << " never had " << words);
    }
  }

  Process process;
  Address rendezvous, http;

 private:
  static std::vector<std::string> command(std::vector<std::string> all,
                                          const std::vector<std::string>& arguments) {
    all.insert(all.end(), {program, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

/// One that says why it does not start.
std::string refused(const std::vector<std::string>& arguments, int code) {
  std::vector<std::string> command = {program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Process process(command, {});
  CHECK(process.wait() == code);
  return process.output();
}

message::Join join(const std::string& node, int nodes) {
  message::Join join;
  join.offer = {node, "host-" + node, 4, std::nullopt, {"127.0.0.1:1"}};
  join.rules.nodes_min = join.rules.nodes_max = nodes;
  join.rules.join_timeout = std::chrono::minutes(10);
  return join;
}

/// The only node of a job that runs until it is ended.
struct RunningJob {
  RunningJob(const Address& rendezvous, const std::string& job, std::uint64_t session)
      : agent(rendezvous, job, session) {
    agent.welcome();
    message::Join alone = join("n" + std::to_string(session), 1);
    alone.rules.liveness.lease = std::chrono::hours(1);  // It sends no heartbeats.
    agent.tell(alone);
    epoch = agent.hear<message::Admitted>().admission.epoch;
  }
  void end(int exit_code = 0) {
    message::WorkersEnded ended;
    ended.epoch = epoch;
    ended.outcome = exit_code == 0 ? rendezvous::WorkersEnded::Outcome::succeeded
                                   : rendezvous::WorkersEnded::Outcome::failed;
    ended.exit_code = exit_code;
    ended.sentence = "it failed";
    agent.tell(ended);
    CHECK(agent.hear<message::Finished>().exit_code == exit_code);
  }
  AgentPeer agent;
  std::uint64_t epoch = 0;
};

/// NOTIFY_SOCKET.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const Address at = unix_address(name);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0);
  }
  /// The next that begins so; others are passed over.
  std::string hear(const std::string& start) {
    const auto deadline = soon();
    for (;;) {
      pollfd wait{fd_.get(), POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&wait, 1, poll_timeout_ms(deadline)) == 1, "never heard " << start);
      std::array<char, 4096> text{};
      const auto size = ::recv(fd_.get(), text.data(), text.size(), 0);
      const std::string heard(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
      if (heard.starts_with(start)) return heard;
    }
  }

 private:
  unique_fd fd_;
};

}  // namespace

TEST_CASE("ready, healthy, and gone at SIGTERM or SIGINT") {
  for (const int number : {SIGTERM, SIGINT}) {
    Daemon daemon;
    CHECK(daemon.page("/healthz") == "ok\n200");
    CHECK(daemon.page("/readyz") == "ready\n200");
    CHECK(daemon.page("/nowhere").ends_with("404"));
    CHECK(daemon.page("/healthz", "-X POST").ends_with("405"));
    daemon.signal(number);
    CHECK(daemon.process.wait() == 0);
    CHECK(daemon.process.output().find("draining; 0 jobs may end within 30 s") !=
          std::string::npos);
  }
}

TEST_CASE("a job as the pages show it, from its first node to its end") {
  Daemon daemon;
  AgentPeer first(daemon.rendezvous, "a job", 1);
  first.welcome();
  first.tell(join("a", 2));
  daemon.await_page("/api/v1/jobs", "\"state\": \"gathering\"");
  AgentPeer second(daemon.rendezvous, "a job", 2);
  second.welcome();
  second.tell(join("b", 2));
  const auto place = first.hear<message::Admitted>().admission;
  // What is shown may be a second old.
  daemon.await_page("/api/v1/jobs/a%20job", "\"state\": \"running\"");
  const std::string shown = daemon.page("/api/v1/jobs/a%20job");
  CHECK(shown.find("\"host\": \"host-b\"") != std::string::npos);
  CHECK(shown.find("\"world_size\": 8") != std::string::npos);
  const std::string metrics = daemon.page("/metrics");
  CHECK(metrics.find("dlaunch_jobs{state=\"running\"} 1\n") != std::string::npos);
  CHECK(metrics.find("dlaunch_nodes{state=\"running\"} 2\n") != std::string::npos);
  CHECK(metrics.find("dlaunch_ranks 8\n") != std::string::npos);
  CHECK(metrics.find("dlaunch_connections 2\n") != std::string::npos);
  CHECK(metrics.find("dlaunch_rounds_closed_total 1\n") != std::string::npos);
  for (AgentPeer* agent : {&first, &second}) {
    message::WorkersEnded ended;
    ended.epoch = place.epoch;
    ended.outcome = rendezvous::WorkersEnded::Outcome::succeeded;
    agent->tell(ended);
  }
  CHECK(first.hear<message::Finished>().exit_code == 0);
  daemon.await_page("/api/v1/jobs/a%20job", "\"exit_code\": 0");
  daemon.signal(SIGTERM);
  // Agents that do not go keep the daemon; a second signal does not wait for them.
  daemon.await_page("/readyz", "503");
  daemon.signal(SIGTERM);
  CHECK(daemon.process.wait() == 0);
}

TEST_CASE("events as they happen, and a log of JSON") {
  Daemon daemon;
  Process reader({"/bin/sh", "-c", "exec curl -sN http://" + daemon.http.to_string() + "/events"},
                 {{"PATH", "/usr/bin:/bin"}});
  reader.read_until("retry: 2000\n");
  RunningJob job(daemon.rendezvous, "watched", 1);
  reader.read_until("\"job\":\"watched\",\"event\":\"epoch\"");
  job.end(3);
  reader.read_until("\"event\":\"finished\",\"level\":\"error\"");
  CHECK(daemon.page("/metrics").find("dlaunch_event_readers 1\n") != std::string::npos);

  Process json({program, "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json"}, {});
  json.read_until("\"level\":\"info\",\"message\":\"ready pid=" + std::to_string(json.pid()) + " ");
  REQUIRE(::kill(json.pid(), SIGTERM) == 0);
  CHECK(json.wait() == 0);
}

TEST_CASE("without a descriptor for another one the status is served, and the log goes on") {
  const Folder folder;
  const std::string tokens = folder.path + "/tokens";
  std::ofstream(tokens) << "ada 0123456789abcdef\n";
  REQUIRE(::chmod(tokens.c_str(), 0600) == 0);
  Daemon daemon({"--http-token-file", tokens}, {},
                {"/bin/sh", "-c", "ulimit -n 64 && exec \"$@\"", "sh"});
  std::vector<std::unique_ptr<RunningJob>> jobs;  // Half of the descriptors are for agents: these.
  for (std::uint64_t i = 0; i < 32; ++i) {
    jobs.push_back(std::make_unique<RunningJob>(daemon.rendezvous, "j" + std::to_string(i), 1 + i));
  }
  daemon.process.read_until("there is room for 32 connections only, as no more than 64 files ");
  std::vector<unique_fd> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(connect_tcp(daemon.rendezvous, soon()));
  CHECK(daemon.page("/metrics").find("dlaunch_connections 32\n") != std::string::npos);
  CHECK(daemon.page("/metrics").find("dlaunch_connections_max 32\n") != std::string::npos);
  daemon.process.read_until("no descriptor is left for another connection: there are 32 ");
  // Readers that ask nothing take what is left; they have to go for the next one.
  for (int i = 0; i < 30; ++i) crowd.push_back(connect_tcp(daemon.http, soon()));
  CHECK(daemon.page("/api/v1/drain", "-X POST").ends_with("401"));
  daemon.process.read_until("action denied: POST /api/v1/drain (from 127.0.0.1:");
  jobs.front()->end();
  daemon.process.read_until("job 'j0': finished with exit code 0");
  jobs.erase(jobs.begin());
  crowd.clear();
  const RunningJob next(daemon.rendezvous, "next", 100);
}

TEST_CASE("a browser may not read the status for another site's page") {
  Daemon daemon;
  for (const char* header : {"Host: rebound.example", "Origin: http://evil.example"}) {
    const std::string options = "-H '" + std::string(header) + "'";
    for (const char* path : {"/", "/healthz", "/metrics", "/events", "/api/v1/jobs"}) {
      CHECK(daemon.page(path, options).ends_with("403"));
    }
    CHECK(daemon.page("/api/v1/drain", "-X POST " + options).ends_with("403"));
  }
  // To read in vain is nothing to tell of; to act is.
  const auto said = daemon.process.read_until("action denied: POST /api/v1/drain (from 127.0.0.1:");
  CHECK(said.find("action denied") == said.rfind("action denied"));
  daemon.await_page("/metrics", "dlaunch_actions_total{outcome=\"denied\"} 2\n");
  CHECK(daemon.page("/healthz", "-H 'Host: localhost:8080' -H 'Origin: http://localhost:8080'") ==
        "ok\n200");
  // As proxies are asked: the target's host counts, and not the header.
  const auto absolute = [&](const std::string& url) {
    return daemon.page("/", "--request-target " + url + " -H 'Origin: http://localhost:1'");
  };
  CHECK(absolute("http://localhost:1/healthz") == "ok\n200");
  CHECK(absolute("http://localhost:2/healthz").ends_with("403"));
  CHECK(absolute("http://rebound.example/healthz").ends_with("403"));
}

TEST_CASE("draining: no new job; the one that runs may end") {
  Daemon daemon;
  {
    RunningJob job(daemon.rendezvous, "old", 1);
    daemon.signal(SIGTERM);
    daemon.await_page("/readyz", "draining: no new job is taken\n503");
    AgentPeer late(daemon.rendezvous, "new", 2);
    late.welcome();
    late.tell(join("late", 1));
    CHECK(late.hear<message::Refused>().reason ==
          "this rendezvous is being drained and takes no new job");
    job.end();
  }
  CHECK(daemon.process.wait() == 0);
  CHECK(daemon.process.output().find("draining; 1 job may end within 30 s") != std::string::npos);
}

TEST_CASE("draining has an end, and a second signal is one") {
  {
    Daemon daemon({"--drain-timeout", "10ms"});
    RunningJob job(daemon.rendezvous, "endless", 1);
    daemon.signal(SIGTERM);
    CHECK(daemon.process.wait() == exit_code::preempted);
    CHECK(daemon.process.output().find("1 job had not ended: 'endless'") != std::string::npos);
  }
  Daemon daemon;
  RunningJob job(daemon.rendezvous, "endless", 1);
  daemon.signal(SIGTERM);
  daemon.process.read_until("draining");
  daemon.signal(SIGINT);
  CHECK(daemon.process.wait() == exit_code::preempted);
  CHECK(daemon.process.output().find("a second signal (SIGINT): leaving at once") !=
        std::string::npos);
}

TEST_CASE("a reload: limits at once, the rest is named, and a bad file changes nothing") {
  const Folder folder;
  const std::string file = folder.path + "/d.toml";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write("jobs-max = 1\n");
  Daemon daemon({"--config", file});
  RunningJob one(daemon.rendezvous, "one", 1);
  AgentPeer refused_agent(daemon.rendezvous, "two", 2);
  refused_agent.welcome();
  refused_agent.tell(join("b", 1));
  CHECK(refused_agent.hear<message::Refused>().reason.find("1 jobs already") != std::string::npos);

  write("jobs-max = 2\nkeys-max = 5\n");
  daemon.signal(SIGHUP);
  daemon.process.read_until("in effect only after a restart: keys-max\n");
  RunningJob two(daemon.rendezvous, "two", 3);

  write("jobs-max = 3\njob-max = 3\n");
  daemon.signal(SIGHUP);
  daemon.process.read_until(
      "error: the configuration was not reloaded, the old one stays: " + file +
      ":2: unknown key job-max; did you mean "
      "jobs-max?\n");
  // The log's level, too: what is left is errors.
  write("log-level = \"error\"\n");
  daemon.signal(SIGHUP);
  daemon.process.read_until("the configuration was reloaded\n");
  two.end(3);
  daemon.process.read_until("error: job 'two': finished with exit code 3");
  one.end();
  daemon.signal(SIGTERM);
  // Two signals of a kind are one while the first is not yet taken.
  daemon.await_page("/readyz", "503");
  daemon.signal(SIGTERM);
  CHECK(daemon.process.wait() == 0);
  CHECK(daemon.process.output().find("stopped") == std::string::npos);
}

TEST_CASE("a reload that is asked for before the daemon is ready waits until it is") {
  const std::string starter =
      "import os, signal, sys\n"
      "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])\n"
      "os.kill(os.getpid(), signal.SIGHUP)\n"
      "os.execv(sys.argv[1], sys.argv[1:])\n";
  Process daemon(
      {"/usr/bin/python3", "-c", starter, program, "--listen", "127.0.0.1:0", "--http", "off"}, {});
  daemon.read_until("info: the configuration was reloaded\n");
  CHECK(daemon.output().find(" ready pid=") != std::string::npos);
  REQUIRE(::kill(daemon.pid(), SIGTERM) == 0);
  CHECK(daemon.wait() == 0);
}

TEST_CASE("operators act by HTTP, with a token of a file that a reload reads again") {
  const Folder folder;
  const std::string file = folder.path + "/operators", config = folder.path + "/d.toml";
  const auto write = [&](const std::string& text) {
    std::ofstream(file) << text;
    REQUIRE(::chmod(file.c_str(), 0600) == 0);
  };
  write("ada 0123456789abcdef\n");
  std::ofstream(config) << "http-token-file = \"" + file + "\"\n";
  Daemon daemon({"--config", config});
  const auto post = [&](const std::string& path, const std::string& token,
                        const std::string& options = "-X POST") {
    return daemon.page(path, options + " -H 'Authorization: Bearer " + token + "'");
  };
  const std::string ada = "0123456789abcdef", bob = "fedcba9876543210";
  RunningJob job(daemon.rendezvous, "a job", 1);
  CHECK(post("/api/v1/jobs/a%20job/stop", "wrong") == "this token is no operator's\n401");
  daemon.process.read_until(
      "warning: action denied: POST /api/v1/jobs/a%20job/stop (from 127.0.0.1:");
  CHECK(post("/api/v1/jobs/a%20job/stop", ada, "-X POST -H 'Origin: http://evil.example'")
            .ends_with("403"));
  CHECK(post("/api/v1/jobs/none/stop", ada) == "there is no such job\n404");
  CHECK(post("/api/v1/jobs/a%20job/stop?reason=moved%20away", ada) ==
        "the job ends with exit code 143\n200");
  CHECK(job.agent.hear<message::Finished>().sentence == "stopped by operator 'ada': moved away");
  daemon.process.read_until(
      "warning: job 'a job': action stop by operator 'ada': moved away (from 127.0.0.1:");
  CHECK(post("/api/v1/jobs/a%20job/stop", ada).ends_with("409"));

  CHECK(post("/api/v1/drain", ada).ends_with("200"));
  CHECK(daemon.page("/readyz") == "draining: no new job is taken\n503");
  CHECK(post("/api/v1/drain", ada, "-X DELETE") == "new jobs are taken again\n200");
  CHECK(daemon.page("/readyz") == "ready\n200");

  write("bob fedcba9876543210\n");
  daemon.signal(SIGHUP);
  daemon.process.read_until("the configuration was reloaded\n");
  CHECK(post("/api/v1/jobs/a%20job", ada, "-X DELETE").ends_with("401"));
  REQUIRE(::chmod(file.c_str(), 0644) == 0);
  daemon.signal(SIGHUP);
  const auto said =
      daemon.process.read_until("the old one stays: " + config + ":1: http-token-file = " + file +
                                ": cannot read the tokens of the operators from");
  // One line a minute, not one each.
  CHECK(said.find("action denied") == said.rfind("action denied"));
  CHECK(post("/api/v1/jobs/a%20job", bob, "-X DELETE") ==
        "the job had ended with exit code 143, and nothing is kept of it\n200");
  daemon.await_page("/metrics", "dlaunch_actions_total{outcome=\"done\"} 4\n");
  const std::string metrics = daemon.page("/metrics");
  CHECK(metrics.find("dlaunch_actions_total{outcome=\"refused\"} 2\n") != std::string::npos);
  CHECK(metrics.find("dlaunch_actions_total{outcome=\"denied\"} 3\n") != std::string::npos);
  CHECK(
      refused({"--check", "--http-token-file", file}, exit_code::configuration).find("chmod 600") !=
      std::string::npos);

  const Daemon closed;
  CHECK(closed.page("/api/v1/drain", "-X POST").find("set http-token-file") != std::string::npos);
}

TEST_CASE("configurations are checked, and refused with the code that says so") {
  CHECK(refused({"--check"}, 0) == "dlaunchd: the configuration is good\n");
  CHECK(refused({"--version"}, 0).starts_with("dlaunchd "));
  CHECK(refused({"--listen", "0.0.0.0:0"}, exit_code::configuration)
            .find("beyond loopback a secret is needed") != std::string::npos);
  CHECK(refused({"--check", "--listen", "[::]:0"}, exit_code::configuration)
            .find("beyond loopback") != std::string::npos);
  CHECK(refused({"--jobs-max", "x"}, exit_code::usage).find("whole number") != std::string::npos);
  CHECK(refused({"--config", "/nowhere"}, exit_code::configuration) ==
        "dlaunchd: --config /nowhere: cannot be read: No such file or directory\n");
  CHECK(refused({"--config", "/"}, exit_code::configuration) ==
        "dlaunchd: --config /: cannot be read: Is a directory\n");
  const auto taken = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string at = local_address(taken.get()).to_string();
  // The process that has it may be gone at the next start, which this code does not prevent.
  CHECK(refused({"--listen", at}, exit_code::unreachable).find("Address already in use by pid") !=
        std::string::npos);
  CHECK(refused({"--listen", "127.0.0.1:0", "--http", at}, exit_code::unreachable)
            .find("Address already in use by pid") != std::string::npos);
  const Folder folder;
  const std::string path = folder.path + "/d.sock";
  const unique_fd socket = listen_unix(path);
  CHECK(refused({"--listen", "unix:" + path}, exit_code::unreachable)
            .find("another process listens there") != std::string::npos);
}

TEST_CASE("what the start would refuse is found by --check") {
  const auto wrong = [](std::vector<std::string> arguments) {
    const std::string started = refused(arguments, exit_code::configuration);
    arguments.emplace_back("--check");
    CHECK(refused(arguments, exit_code::configuration) == started);
    return started;
  };
  CHECK(wrong({"--listen", "127.0.0.1:5", "--listen", "127.0.0.1:5"}) ==
        "dlaunchd: --listen 127.0.0.1:5,127.0.0.1:5: 127.0.0.1:5 is given twice; leave one out\n");
  CHECK(wrong({"--listen", "127.0.0.1:5", "--http", "127.0.0.1:5"}) ==
        "dlaunchd: --http 127.0.0.1:5: agents come in at 127.0.0.1:5; the status needs a port of "
        "its own\n");
  CHECK(wrong({"--socket-group", "no such group"}) ==
        "dlaunchd: --socket-group no such group: there is no group 'no such group' here\n");
  CHECK(wrong({"--secret-file", "/nosuch"}) ==
        "dlaunchd: --secret-file /nosuch: cannot read the secret from /nosuch: No such file or "
        "directory\n");
}

TEST_CASE("what is printed where nobody can read it has failed") {
  for (const char* nowhere : {">&-", ">/dev/full"}) {
    Process process({"/bin/sh", "-c", program + " --version " + nowhere}, {});
    CHECK(process.wait() == exit_code::internal);
    CHECK(process.output().starts_with("dlaunchd: cannot write: "));
  }
}

TEST_CASE("a key is printed for an id that a launcher takes") {
  CHECK(refused({"job-key"}, exit_code::usage).find("job-key needs the job's id") !=
        std::string::npos);
  CHECK(refused({"job-key", ""}, exit_code::usage) == "dlaunchd: job-key '': the value is empty\n");
  CHECK(refused({"job-key", "a b/c"}, exit_code::usage) ==
        "dlaunchd: job-key 'a b/c': only letters, digits and .,:;@%+=_- are allowed\n");
  CHECK(refused({"job-key", "a"}, exit_code::configuration).find("there is no secret") !=
        std::string::npos);
}

TEST_CASE("under a service manager it listens at a socket, too, unless it is told where") {
  const Folder folder;
  const std::string path = folder.path + "/dlaunchd.sock";
  const std::map<std::string, std::string> environment = {{"RUNTIME_DIRECTORY", folder.path}};
  {
    Daemon told({}, environment);
    CHECK(::access(path.c_str(), F_OK) != 0);
  }
  // The default port may be another's here; then it says so, and the socket is gone again.
  Process untold({program, "--http", "off"}, environment);
  const std::string said = untold.read_until("\n");
  if (said.find(" ready ") != std::string::npos) {
    CHECK(said.find("listen=127.0.0.1:29400,unix:" + path + " ") != std::string::npos);
    CHECK(::access(path.c_str(), F_OK) == 0);
    REQUIRE(::kill(untold.pid(), SIGTERM) == 0);
    CHECK(untold.wait() == 0);
  } else {
    CHECK(said.find("127.0.0.1:29400") != std::string::npos);
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
}

TEST_CASE("the service manager hears all of it") {
  const Folder folder;
  const std::string name = folder.path + "/notify";
  Manager manager(name);
  Daemon daemon({}, {{"NOTIFY_SOCKET", name}, {"WATCHDOG_USEC", "20000"}});
  CHECK(manager.hear("READY=1") == "READY=1\nSTATUS=listening on " + daemon.rendezvous.to_string());
  for (int i = 0; i < 3; ++i) manager.hear("WATCHDOG=1");
  daemon.signal(SIGHUP);
  CHECK(manager.hear("RELOADING=1").find("\nMONOTONIC_USEC=") != std::string::npos);
  manager.hear("READY=1");
  daemon.signal(SIGTERM);
  CHECK(manager.hear("STOPPING=1").find("\nEXTEND_TIMEOUT_USEC=40000000\n") != std::string::npos);
  CHECK(daemon.process.wait() == 0);
}

TEST_CASE("garbage on the rendezvous, and clients that hang on the pages, harm nobody") {
  Daemon daemon;
  RunningJob job(daemon.rendezvous, "steady", 1);
  for (int i = 0; i < 50; ++i) {
    RawPeer garbage(connect_tcp(daemon.rendezvous, soon()));
    garbage.say("GET / HTTP/1.1\r\n\r\n");
    CHECK(garbage.read(1).empty());
  }
  daemon.await_page("/metrics", "dlaunch_connections_garbage_total 50\n");
  std::vector<unique_fd> mute;
  while (mute.size() < 200) mute.push_back(connect_tcp(daemon.http, soon()));
  job.agent.tell(rendezvous::message::Heartbeat::type, {});
  job.agent.hear<message::Heartbeat>();
  CHECK(daemon.page("/healthz") == "ok\n200");  // When those before it were cut off.
  job.end();
}
