// The file of a daemon's unix socket: its mode, what it replaces, and its end.
#include "rendezvous/access/socket_file.hpp"

#include "runtime/base/os/socket.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace dlaunch;
using rendezvous::SocketFile;

namespace {

std::string refusal(const std::string& path, const std::string& group = "",
                    Errc code = Errc::misuse) {
  try {
    SocketFile(path, 0660, group);
  } catch (const Error& error) {
    CHECK(error.errc() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a socket's file has its mode, says who may come, and goes with it") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "d.sock";
  {
    SocketFile file(path, 0640, "");
    const unique_fd listener = file.take();
    struct stat made {};
    REQUIRE(::stat(path.c_str(), &made) == 0);
    CHECK((made.st_mode & 0777) == 0640);
    const SocketAccess access = rendezvous::access_of(listener.get());
    CHECK(access.own == ::geteuid());
    CHECK(access.group == made.st_gid);
    CHECK((access.mode & 0777) == 0640);
    CHECK(connect_unix(path, Clock::now() + std::chrono::seconds(20)));
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a socket that was left behind is replaced, a living one and another file are not") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "d.sock";
  listen_unix(path).reset();
  CHECK(::access(path.c_str(), F_OK) == 0);
  {
    SocketFile file(path, 0660, "");
    const unique_fd listener = file.take();
    CHECK(refusal(path, "", Errc::refused) ==
          "listening on unix:" + path + ": another process listens there");
    // Its queue is full, and it does not come to it.
    REQUIRE(::listen(listener.get(), 0) == 0);
    const Address at = unix_address(path);
    std::vector<unique_fd> waiting;
    for (bool fits = true; fits && waiting.size() < 16;) {
      waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      fits = ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&at.storage),
                       at.size) == 0;
    }
    CHECK(refusal(path, "", Errc::refused) ==
          "listening on unix:" + path + ": another process listens there");
    CHECK(::access(path.c_str(), F_OK) == 0);
  }
  std::ofstream(path) << "mine";
  CHECK(refusal(path) == "listening on unix:" + path + ": another kind of file is there");
  CHECK(::access(path.c_str(), F_OK) == 0);
}

TEST_CASE("a group and a folder that are not there are named") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "d.sock";
  CHECK(refusal(path, "no such group") == "there is no group 'no such group' here");
  CHECK(::access(path.c_str(), F_OK) != 0);
  CHECK(refusal(folder.path() / "no" / "d.sock", "", Errc::unreachable)
            .find("No such file or directory") != std::string::npos);
}
