// A unix socket that is for more than the server's own user, and who else comes to it.
#include "tests/support/guarded_server.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/temporary_folder.hpp"

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
