// A crowd before a store server in a process of its own: thousands who connect at once and stay,
// those who say a byte a second, and more of them than there are descriptors.
#include "tests/support/store_server.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

class Everyone final : public store::Host {
 public:
  /// `slowness`: how long it computes to admit one.
  explicit Everyone(std::chrono::milliseconds slowness) : slowness_(slowness) {}
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId, const wire::Hello&) override {
    for (const auto until = Clock::now() + slowness_; Clock::now() < until;) continue;
    return wire::Welcome{"crowd", 1, 0};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_other_version(store::ConnectionId, std::uint32_t) override {}
  void on_closed(store::ConnectionId, bool) override {}

 private:
  const std::chrono::milliseconds slowness_;
};

/// As many descriptors as this process may have.
rlim_t raise_descriptors() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

class ServerProcess {
 public:
  explicit ServerProcess(std::chrono::milliseconds slowness = 0ms) {
    unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    address_ = local_address(listener.get());
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    raise_descriptors();
    boost::asio::io_context io(1);
    Everyone host(slowness);
    store::Server server(io, host);
    server.listen(std::move(listener), {true, false});
    io.run();
    ::_exit(0);
  }
  ~ServerProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const Address& address() const { return address_; }
  store::Client client() const {
    return {connect_tcp(address_, soon()), ServerThread::options(0), nullptr, soon()};
  }
  double resident_mib() const {
    std::ifstream file(proc("statm"));
    double total = 0, resident = 0;
    file >> total >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
  }
  double cpu_ms() const {
    std::ifstream file(proc("schedstat"));
    double nanoseconds = 0;
    file >> nanoseconds;
    return nanoseconds / 1e6;
  }
  /// The time it computes while a client waits a second for what never comes.
  double cpu_ms_of_idle_second(store::Client& client) const {
    const double before = cpu_ms();
    const auto [code, why] = failure([&] { client.wait("never", Clock::now() + 1s); });
    CHECK(code == Errc::timeout);
    return cpu_ms() - before;
  }
  /// Nullopt: as many as it may.
  void limit_descriptors(std::optional<rlim_t> count) const {
    rlimit files{};
    REQUIRE(::prlimit(pid_, RLIMIT_NOFILE, nullptr, &files) == 0);
    files.rlim_cur = count.value_or(files.rlim_max);
    REQUIRE(::prlimit(pid_, RLIMIT_NOFILE, &files, nullptr) == 0);
  }

 private:
  std::string proc(const char* file) const { return "/proc/" + std::to_string(pid_) + "/" + file; }
  Address address_;
  pid_t pid_ = -1;
};

/// Connections that one loop drives; each is told apart by its index.
class Crowd {
 public:
  explicit Crowd(const Address& server) : server_(server) {}

