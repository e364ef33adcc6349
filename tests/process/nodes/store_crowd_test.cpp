// A crowd before a store server in a process of its own: thousands who connect at once and stay,
// those who say a byte a second, and more of them than there are descriptors.
#include "tests/support/connecting_crowd.hpp"
#include "tests/support/store_server.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
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

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("ten thousand connect at once, all are welcomed, and they cost little while idle") {
  const std::size_t count = std::min<std::size_t>(10'000, raise_descriptors() - 100);
  ServerProcess server;
  store::Client witness = server.client();
  ConnectingCrowd crowd(server.address());
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
  ConnectingCrowd crowd(server.address());
  crowd.connect(count);
  CHECK(crowd.greet(count, soon()) == count);
}

TEST_CASE("a thousand who say a byte a second are all closed, and others do not notice") {
  raise_descriptors();
  ServerProcess server;
  store::Client witness = server.client();
  constexpr std::size_t count = 1000;
  ConnectingCrowd crowd(server.address());
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
  ConnectingCrowd crowd(server.address());
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
