#include "launcher/doctor/core/findings.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch::launcher::doctor;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

/// A host of which there is nothing to say.
HostFacts well() {
  HostFacts facts;
  facts.hostname = "h1";
  facts.addresses = {"10.0.0.1"};
  facts.reverse_name = "h1.cluster";
  facts.interfaces = {{"lo", "127.0.0.1", 65536, true}, {"eth0", "10.0.0.1", 1500, false}};
  facts.shared_memory = Space{8 * gib, 8 * gib};
  facts.files = {1024, 65536};
  facts.core_pattern = "core";
  facts.usable_cores = facts.online_cores = 8;
  facts.cores_reason = "8 in the affinity mask";
  facts.memory_bytes = 64 * gib;
  facts.clock_synchronised = true;
  facts.python = {"/usr/bin/python3", "3.11.2", "2.4.0"};
  facts.protocol_version = 2;
  return facts;
}

Finding about(const HostFacts& facts, std::string_view what) {
  const auto findings = judge(facts);
  const auto found = std::ranges::find(findings, what, &Finding::about);
  REQUIRE(found != findings.end());
  return *found;
}

}  // namespace

TEST_CASE("a host that is well has neither warnings nor problems") {
  const auto findings = judge(well());
  for (const auto& found : findings) {
    CAPTURE(found.about);
    CHECK(found.level == Level::ok);
    CHECK(found.cure.empty());
    CHECK_FALSE(found.text.empty());
  }
  const std::string text = findings_text(findings);
  CHECK(text.starts_with("ok       host name       h1 is 10.0.0.1; 10.0.0.1 is h1.cluster\n"));
  CHECK(text.ends_with("\n0 problems, 0 warnings\n"));
}

TEST_CASE("what makes jobs fail is told, with what to do") {
  struct Case {
    std::string about;
    Level level;
    std::string text, cure;
    void (*change)(HostFacts& facts);
  };
  const std::vector<Case> cases = {
      {"host name", Level::warning, "h1 stands for no address: nobody knows it", "/etc/hosts",
       [](HostFacts& f) {
         f.addresses.clear();
         f.lookup_error = "nobody knows it";
       }},
      {"host name", Level::warning, "127.0.1.1", "an address of the network",
       [](HostFacts& f) { f.addresses = {"127.0.1.1"}; }},
      {"interfaces", Level::warning, "lo 127.0.0.1 (MTU 65536)", "needs a network",
       [](HostFacts& f) { f.interfaces.pop_back(); }},
      {"interfaces", Level::warning, "(MTU 576)", "--iface",
       [](HostFacts& f) { f.interfaces[1].mtu = 576; }},
      {"loopback", Level::problem, "cannot be reached: refused", "ip link set lo up",
       [](HostFacts& f) { f.loopback_error = "refused"; }},
      {"/dev/shm", Level::warning, "it is not there", "mount a tmpfs",
       [](HostFacts& f) { f.shared_memory.reset(); }},
      {"/dev/shm", Level::warning, "64.0 MiB, of which 64.0 MiB are free", "--shm-size",
       [](HostFacts& f) {
         f.shared_memory = Space{gib / 16, gib / 16};
       }},
      {"/dev/shm", Level::warning, "of which 1.0 KiB are free", "ended jobs",
       [](HostFacts& f) {
         f.shared_memory = Space{2 * gib, 1024};
       }},
      {"open files", Level::problem, "raises to 128", "ulimit -Hn",
       [](HostFacts& f) {
         f.files = {128, 128};
       }},
      {"open files", Level::warning, "raises to 1024", "ulimit -Hn",
       [](HostFacts& f) {
         f.files = {256, 1024};
       }},
      {"processes", Level::warning, "limit 500", "ulimit -u",
       [](HostFacts& f) {
         f.processes = {500, 500};
       }},
      {"locked memory", Level::warning, "limit 64.0 KiB", "ulimit -l",
       [](HostFacts& f) {
         f.has_infiniband = true;
         f.locked_memory = {65536, 65536};
       }},
      {"core files", Level::ok, "none is written", "ulimit -c unlimited",
       [](HostFacts& f) { f.core.soft = 0; }},
      {"processors", Level::warning, "1 of 8 can be used", "taskset",
       [](HostFacts& f) { f.usable_cores = 1; }},
      {"memory", Level::warning, "512.0 MiB by the cgroup, of the host's 64.0 GiB", "kills",
       [](HostFacts& f) { f.memory_limit_bytes = gib / 2; }},
      {"process memory", Level::warning, "not permitted", "ptrace_scope",
       [](HostFacts& f) {
         f.reads_processes = false;
         f.read_error = "not permitted";
       }},
      {"GPUs", Level::warning, "8 GPUs, libnccl.so.2 is not found", "libnccl2",
       [](HostFacts& f) { f.gpus = 8; }},
      {"clock", Level::warning, "not synchronised", "chrony",
       [](HostFacts& f) { f.clock_synchronised = false; }},
      {"python", Level::warning, "there is none", "PYTHON_EXEC",
       [](HostFacts& f) { f.python = {}; }},
      {"python", Level::warning, "/usr/bin/python3 does not run", "PYTHON_EXEC",
       [](HostFacts& f) { f.python.version.clear(); }},
      {"peer", Level::problem, "head:29400 is not reached: refused", "firewall",
       [](HostFacts& f) { f.peer = Peer{.name = "head:29400", .error = "refused"}; }},
      {"peer", Level::problem, "is reached in 1.5 ms, and does not answer", "TLS",
       [](HostFacts& f) {
         f.peer = Peer{.name = "head:29400",
                       .kind = Peer::Kind::silent,
                       .connected_in = std::chrono::microseconds(1500)};
       }},
      {"peer", Level::problem, "is no dlaunchd or launcher", "ss -ltnp",
       [](HostFacts& f) { f.peer = Peer{.name = "head:29400", .kind = Peer::Kind::other}; }},
      {"peer", Level::problem, "of protocol version 1; ours is 2", "same dlaunch",
       [](HostFacts& f) {
         f.peer = Peer{.name = "head:29400", .kind = Peer::Kind::dlaunch, .version = 1};
       }},
      {"peer", Level::ok, "is a dlaunchd, or a launcher that hosts a job", "",
       [](HostFacts& f) {
         f.peer = Peer{.name = "head:29400", .kind = Peer::Kind::dlaunch, .version = 2};
       }},
  };
  for (const auto& [what, level, text, cure, change] : cases) {
    HostFacts facts = well();
    change(facts);
    const Finding found = about(facts, what);
    CAPTURE(found.text);
    CAPTURE(found.cure);
    CHECK(found.level == level);
    CHECK(found.text.find(text) != std::string::npos);
    CHECK(found.cure.find(cure) != std::string::npos);
    CHECK(count(judge(facts), Level::problem) == (level == Level::problem ? 1 : 0));
    CHECK(count(judge(facts), Level::warning) == (level == Level::warning ? 1 : 0));
  }
}