  void connect(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      REQUIRE(fd);
      const int rc =
          ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server_.storage), server_.size);
      REQUIRE((rc == 0 || errno == EINPROGRESS));
      epoll_event event{EPOLLOUT, {.u64 = fds_.size()}};
      REQUIRE(::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0);
      fds_.push_back(std::move(fd));
    }
  }
  /// HELLO as soon as they are connected; how many were welcomed, and not cut, until `deadline`.
  std::size_t greet(std::size_t count, Clock::time_point deadline) {
    Bytes hello;
    wire::encode_preface(hello);
    wire::encode_frame(hello, {}, wire::Hello{});
    std::size_t welcomed = 0, ended = 0;
    serve(deadline, [&](std::size_t who, std::uint32_t events) {
      if ((events & EPOLLIN) != 0) {
        std::array<char, 256> answer;
        const bool open = ::recv(fds_[who].get(), answer.data(), answer.size(), 0) > 0;
        watch(who, 0);
        ++(open ? welcomed : ended);
      } else {
        watch(who, EPOLLIN);
        ::send(fds_[who].get(), hello.data(), hello.size(), MSG_NOSIGNAL);
      }
      return welcomed + ended < count;
    });
    return welcomed;
  }
  /// A byte of the preface each; a peer that is gone will be seen by closed().
  void say(std::string_view byte) {
    for (const unique_fd& fd : fds_) {
      if (fd) ::send(fd.get(), byte.data(), byte.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  /// How many of them the server closes until `deadline`.
  std::size_t closed(Clock::time_point deadline) {
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (fds_[i]) watch(i, EPOLLIN);
    }
    std::size_t count = 0;
    const auto open = std::count_if(fds_.begin(), fds_.end(), [](auto& fd) { return bool(fd); });
    if (open == 0) return 0;
    serve(deadline, [&](std::size_t who, std::uint32_t) {
      fds_[who].reset();
      return ++count < static_cast<std::size_t>(open);
    });
    return count;
  }

 private:
  void watch(std::size_t who, std::uint32_t events) {
    epoll_event event{events, {.u64 = who}};
    REQUIRE(::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, fds_[who].get(), &event) == 0);
  }
  void serve(Clock::time_point deadline,
             const std::function<bool(std::size_t, std::uint32_t)>& act) {
    std::array<epoll_event, 256> events;
    for (;;) {
      const int n = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()),
                                 poll_timeout_ms(deadline));
      if (n == 0) return;
      bool more = true;
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        more = act(event.data.u64, event.events);
      }
      if (!more) return;
    }
  }
  const Address server_;
  unique_fd poll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<unique_fd> fds_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("ten thousand connect at once, all are welcomed, and they cost little while idle") {
  const std::size_t count = std::min<std::size_t>(10'000, raise_descriptors() - 100);
  ServerProcess server;
  store::Client witness = server.client();
  Crowd crowd(server.address());
  const auto start = Clock::now();
  crowd.connect(count);
  CHECK(crowd.greet(count, soon()) == count);
  const double took_ms = milliseconds_since(start);
  const double idle_ms = server.cpu_ms_of_idle_second(witness);
  MESSAGE(count << " welcomed in " << took_ms << " ms; idle they cost " << server.resident_mib()
                << " MiB and " << idle_ms << " ms of CPU a second");
#ifndef __SANITIZE_THREAD__  // It takes memory for what it watches.
  CHECK(server.resident_mib() <= 100);
#endif
  CHECK(witness.add("n", 1) == 1);
}

TEST_CASE("a server too slow for its crowd drops nobody who has said HELLO") {
  // The last of them is read two seconds after a newcomer who says nothing would have been dropped.
  constexpr std::size_t count = 500;
  ServerProcess server(10ms);
  Crowd crowd(server.address());
  crowd.connect(count);
  CHECK(crowd.greet(count, soon()) == count);
}

TEST_CASE("a thousand who say a byte a second are all closed, and others do not notice") {
  raise_descriptors();
  ServerProcess server;
  store::Client witness = server.client();
  constexpr std::size_t count = 1000;
  Crowd crowd(server.address());
  const auto start = Clock::now();
  const auto deadline = soon();
  crowd.connect(count);
  constexpr std::string_view preface = "DLCH\x02\x00\x00";
  std::size_t closed = 0;
  double worst_ms = 0;
  for (std::int64_t second = 0; closed < count && Clock::now() < deadline; ++second) {
    crowd.say(preface.substr(static_cast<std::size_t>(second) % preface.size(), 1));
    const auto asked = Clock::now();
    CHECK(witness.add("n", 1) == second + 1);
    worst_ms = std::max(worst_ms, milliseconds_since(asked));
    closed += crowd.closed(Clock::now() + 1s);
  }
  MESSAGE("all closed after " << milliseconds_since(start) << " ms; the slowest answer to another "
                              << "took " << worst_ms << " ms");
  CHECK(closed == count);
}

TEST_CASE("out of descriptors: the connected live on, nothing spins, and newcomers come later") {
  raise_descriptors();
  ServerProcess server;
  store::Client witness = server.client();
  constexpr rlim_t limit = 64;
  server.limit_descriptors(limit);
  Crowd crowd(server.address());
  constexpr std::size_t count = 2 * limit;
  crowd.connect(count);
  const std::size_t early = crowd.greet(count, Clock::now() + 1s);
  CHECK(early > 0);
  CHECK(early < limit);
  const double idle_ms = server.cpu_ms_of_idle_second(witness);
  MESSAGE("without descriptors it computes " << idle_ms << " ms a second");
  CHECK(idle_ms < 200);
  server.limit_descriptors(std::nullopt);
  CHECK(early + crowd.greet(count - early, soon()) == count);
  CHECK(witness.add("n", 1) == 1);
}
