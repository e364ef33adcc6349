// How nodes find each other: addresses, interfaces, names that are wrong, late or not there.
#include "tests/process/job.hpp"
#include "tests/process/network/network.hpp"
#include "tests/support/expect.hpp"

#include <filesystem>
#include <fstream>
#include <memory>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;

using Strings = std::vector<std::string>;

Strings all_reduce() { return {std::string(DLAUNCH_BINARY_DIR) + "/bin/examples/all_reduce"}; }
Strings where() { return {"/bin/sh", "-c", "echo master $MASTER_ADDR."}; }

Strings line(const std::string& nnodes, const std::string& endpoint, Strings more,
             const Strings& program) {
  Strings all{dlaunch_path(), "--nnodes", nnodes, "--rdzv-endpoint", endpoint + ":29400"};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), program.begin(), program.end());
  return all;
}

std::unique_ptr<Job> start(Strings command) {
  const std::string program = command.front();
  command.erase(command.begin());
  return std::make_unique<Job>(std::move(command), Job::Environment{}, program);
}

/// A directory for files that stand in the place of the system's.
class Etc {
 public:
  Etc() { std::filesystem::create_directory(path_); }
  ~Etc() { std::filesystem::remove_all(path_); }
  /// In place: what is mounted is the file, not its name.
  std::string write(const std::string& name, const std::string& text) const {
    const auto path = path_ / name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / unique_token();
};

}  // namespace

TEST_CASE("three machines compute together") {
  auto family = Network::Family::v4;
  std::string head = "10.77.0.1", endpoint = head;
  SUBCASE("over IPv4") {}
  SUBCASE("over IPv6 only") {
    family = Network::Family::v6;
    head = "fd77::1";
    endpoint = "[fd77::1]";
  }
  const Network network(3, family);
  for (const auto& program : {all_reduce(), where()}) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (int machine = 0; machine < 3; ++machine) {
      jobs.push_back(start(network.on(
          machine,
          line("3", endpoint, {"--nproc-per-node", "2", "--node-rank", std::to_string(machine)},
               program))));
    }
    std::string said;
    for (auto& job : jobs) {
      CHECK(job->wait().code == 0);
      said += job->out() + job->err();
    }
    INFO(said);
    const bool computed = contains(said, "6 ranks, mean 3.5");
    CHECK((computed || contains(said, ":5] master " + head + ".")));
  }
}

TEST_CASE("the interface that is asked for") {
  const Network network(2, Network::Family::both);
  const auto both = [&](const std::string& iface) {
    auto a = start(network.on(
        0, line("2", network.address(0), {"--node-rank", "0", "--iface", iface}, where())));
    auto b = start(network.on(1, line("2", network.address(0), {"--node-rank", "1"}, where())));
    CHECK(a->wait().code == 0);
    CHECK(b->wait().code == 0);
    INFO(a->err() << b->err());
    return b->out();
  };
  CHECK(contains(both("eth0"), "master 10.77.0.1."));
  CHECK(contains(both("10.77.0.0/16"), "master 10.77.0.1."));
  CHECK(contains(both("fd77::/64"), "master fd77::1."));
  auto wrong = start(network.on(0, line("2", network.address(0), {"--iface", "ib0"}, where())));
  CHECK(wrong->wait().code == 64);
  INFO(wrong->err());
  CHECK(contains(wrong->err(), "--iface ib0: no interface that is up"));
  CHECK(contains(wrong->err(), "eth0 10.77.0.1"));
}

