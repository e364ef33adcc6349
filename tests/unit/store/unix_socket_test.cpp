// A unix socket that is for more than the server's own user, and who else comes to it.
#include "tests/support/guarded_server.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/uplink_peer.hpp"

#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::test;

TEST_CASE("by a unix socket its users come in without the secret, and others are told why not") {
  if (::geteuid() != 0) return testing::skipped("only root can be another user for a moment");
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "s.sock";
  GuardedServer server;
  server.on_loop([&](store::Server& s) {
    // The file is open to all, so that it is the server that decides.
    s.listen(listen_unix(path), {true, false}, SocketAccess{.own = 1, .group = 2, .mode = 0660});
    return 0;
  });
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(path.c_str(), 0777) == 0);
  const auto join = [&](std::optional<Key> proof) {
    return failure([&] {
      store::Client(connect_unix(path, soon()), GuardedServer::with("train", proof), nullptr,
                    soon());
    });
  };
  CHECK(join(std::nullopt).second == "no error");
  // The kernel's own call is for one thread, the library's for all.
  std::jthread([&] {
    constexpr long stranger = 65534;
    REQUIRE(::syscall(SYS_setresuid, -1L, stranger, -1L) == 0);
    const auto said = join(std::nullopt);
    CHECK(said.first == Errc::unauthenticated);
    CHECK(said.second.find("the socket unix:" + path + " is not for uid 65534 (pid ") !=
          std::string::npos);
    CHECK(join(key("train")).second == "no error");
    CHECK(join(key("train", their_secret)).first == Errc::unauthenticated);
  }).join();
  CHECK(server.log().front().starts_with("refused: the socket unix:" + path + " is not for uid"));
}

TEST_CASE("a socket whose mode keeps a user out is not tried for long") {
  if (::geteuid() != 0) return testing::skipped("only root can be another user for a moment");
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "s.sock";
  const unique_fd listener = listen_unix(path);
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);  // The thread keeps root's group.
  std::jthread([&] {
    constexpr long stranger = 65534;
    REQUIRE(::syscall(SYS_setresuid, -1L, stranger, -1L) == 0);
    UplinkPeer peer(UplinkPeer::options(unix_address(path)));
    REQUIRE(peer.until([&] { return !peer.refusals.empty(); }));
    // A daemon that starts makes its socket a moment before it opens it to others.
    REQUIRE(peer.troubles.size() == 1);
    CHECK(peer.troubles[0].sentence == "connecting to unix:" + path + ": Permission denied");
    CHECK(peer.refusals[0].code == Errc::unauthenticated);
    CHECK(peer.refusals[0].sentence.find("refused: the socket unix:" + path +
                                         " is not for uid 65534 (pid ") != std::string::npos);
  }).join();
}
