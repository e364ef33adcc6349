// A raw client for key-value servers: one event loop drives all connections, so that the server is
// what is measured.
//
//   kv_client MODE PROTOCOL PORT [--clients C] [--op OP] [--seconds S] [--reps R] [--depth D]
//   [--cpu N]
//
// MODE  load  a closed loop: each connection has one batch of D requests under way; op set, get,
// add
//       wake  C connections wait for a key, another sets it: until the first and the last know
//       init  C connections: connect, set a key, and pass a barrier (op barrier) or gather 64 bytes
//             of everyone (op gather)
#include "runtime/base/os/socket.hpp"
#include "tests/bench/kv/protocols.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>

using namespace dlaunch;
using bench::answer_size;
using bench::Protocol;
using bench::Request;

namespace {

struct Settings {
  std::string mode, protocol, op = "set";
  Address server;
  int clients = 1, reps = 5, depth = 1, cpu = -1;
  double seconds = 1;
};

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}
double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}
void print(const Settings& settings, const std::map<std::string, double>& results) {
  std::printf(R"({"mode": "%s", "op": "%s", "clients": %d, "depth": %d)", settings.mode.c_str(),
              settings.op.c_str(), settings.clients, settings.depth);
  for (const auto& [name, value] : results) std::printf(R"(, "%s": %.6g)", name.c_str(), value);
  std::printf("}\n");
}

class Connection {
 public:
  explicit Connection(unique_fd fd) : fd_(std::move(fd)) {}

  void ask(const Request& request) {
    expect(request);
    std::string_view rest = request.bytes;
    while (!rest.empty()) {
      const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n > 0) {
        rest.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        wait(POLLOUT);
      } else {
        throw std::runtime_error("sending: " + errno_text(errno));
      }
    }
  }
  void expect(const Request& request) {
    awaited_ = request.answers;
    form_ = request.form;
  }
  /// Reads what is there; true when everything that was asked is answered. `last` is the last
  /// answer then.
  bool answered(std::string& last) {
    std::array<char, 65536> buffer;
    for (;;) {
      const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n == 0) throw std::runtime_error("the server closed the connection");
      if (n < 0) break;
      input_.append(buffer.data(), static_cast<std::size_t>(n));
      if (static_cast<std::size_t>(n) < buffer.size()) break;
    }
    std::size_t used = 0;
    while (awaited_ > 0) {
      const std::size_t size = answer_size(form_, std::string_view(input_).substr(used));
      if (size == 0) break;
      last.assign(input_, used, size);
      used += size;
      --awaited_;
    }
    input_.erase(0, used);
    return awaited_ == 0;
  }
  std::string call(const Request& request) {
    std::string last;
    ask(request);
    while (!answered(last)) wait(POLLIN);
    return last;
  }
  void wait(short events) const {
    pollfd ready{fd_.get(), events, 0};
    if (::poll(&ready, 1, 20'000) == 0) throw std::runtime_error("no answer for 20 s");
  }
  int fd() const { return fd_.get(); }

  Clock::time_point asked;
  int step = 0;

 private:
  unique_fd fd_;
  std::string input_;
  int awaited_ = 0;
  bench::Form form_{};
};

class Poll {
 public:
  void add(const Connection& connection, std::size_t index, std::uint32_t events = EPOLLIN) {
    change(EPOLL_CTL_ADD, connection, index, events);
  }
  void change(int operation, const Connection& connection, std::size_t index,
              std::uint32_t events) {
    epoll_event event{events, {.u64 = index}};
    if (::epoll_ctl(fd_.get(), operation, connection.fd(), &event) != 0) {
      throw std::runtime_error("epoll_ctl: " + errno_text(errno));
    }
  }
  std::span<const epoll_event> ready() {
    const int n = ::epoll_wait(fd_.get(), events_.data(), static_cast<int>(events_.size()), 20'000);
    if (n == 0) throw std::runtime_error("no answer for 20 s");
    return std::span(events_).first(static_cast<std::size_t>(std::max(n, 0)));
  }
  /// Without falling asleep: a client that decodes fast sleeps between any two answers, and its
  /// server pays for waking it.
  std::span<const epoll_event> ready_awake() {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < deadline) {
      const int n = ::epoll_wait(fd_.get(), events_.data(), static_cast<int>(events_.size()), 0);
      if (n > 0) return std::span(events_).first(static_cast<std::size_t>(n));
    }
    throw std::runtime_error("no answer for 20 s");
  }

 private:
  unique_fd fd_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<epoll_event> events_ = std::vector<epoll_event>(4096);
};

Connection connected(const Settings& settings, Protocol& protocol) {
  Connection connection(connect_tcp(settings.server, Clock::now() + std::chrono::seconds(10)));
  const Request hello = protocol.hello();
  if (!hello.bytes.empty()) connection.call(hello);
  return connection;
}

std::string key_of(std::size_t index) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "/bench/key%06zu", index);
  return text.data();
}

