// The user at the other end of a unix socket, and whether the socket is for them.
#include "runtime/base/os/peer_user.hpp"

#include "runtime/base/os/socket.hpp"

#include <algorithm>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace dlaunch;

TEST_CASE("the kernel tells who is at the other end of a unix socket, and of no other") {
  const auto pair = socket_pair();
  const auto user = peer_user(pair.first.get());
  REQUIRE(user);
  CHECK(user->uid == ::geteuid());
  CHECK(user->pid == ::getpid());
  CHECK(std::ranges::find(user->groups, ::getegid()) != user->groups.end());
  CHECK(user->to_string() ==
        "uid " + std::to_string(::geteuid()) + " (pid " + std::to_string(::getpid()) + ")");
  const unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  CHECK(!peer_user(connect_tcp(local_address(listener.get()), Clock::time_point::max()).get()));
}

TEST_CASE("a socket is for root, its owner, and those to whom its file is open") {
  const PeerUser root{.uid = 0, .groups = {0}, .pid = 1};
  const PeerUser owner{.uid = 5, .groups = {5}, .pid = 1};
  const PeerUser member{.uid = 6, .groups = {6, 70}, .pid = 1};
  const PeerUser stranger{.uid = 7, .groups = {7}, .pid = 1};
  struct {
    mode_t mode;
    bool member, stranger;
  } const cases[] = {
      {0600, false, false}, {0640, false, false}, {0660, true, false}, {0666, true, true}};
  for (const auto& [mode, to_member, to_stranger] : cases) {
    const SocketAccess access{.own = 5, .group = 70, .mode = mode};
    CHECK(access.admits(root));
    CHECK(access.admits(owner));
    CHECK(access.admits(member) == to_member);
    CHECK(access.admits(stranger) == to_stranger);
  }
}
