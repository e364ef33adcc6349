#include "rendezvous/daemon/systemd.hpp"

#include "runtime/base/os/socket.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <map>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

/// An environment of our own.
Variable variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

/// Puts descriptors where a service manager would: one after the other.
constexpr int base_fd = 700;
int place(int fd, int index) {
  const int at = base_fd + index;
  REQUIRE(::dup2(fd, at) == at);
  return at;
}

template <class T>
std::string wrong(const Read<T>& read) {
  const auto* complaint = std::get_if<Complaint>(&read);
  return complaint == nullptr ? "" : complaint->sentence;
}

/// The receiving end of NOTIFY_SOCKET.
class Receiver {
 public:
  explicit Receiver(const std::string& name)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const Address at = unix_address(name);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0);
  }
  std::string next() {
    pollfd wait{fd_.get(), POLLIN, 0};
    REQUIRE(::poll(&wait, 1, 10'000) == 1);
    std::array<char, 4096> text{};
    const auto size = ::recv(fd_.get(), text.data(), text.size(), 0);
    REQUIRE(size >= 0);
    return std::string(text.data(), static_cast<std::size_t>(size));
  }
  bool has_more() const {
    pollfd wait{fd_.get(), POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  }

 private:
  unique_fd fd_;
};

std::string temporary_folder() {
  std::string path = "/tmp/dlaunch-systemd-test-XXXXXX";
  REQUIRE(::mkdtemp(path.data()) != nullptr);
  return path;
}

}  // namespace

TEST_CASE("sockets are taken over by name, close-on-exec, and still accept") {
  const auto first = listen_tcp(resolve("127.0.0.1", 0).front());
  const auto second = listen_tcp(resolve("127.0.0.1", 0).front());
  place(first.get(), 0);
  place(second.get(), 1);
  auto read = take_activated_sockets(
      variables({{"LISTEN_PID", "42"}, {"LISTEN_FDS", "2"}, {"LISTEN_FDNAMES", "http:dlaunch"}}),
      42, base_fd);
  REQUIRE(wrong(read) == "");
  const auto& sockets = std::get<0>(read);
  REQUIRE(sockets.size() == 2);
  CHECK(sockets[0].purpose == ActivatedSocket::Purpose::http);
  CHECK(sockets[1].purpose == ActivatedSocket::Purpose::rendezvous);
  CHECK(local_address(sockets[1].fd.get()).port() == local_address(second.get()).port());
  for (const auto& socket : sockets) CHECK(::fcntl(socket.fd.get(), F_GETFD) == FD_CLOEXEC);
  const auto peer =
      connect_tcp(local_address(second.get()), Clock::now() + std::chrono::seconds(5));
  const unique_fd accepted(::accept(sockets[1].fd.get(), nullptr, nullptr));
  CHECK(accepted);
}

TEST_CASE("sockets that are meant for another process, or for nobody, stay alone") {
  const auto none = [](std::map<std::string, std::string> values) {
    return std::get<0>(take_activated_sockets(variables(std::move(values)), 42, base_fd)).size();
  };
  CHECK(none({}) == 0);
  CHECK(none({{"LISTEN_PID", "43"}, {"LISTEN_FDS", "1"}, {"LISTEN_FDNAMES", "x"}}) == 0);
  CHECK(none({{"LISTEN_FDS", "1"}}) == 0);
  CHECK(none({{"LISTEN_PID", "42"}}) == 0);
  CHECK(none({{"LISTEN_PID", "42"}, {"LISTEN_FDS", "0"}}) == 0);
}

TEST_CASE("sockets that cannot be served are refused with a sentence") {
  const auto listener = listen_tcp(resolve("127.0.0.1", 0).front());
  const auto [near, far] = socket_pair();
  const auto refused = [](int fd, const std::string& count, const std::string& names) {
    place(fd, 0);
    const auto read = take_activated_sockets(
        variables({{"LISTEN_PID", "42"}, {"LISTEN_FDS", count}, {"LISTEN_FDNAMES", names}}), 42,
        base_fd);
    return wrong(read);
  };
  CHECK(refused(listener.get(), "1", "dlaunchd.socket") ==
        "the socket 'dlaunchd.socket' (descriptor 700) from the service manager has an unknown "
        "name: set FileDescriptorName=dlaunch (rendezvous) or http (status) in its .socket unit");
  CHECK(refused(listener.get(), "1", "").find("'unknown'") != std::string::npos);
  CHECK(refused(near.get(), "1", "dlaunch").find("is not a listening stream socket") !=
        std::string::npos);
  CHECK(refused(listener.get(), "many", "dlaunch") ==
        "LISTEN_FDS=many: 'many' is not a whole number");
  CHECK(refused(listener.get(), "-1", "dlaunch") == "LISTEN_FDS=-1: at least 0 is needed");
}

TEST_CASE("the watchdog wants a word at half its time") {
  using std::chrono::microseconds;
  CHECK(watchdog_period(variables({{"WATCHDOG_USEC", "3000000"}}), 42) == microseconds(1'500'000));
  CHECK(watchdog_period(variables({{"WATCHDOG_USEC", "20"}, {"WATCHDOG_PID", "42"}}), 42) ==
        microseconds(10));
  CHECK(!watchdog_period(variables({{"WATCHDOG_USEC", "20"}, {"WATCHDOG_PID", "7"}}), 42));
  CHECK(!watchdog_period(variables({{"WATCHDOG_USEC", "soon"}}), 42));
  CHECK(!watchdog_period(variables({{"WATCHDOG_USEC", "0"}}), 42));
  CHECK(!watchdog_period(variables({}), 42));
}

TEST_CASE("the manager is told, at a path and at an abstract name") {
  const std::string folder = temporary_folder();
  const std::string abstract = "@" + folder;
  for (const std::string& name : {folder + "/notify", abstract}) {
    Receiver manager(name);
    ServiceNotifier notifier(name);
    CHECK(notifier.active());
    notifier.ready("2 jobs\nMAINPID=1");
    CHECK(manager.next() == "READY=1\nSTATUS=2 jobs MAINPID=1");
    const auto before =
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
    notifier.reloading();
    const std::string reloading = manager.next();
    const std::string start = "RELOADING=1\nMONOTONIC_USEC=";
    REQUIRE(reloading.starts_with(start));
    CHECK(std::stoll(reloading.substr(start.size())) >= before.count());
    notifier.status("one");
    CHECK(manager.next() == "STATUS=one");
    notifier.alive();
    CHECK(manager.next() == "WATCHDOG=1");
    notifier.stopping("drains", std::chrono::seconds(3));
    CHECK(manager.next() == "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000000\nSTATUS=drains");
  }
  CHECK(::unlink((folder + "/notify").c_str()) == 0);
  CHECK(::rmdir(folder.c_str()) == 0);
}

TEST_CASE("without a manager nothing is said; one that is gone is an error with its address") {
  ServiceNotifier silent("");
  CHECK(!silent.active());
  silent.ready("alone");
  ServiceNotifier lost("/nonexistent/notify");
  try {
    lost.alive();
    FAIL("told nobody");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "telling the service manager 'WATCHDOG=1' at NOTIFY_SOCKET=/nonexistent/notify: No such "
          "file or directory");
  }
}

TEST_CASE("a long start is told to the manager until it is over") {
  const std::string name = "@dlaunch-systemd-test-start-" + std::to_string(::getpid());
  Receiver manager(name);
  {
    const LongStart patience(name, "reading the state", 1s, {.period = 1ms, .limit = 1h});
    for (int i = 0; i < 2; ++i) {
      CHECK(manager.next() == "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=reading the state");
      CHECK(manager.next() == "WATCHDOG=1");
    }
  }
  while (manager.has_more()) manager.next();
  { const LongStart over(name, "reading the state", std::nullopt, {.period = 1ms, .limit = 0s}); }
  CHECK_FALSE(manager.has_more());
}