// ---- load ----

Request batch(const Settings& settings, Protocol& protocol, const std::string& key) {
  static const std::string value(32, 'v');
  Request all{{}, 0, {}};
  for (int i = 0; i < settings.depth; ++i) {
    const Request one = settings.op == "set"   ? protocol.set(key, value)
                        : settings.op == "get" ? protocol.get(key)
                                               : protocol.add("/bench/counter", 1);
    all.bytes += one.bytes;
    all.answers += one.answers;
    all.form = one.form;
  }
  return all;
}

void load(const Settings& settings, Protocol& protocol) {
  constexpr std::size_t keys = 1000;
  Poll poll;
  std::vector<Connection> connections;
  for (int i = 0; i < settings.clients; ++i) {
    connections.push_back(connected(settings, protocol));
    poll.add(connections.back(), connections.size() - 1);
  }
  const std::string value(32, 'v');
  for (std::size_t i = 0; i < keys; ++i) {
    connections[0].call(protocol.set(key_of(i), value));
  }
  std::size_t next = 0;
  const auto ask = [&](Connection& connection) {
    const Request request = batch(settings, protocol, key_of(next++ * 7919 % keys));
    connection.asked = Clock::now();
    connection.ask(request);
  };
  for (Connection& connection : connections) ask(connection);
  std::vector<double> rates, medians, tails;
  std::string last;
  double total = 0;
  for (int rep = 0; rep <= settings.reps; ++rep) {
    std::vector<double> latencies;
    const auto start = Clock::now();
    const auto end = start + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(settings.seconds));
    while (Clock::now() < end) {
      for (const epoll_event& event : poll.ready()) {
        Connection& connection = connections[event.data.u64];
        if (!connection.answered(last)) continue;
        latencies.push_back(microseconds(Clock::now() - connection.asked));
        ask(connection);
      }
    }
    const double seconds = microseconds(Clock::now() - start) / 1e6;
    const double done = static_cast<double>(latencies.size()) * settings.depth;
    total += done;
    if (rep == 0) continue;  // Warm-up.
    rates.push_back(done / seconds);
    medians.push_back(quantile(latencies, 0.5));
    tails.push_back(quantile(latencies, 0.99));
  }
  print(settings, {{"ops_s", quantile(rates, 0.5)},
                   {"ops_s_max", quantile(rates, 1)},
                   {"p50_us", quantile(medians, 0.5)},
                   {"p99_us", quantile(tails, 0.5)},
                   {"done", total}});
}

// ---- wake ----

void wake(const Settings& settings, Protocol& protocol) {
  constexpr int warm_up = 5;
  Poll poll;
  std::vector<Connection> waiters;
  for (int i = 0; i < settings.clients; ++i) {
    waiters.push_back(connected(settings, protocol));
    poll.add(waiters.back(), waiters.size() - 1);
  }
  Connection setter = connected(settings, protocol);
  std::vector<double> first, final;
  std::string last;
  for (int rep = 0; rep < settings.reps + warm_up; ++rep) {
    const std::string key = "/wake/" + std::to_string(::getpid()) + "/" + std::to_string(rep);
    for (Connection& waiter : waiters) {
      const Request request = protocol.wait(key);
      if (protocol.waits_answer_twice()) {
        waiter.call(request);
        waiter.expect(request);
      } else {
        waiter.ask(request);
      }
    }
    setter.call(protocol.ping());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // The server falls idle.
    const Request request = protocol.wake(key);
    const auto start = Clock::now();
    setter.ask(request);
    int woken = 0;
    double first_us = 0, last_us = 0;
    while (woken < settings.clients) {
      for (const epoll_event& event : poll.ready_awake()) {
        if (!waiters[event.data.u64].answered(last)) continue;
        last_us = microseconds(Clock::now() - start);
        if (woken++ == 0) first_us = last_us;
      }
    }
    while (!setter.answered(last)) setter.wait(POLLIN);
    if (rep < warm_up) continue;
    first.push_back(first_us);
    final.push_back(last_us);
  }
  print(settings, {{"first_us", quantile(first, 0.5)},
                   {"last_us", quantile(final, 0.5)},
                   {"last_min_us", quantile(final, 0)}});
}

// ---- init ----

/// The protocols without a barrier of their own count up and wait for a key that the last one sets;
/// Redis has subscriptions for that. `advance` is called when everything asked is answered, and
/// returns true when the connection has passed.
class Meeting {
 public:
  Meeting(const Settings& settings, Protocol& protocol, std::string name)
      : settings_(settings), protocol_(protocol), name_(std::move(name)) {}