TEST_CASE("root's limits, and those that nothing here runs into, are no trouble") {
  HostFacts facts = well();
  facts.processes = {500, 500};
  facts.locked_memory = {65536, 65536};
  facts.is_root = true;
  CHECK(about(facts, "processes").level == Level::ok);
  CHECK(about(facts, "locked memory").level == Level::ok);
  facts.is_root = false;
  CHECK(about(facts, "locked memory").level == Level::ok);  // Without InfiniBand.
  facts.core_pattern = "|/usr/lib/systemd/systemd-coredump %P";
  facts.core.soft = 0;
  CHECK(about(facts, "core files").text.starts_with("a program takes them: /usr/lib/systemd"));
  facts.memory_limit_bytes = 2 * facts.memory_bytes;
  CHECK(about(facts, "memory").text == "64.0 GiB");
  facts.clock_synchronised.reset();
  CHECK(about(facts, "clock").level == Level::ok);
  facts.scheduler = "Slurm";
  facts.variables = {"DLAUNCH_NNODES", "SLURM_JOB_ID"};
  CHECK(about(facts, "scheduler").text ==
        "Slurm; variables that count: DLAUNCH_NNODES and SLURM_JOB_ID");
}

TEST_CASE("findings are told as JSON, too") {
  HostFacts facts = well();
  facts.loopback_error = "refused";
  facts.clock_synchronised = false;
  const auto told = nlohmann::json::parse(findings_json(judge(facts)));
  CHECK(told["problems"] == 1);
  CHECK(told["warnings"] == 1);
  CHECK(told["findings"][0]["about"] == "host name");
  CHECK(told["findings"][0]["level"] == "ok");
  CHECK(told["findings"][0]["cure"].is_null());
  CHECK(told["findings"][2]["level"] == "problem");
}

TEST_CASE("a time is read as date prints it, and not without its parts of a second") {
  using namespace std::chrono_literals;
  const std::chrono::system_clock::time_point at{1795442400s + 250ms};
  CHECK(time_of("1795442400.250000000") == at);
  for (const auto* text : {"", "1795442400", "1795442400.N", "1795442400.25", "x.250000000",
                           "-1.250000000", "1795442400.-50000000", "99999999999.250000000"}) {
    CAPTURE(text);
    CHECK_FALSE(time_of(text));
  }
}

TEST_CASE("the shortest round trip tells by how much two clocks differ, and how surely") {
  using namespace std::chrono_literals;
  const std::chrono::system_clock::time_point at{1795442400s};
  // The first one took a login, and the second one waited on its way back.
  const std::vector<ClockSample> samples = {{at, at + 7s, at + 3s},
                                            {at + 3s, at + 8001ms, at + 3100ms},
                                            {at + 4s, at + 9001ms, at + 4002ms}};
  const HostClock clock = clock_of("b", samples);
  CHECK(clock.host == "b");
  CHECK(clock.ahead == 5s);
  CHECK(clock.error == 1ms);
  CHECK(clock_of("b", std::vector<ClockSample>{{at, at - 2s, at + 1ms}}).ahead == -2000500us);
  // A clock that was set back between the two says nothing.
  CHECK(clock_of("b", std::vector<ClockSample>{{at, at, at - 1s}}).error == 0us);
}

TEST_CASE("what is said of another host's clock") {
  using namespace std::chrono_literals;
  HostFacts facts = well();
  const auto say = [&](std::chrono::microseconds ahead, std::chrono::microseconds error) {
    facts.clocks = {{.host = "b", .ahead = ahead, .error = error}};
    return about(facts, "clock of b");
  };
  CHECK(say(300us, 400us) == Finding{Level::ok, "clock of b", "the same as here, within 0.4 ms"});
  CHECK(say(-2ms, 400us).text == "2.0 ms behind this host's, within 0.4 ms");
  CHECK(say(-2ms, 400us).level == Level::ok);
  // It may be less.
  CHECK(say(150ms, 60ms).level == Level::ok);
  CHECK(say(3s, 1ms).text == "3000.0 ms ahead of this host's, within 1.0 ms");
  CHECK(say(3s, 1ms).level == Level::warning);
  CHECK(say(-3s, 1ms).cure.find("chrony") != std::string::npos);
  facts.clocks = {{.host = "b", .problem = "ssh does not get there"}};
  CHECK(about(facts, "clock of b").level == Level::warning);
  CHECK(about(facts, "clock of b").text == "it is not known: ssh does not get there");
}
