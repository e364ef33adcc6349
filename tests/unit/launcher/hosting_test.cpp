#include "launcher/job/hosting.hpp"

#include "runtime/base/os/socket.hpp"

#include <initializer_list>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

std::vector<Address> all_of(std::initializer_list<const char*> hosts, std::uint16_t port) {
  std::vector<Address> addresses;
  for (const char* host : hosts) addresses.push_back(resolve(host, port).front());
  return addresses;
}

/// A port that nobody has at any address.
std::uint16_t free_port() {
  const unique_fd taken = listen_tcp(resolve("0.0.0.0", 0).front());
  return local_address(taken.get()).port();
}

std::vector<std::string> hosts_of(const std::vector<Address>& addresses) {
  std::vector<std::string> hosts;
  for (const auto& address : addresses) hosts.push_back(address.host());
  return hosts;
}

std::vector<std::string> hosts_of(const Listeners& listeners) {
  std::vector<Address> addresses;
  for (const auto& fd : listeners) addresses.push_back(local_address(fd.get()));
  return hosts_of(addresses);
}

JobSpec two_nodes(const std::string& host) {
  JobSpec spec;
  spec.nodes = {.least = 2, .most = 2};
  spec.meeting.host = host;
  return spec;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("where somebody has the port at one of a name's addresses, no other agent hosts") {
  JobSpec spec = two_nodes("localhost");
  // As "localhost" is often: both are this host's.
  const auto first = resolve("127.0.0.1", 0).front();
  const unique_fd port = listen_tcp(first);
  const auto number = local_address(port.get()).port();
  std::vector<Address> addresses = all_of({"127.0.0.1", "127.0.0.2"}, number);

  const auto decided = host_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<JoinElsewhere>(decided));
  const auto& held = std::get<JoinElsewhere>(decided).held;
  REQUIRE(held.size() == 1);
  CHECK(held.front().host() == "127.0.0.1");
  CHECK(hosts_of(std::get<JoinElsewhere>(decided).places) == Strings{"127.0.0.1", "127.0.0.2"});

  // The same where the first one is free: dlaunchd may listen at 127.0.0.1 alone.
  std::swap(addresses[0], addresses[1]);
  const auto second = host_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<JoinElsewhere>(second));
  CHECK(std::get<JoinElsewhere>(second).held.front().host() == "127.0.0.1");
  CHECK(bind_all_of(addresses).empty());
  // What was bound before the port was found in use has been let go.
  CHECK(try_listen_tcp(addresses[0]));

  spec.rdzv_role = RendezvousRole::host;
  const auto refused = host_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<HostingProblem>(refused));
  CHECK(std::get<HostingProblem>(refused).sentence.find("127.0.0.1:" + std::to_string(number)) !=
        std::string::npos);
}

TEST_CASE("a node listens at each address of the name that is its own, once") {
  const JobSpec spec = two_nodes("localhost");
  const auto port = free_port();
  // 192.0.2.1 is for documents: nobody's.
  const auto decided =
      host_or_join(spec, all_of({"127.0.0.2", "192.0.2.1", "127.0.0.3", "127.0.0.2"}, port));
  REQUIRE(std::holds_alternative<Listeners>(decided));
  CHECK(hosts_of(std::get<Listeners>(decided)) == Strings{"127.0.0.2", "127.0.0.3"});
  for (const auto& at : all_of({"127.0.0.2", "127.0.0.3"}, port)) {
    CHECK(connect_tcp(at, Clock::now() + std::chrono::seconds(10)));
  }

  // A node that is alone opens no more than it needs.
  JobSpec alone = two_nodes("head");
  alone.nodes = {.least = 1, .most = 1};
  const auto one = host_or_join(alone, all_of({"127.0.0.4", "127.0.0.5"}, port));
  REQUIRE(std::holds_alternative<Listeners>(one));
  CHECK(hosts_of(std::get<Listeners>(one)) == Strings{"127.0.0.4"});
}

TEST_CASE("a loopback address beside others is no place to meet") {
  // As Debian's installer and cloud-init write it, with the real address added.
  const auto addresses = all_of({"127.0.1.1", "192.0.2.1"}, 29400);
  CHECK(hosts_of(hosting_order(two_nodes("head"), addresses)) == Strings{"192.0.2.1"});
  // On a host whose file names the head so, too: it must not wait for itself at its own loopback.
  const auto elsewhere = host_or_join(two_nodes("head"), addresses);
  REQUIRE(std::holds_alternative<JoinElsewhere>(elsewhere));
  CHECK(std::get<JoinElsewhere>(elsewhere).held.empty());

  JobSpec first = two_nodes("head");
  first.meeting.kind = Meeting::Kind::fixed;
  first.node_rank = 0;
  const auto problem = host_or_join(first, addresses);
  REQUIRE(std::holds_alternative<HostingProblem>(problem));
  CHECK(std::get<HostingProblem>(problem).sentence.find("192.0.2.1:29400") != std::string::npos);

  // Nothing but loopback is refused; where it was meant, or no other node comes, it is used.
  const auto only = all_of({"127.0.1.1"}, free_port());
  CHECK(std::holds_alternative<HostingProblem>(host_or_join(two_nodes("head"), only)));
  CHECK(std::holds_alternative<Listeners>(host_or_join(two_nodes("127.0.1.1"), only)));
  JobSpec alone = two_nodes("head");
  alone.nodes = {.least = 1, .most = 1};
  CHECK(std::holds_alternative<Listeners>(host_or_join(alone, only)));
  alone.spares = 1;
  CHECK(std::holds_alternative<HostingProblem>(host_or_join(alone, only)));
}

TEST_CASE("the first address of a name is the one that most nodes have a way to") {
  const auto addresses = all_of({"fe80::1", "fd99:7::1", "192.0.2.1", "fd99:7::2", "::1"}, 29400);
  CHECK(hosts_of(hosting_order(two_nodes("head"), addresses)) ==
        Strings{"192.0.2.1", "fd99:7::1", "fd99:7::2", "fe80::1"});
  CHECK(hosts_of(hosting_order(two_nodes("localhost"), all_of({"::1", "127.0.0.1"}, 29400))) ==
        Strings{"127.0.0.1", "::1"});
}

TEST_CASE("an address of a family that the kernel lacks is passed over") {
  Address strange;
  strange.storage.ss_family = 200;
  strange.size = sizeof strange.storage;
  CHECK_FALSE(try_listen_tcp(strange));
}

TEST_CASE("a name that is not known: what was answered, and what helps with --hosts") {
  JobSpec spec;
  spec.meeting.host = "ha";
  spec.rdzv_times.join = std::chrono::seconds(6);
  CHECK(lookup_sentence(spec, "Host not found", false) ==
        "looking up the host name 'ha' failed: Host not found; it is tried again for up to 6 s");
  CHECK(lookup_sentence(spec, "Host not found", true) ==
        "looking up the host name 'ha' failed: Host not found; tried for 6 s");
  CHECK(lookup_sentence(spec, "", true) ==
        "looking up the host name 'ha': no answer from the name service; tried for 6 s");
  spec.ends_with_stdin = true;
  spec.rdzv_role = RendezvousRole::join;
  CHECK(lookup_sentence(spec, "Host not found", true) ==
        "looking up the host name 'ha' failed: Host not found; tried for 6 s; the nodes of --hosts "
        "meet at the first host, by its name in that list: --rdzv-endpoint gives it a name or an "
        "address that all hosts know");
}