TEST_CASE("two interfaces of which only one leads to the other nodes") {
  Network network(3);
  for (int machine = 0; machine < 3; ++machine) network.add_dead_end(machine);
  // Node rank 0 hosts nothing, and publishes the address first that nobody reaches; the workers'
  // own addresses are those at which their agent meets the rendezvous.
  for (const auto& program : {where(), all_reduce()}) {
    std::vector<std::unique_ptr<Job>> jobs;
    const auto add = [&](int machine, Strings options) {
      jobs.push_back(
          start(network.on(machine, line("3", network.address(2), std::move(options), program))));
    };
    add(2, {"--node-rank", "2"});
    REQUIRE(jobs[0]->saw("1 of 3 nodes"));
    add(0, {"--node-rank", "0", "--local-addr", "10.88.0.1"});
    add(1, {"--node-rank", "1"});
    std::string said;
    for (auto& job : jobs) {
      CHECK(job->wait().code == 0);
      said += job->out() + job->err();
    }
    INFO(said);
    CHECK((contains(said, "3 ranks, mean 2") || contains(said, ":1] master 10.77.0.1.")));
  }
}

TEST_CASE("a machine with nothing but its loopback") {
  Network network(2);
  network.unplug(1);
  auto b = start(
      network.on(1, line("2", network.address(0), {"--rdzv-conf", "join_timeout=500ms"}, where())));
  CHECK(b->wait().code == 69);
  INFO(b->err());
  CHECK(contains(b->err(), "10.77.0.1:29400: no route to that host"));
  CHECK(contains(b->err(), "tried for 500 ms"));
}

TEST_CASE("a name that nobody knows at first") {
  const Network network(2);
  const Etc etc;
  const auto hosts = etc.write("hosts", "127.0.0.1 localhost\n");
  const Network::Files files = {
      {hosts, "/etc/hosts"}, {etc.write("nsswitch.conf", "hosts: files\n"), "/etc/nsswitch.conf"}};
  const Strings times = {"--rdzv-conf", "join_timeout=60s"};
  auto a = start(network.on(0, line("2", "head", times, all_reduce()), files));
  auto b = start(network.on(1, line("2", "head", times, all_reduce()), files));
  for (auto* job : {a.get(), b.get()}) {
    REQUIRE(job->saw("looking up the host name 'head' failed"));
    REQUIRE(job->saw("it is tried again"));
  }
  etc.write("hosts", "127.0.0.1 localhost\n" + network.address(0) + " head\n");
  CHECK(a->wait().code == 0);
  CHECK(b->wait().code == 0);
  INFO(a->out() << a->err() << b->out() << b->err());
  CHECK(contains(a->out() + b->out(), "2 ranks"));
}

TEST_CASE("a name that nobody ever knows") {
  const Network network(1);
  const Etc etc;
  const Network::Files files = {
      {etc.write("nsswitch.conf", "hosts: files\n"), "/etc/nsswitch.conf"}};
  auto a = start(network.on(
      0, line("2", "head.invalid", {"--rdzv-conf", "join_timeout=500ms"}, where()), files));
  CHECK(a->wait().code == 69);
  INFO(a->err());
  CHECK(contains(a->err(), "looking up the host name 'head.invalid' failed"));
  CHECK(contains(a->err(), "tried for 500 ms"));
}

TEST_CASE("a host whose own name is 127.0.1.1, as Debian's installer writes it") {
  const Network network(1);
  const Etc etc;
  const Network::Files files = {
      {etc.write("hosts", "127.0.0.1 localhost\n127.0.1.1 head\n"), "/etc/hosts"},
      {etc.write("nsswitch.conf", "hosts: files\n"), "/etc/nsswitch.conf"}};
  auto a = start(network.on(0, line("2", "head", {}, where()), files));
  CHECK(a->wait().code == 64);
  INFO(a->err());
  CHECK(contains(a->err(), "'head' is 127.0.1.1 on this host, where no other node can come"));
}