  void begin(Connection& connection, int who) {
    Request request = protocol_.hello();
    const std::string value(32, 'v');
    append(request, protocol_.set(key_of(static_cast<std::size_t>(who)), value));
    auto meet = settings_.op == "gather"
                    ? protocol_.all_gather(name_, who, settings_.clients, std::string(64, 'g'))
                    : protocol_.barrier(name_, who, settings_.clients);
    connection.step = meet ? 2 : 1;
    if (meet) append(request, *meet);
    connection.ask(request);
  }
  bool advance(Connection& connection, std::string_view answer) {
    switch (connection.step) {
      case 1:  // The key is set.
        connection.step = 3;
        connection.ask(protocol_.add(name_ + "/n", 1));
        return false;
      case 3: {
        const bool is_last = protocol_.number(answer) == settings_.clients;
        connection.step = protocol_.waits_answer_twice() ? 4 : 2;
        Request request{{}, 0, {}};
        if (is_last && !protocol_.waits_answer_twice()) {
          append(request, protocol_.set(name_ + "/go", "1"));
        }
        append(request, protocol_.wait(name_ + "/go"));
        connection.ask(request);
        return false;
      }
      case 4:  // Subscribed. When all are, somebody publishes.
        connection.step = 2;
        connection.expect(protocol_.wait(name_ + "/go"));
        if (++subscribed_ == settings_.clients) {
          connected(settings_, protocol_).call(protocol_.wake(name_ + "/go"));
        }
        return false;
      default:
        return true;
    }
  }

 private:
  static void append(Request& to, const Request& more) {
    to.bytes += more.bytes;
    to.answers += more.answers;
    to.form = more.form;
  }
  const Settings& settings_;
  Protocol& protocol_;
  std::string name_;
  int subscribed_ = 0;
};

unique_fd begin_connect(const Address& server) {
  unique_fd fd(::socket(server.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Closing resets: a port left in TIME-WAIT may swallow the next SYN from it for a second.
  const linger reset{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  const int rc =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server.storage), server.size);
  if (rc != 0 && errno != EINPROGRESS) throw std::runtime_error("connect: " + errno_text(errno));
  return fd;
}

void init(const Settings& settings, Protocol& protocol) {
  std::vector<double> totals, connects;
  std::string last;
  for (int rep = 0; rep < settings.reps; ++rep) {
    Meeting meeting(settings, protocol,
                    "/run/" + std::to_string(::getpid()) + "/" + std::to_string(rep));
    Poll poll;
    std::vector<Connection> connections;
    const auto start = Clock::now();
    for (int i = 0; i < settings.clients; ++i) {
      connections.emplace_back(begin_connect(settings.server));
      poll.add(connections.back(), static_cast<std::size_t>(i), EPOLLOUT);
    }
    int open = 0, done = 0;
    double connect_ms = 0;
    while (done < settings.clients) {
      for (const epoll_event& event : poll.ready()) {
        Connection& connection = connections[event.data.u64];
        if (connection.step == 0) {
          poll.change(EPOLL_CTL_MOD, connection, event.data.u64, EPOLLIN);
          if (++open == settings.clients) connect_ms = microseconds(Clock::now() - start) / 1e3;
          meeting.begin(connection, static_cast<int>(event.data.u64));
          continue;
        }
        if (!connection.answered(last)) continue;
        if (meeting.advance(connection, last)) ++done;
      }
    }
    totals.push_back(microseconds(Clock::now() - start) / 1e3);
    connects.push_back(connect_ms);
    connections.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The server sees them go.
  }
  print(settings, {{"ms", quantile(totals, 0.5)},
                   {"ms_min", quantile(totals, 0)},
                   {"connected_ms", quantile(connects, 0.5)}});
}

Settings parse(int argc, char** argv) {
  if (argc < 4 || argc % 2 != 0) {
    throw std::runtime_error("usage: kv_client MODE PROTOCOL PORT [--option value]...");
  }
  Settings settings;
  settings.mode = argv[1];
  settings.protocol = argv[2];
  settings.server = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[3]))).at(0);
  const std::map<std::string, int*> numbers = {{"--clients", &settings.clients},
                                               {"--reps", &settings.reps},
                                               {"--depth", &settings.depth},
                                               {"--cpu", &settings.cpu}};
  for (int i = 4; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--op") {
      settings.op = argv[i + 1];
    } else if (option == "--seconds") {
      settings.seconds = std::atof(argv[i + 1]);
    } else {
      if (!numbers.contains(option)) throw std::runtime_error("no option is called " + option);
      *numbers.at(option) = std::atoi(argv[i + 1]);
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  if (settings.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(settings.cpu), &set);
    ::sched_setaffinity(0, sizeof set, &set);
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto protocol = bench::make_protocol(settings.protocol);
  if (settings.mode == "load")
    load(settings, *protocol);
  else if (settings.mode == "wake")
    wake(settings, *protocol);
  else if (settings.mode == "init")
    init(settings, *protocol);
  else
    throw std::runtime_error("no mode is called " + settings.mode);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kv_client: %s\n", error.what());
  return 1;
}
