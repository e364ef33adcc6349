#include "launcher/job/hosting.hpp"

#include "runtime/base/os/socket.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

TEST_CASE("of a name's addresses on this host one is hosted at, also by a second agent") {
  JobSpec spec;
  spec.nodes = {.least = 2, .most = 2};
  spec.meeting.host = "localhost";
  // As "localhost" is often: both are this host's.
  const auto first = resolve("127.0.0.1", 0).front();
  const unique_fd port = listen_tcp(first);
  const auto number = local_address(port.get()).port();
  std::vector<Address> addresses = resolve("127.0.0.1", number);
  addresses.push_back(resolve("127.0.0.2", number).front());

  const auto decided = bind_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<JoinElsewhere>(decided));
  const auto& held = std::get<JoinElsewhere>(decided).held;
  REQUIRE(held.size() == 1);
  CHECK(held.front().host() == "127.0.0.1");

  // The same where the first one is free: dlaunchd may listen at 127.0.0.1 alone.
  std::swap(addresses[0], addresses[1]);
  const auto second = bind_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<JoinElsewhere>(second));
  CHECK(std::get<JoinElsewhere>(second).held.front().host() == "127.0.0.1");
  // A name may be told twice.
  CHECK(std::holds_alternative<unique_fd>(bind_or_join(spec, {addresses[0], addresses[0]})));

  spec.rdzv_role = RendezvousRole::host;
  const auto refused = bind_or_join(spec, addresses);
  REQUIRE(std::holds_alternative<HostingProblem>(refused));
  CHECK(std::get<HostingProblem>(refused).sentence.find("127.0.0.1:" + std::to_string(number)) !=
        std::string::npos);
}

TEST_CASE("an address that is not this host's is passed over") {
  JobSpec spec;
  spec.nodes = {.least = 2, .most = 2};
  spec.meeting.host = "head";
  std::vector<Address> addresses = resolve("192.0.2.1", 0);  // For documents: nobody's.
  addresses.push_back(resolve("127.0.0.1", 0).front());
  CHECK(std::holds_alternative<unique_fd>(bind_or_join(spec, addresses)));
}