TEST_CASE("a host's name with several addresses, of which not all lead to it from everywhere") {
  Network network(2, Network::Family::both);
  network.add_dead_end(0);
  const std::string head = network.address(0) + " head\n", at_loopback = "127.0.1.1 head\n";
  std::string here = at_loopback + head, there = head;
  SUBCASE("cloud-init's, and the real one") {}
  SUBCASE("the same on all nodes") { there = here; }
  SUBCASE("IPv6 before IPv4, which another node lacks") {
    here = network.address_v6(0) + " head\n" + head;
  }
  SUBCASE("two interfaces") { here = "10.88.0.1 head\n" + head; }
  const Etc etc;
  const auto nsswitch = etc.write("nsswitch.conf", "hosts: files\n");
  const auto files = [&](const std::string& name, const std::string& names) {
    const auto hosts = etc.write(name, "127.0.0.1 localhost\n" + names);
    return Network::Files{{hosts, "/etc/hosts"}, {nsswitch, "/etc/nsswitch.conf"}};
  };
  const auto files_here = files("here", here), files_there = files("there", there);
  const auto by_rank = [](const char* rank) {
    Strings all{dlaunch_path(), "--nnodes",      "2",    "--node-rank", rank, "--master-addr",
                "head",         "--master-port", "29400"};
    for (const auto& word : where()) all.push_back(word);
    return all;
  };
  for (const bool ranked : {false, true}) {
    auto a = start(network.on(
        0, ranked ? by_rank("0") : line("2", "head", {"--node-rank", "0"}, where()), files_here));
    auto b = start(network.on(
        1, ranked ? by_rank("1") : line("2", "head", {"--node-rank", "1"}, where()), files_there));
    CHECK(a->wait().code == 0);
    CHECK(b->wait().code == 0);
    INFO(a->out() << a->err() << b->out() << b->err());
    CHECK(contains(a->out() + b->out(), "0] master "));
    CHECK(contains(b->out(), "master " + network.address(0) + "."));
  }
}

TEST_CASE("ranks by hand compute together where rank 0's host is 127.0.1.1 to itself, too") {
  const Network network(2);
  const Etc etc;
  const auto nsswitch = etc.write("nsswitch.conf", "hosts: files\n");
  const std::string head = network.address(0) + " head\n";
  std::vector<std::unique_ptr<Job>> ranks;
  for (const int rank : {0, 1}) {
    const auto hosts = etc.write(
        "hosts" + std::to_string(rank),
        "127.0.0.1 localhost\n" + std::string(rank == 0 ? "127.0.1.1 head\n" : "") + head);
    Strings command{"env", "RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=head",
                    "MASTER_PORT=29400"};
    for (const auto& word : all_reduce()) command.push_back(word);
    ranks.push_back(start(
        network.on(rank, command, {{hosts, "/etc/hosts"}, {nsswitch, "/etc/nsswitch.conf"}})));
  }
  for (auto& rank : ranks) {
    CHECK(rank->wait().code == 0);
    CHECK(rank->err() == "");
  }
}

TEST_CASE("machines of one name are two hosts, and the ranks of each share its memory") {
  Network network(2);
  const std::string rank_program = std::string(DLAUNCH_BINARY_DIR) + "/tests/by_hand_rank";
  std::vector<std::unique_ptr<Job>> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    const std::string url =
        "tcp://" + network.address(0) + ":29400?world_size=4&rank=" + std::to_string(rank);
    ranks.push_back(start(network.on(
        rank % 2,
        {"/bin/sh", "-c", "hostname same; exec " + rank_program + " '" + url + "' 30000 share"})));
  }
  for (const int rank : {0, 1, 2, 3}) {
    Job& job = *ranks[static_cast<std::size_t>(rank)];
    CHECK(job.wait().code == 0);
    const std::string local = std::to_string(rank / 2), node = std::to_string(rank % 2);
    CHECK_MESSAGE(contains(job.out(), " local=" + local + "/2 node=" + node + "/2 "), job.out());
    CHECK(contains(job.out(), " is " + local + " of 2 in segment "));
    const int lower = 1000 + rank % 2;
    CHECK(contains(job.out(),
                   "and reads " + std::to_string(lower) + " " + std::to_string(lower + 2)));
  }
}

}  // namespace dlaunch::process_test
