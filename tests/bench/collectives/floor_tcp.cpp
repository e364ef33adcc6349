// The floor between two nodes: two ranks over one TCP connection, written by hand for nothing but
// speed. Variables: RANK, ADDRESS (rank 0's), PORT, WAIT=poll to wait in the kernel.
//
//   exchange  both send all, both add: the fewest turns
//   slices    halves are exchanged and added, then the sums: the fewest bytes
#include "tests/bench/collectives/harness.hpp"

#include <cerrno>
#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace {

constexpr std::size_t step_bytes = 256 << 10;    ///< The size of one send or recv.
constexpr std::size_t exchange_max = 256 << 10;  ///< Above, slices are faster.
constexpr int connect_tries = 2000;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

class Floor final : public contest::Contestant {
 public:
  Floor() {
    rank = contest::variable("RANK", 0);
    size = 2;
    in_kernel_ = contest::variable("WAIT", "") == "poll";
    connect();
    const int on = 1, buffer = 4 << 20;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  }
  ~Floor() override { ::close(socket_); }

  void barrier() override {
    char mine = 0, other = 0;
    move(&mine, 1, &other, 1);
  }

  void share(const double* mine, double* all, int count) override {
    const auto n = static_cast<std::size_t>(count);
    std::memcpy(all + n * at(rank), mine, n * sizeof(double));
    move(mine, n * sizeof(double), all + n * at(1 - rank), n * sizeof(double));
  }

  std::vector<std::string> ways(const std::string& op) override {
    if (op == "all_reduce") return {"exchange", "slices"};
    return {""};
  }

  contest::Call call(const std::string& op, const std::string& way, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const std::size_t count = bytes / sizeof(float), part = count / 2, part_bytes = bytes / 2;
    float *in = buffers.in, *out = buffers.out;
    const std::size_t mine = at(rank) * part, other = at(1 - rank) * part;
    if (op == "barrier") return [this](long) { barrier(); };
    if (op == "all_reduce") return all_reduce(way, in, count);
    if (op == "broadcast") {
      return [=, this](long turn) {
        const bool root = turn % 2 == rank;
        move(in, root ? bytes : 0, in, root ? 0 : bytes);
      };
    }
    if (op == "all_gather") {
      return [=, this](long) {
        std::memcpy(out + mine, in, part_bytes);
        move(in, part_bytes, out + other, part_bytes);
      };
    }
    if (op == "all_to_all") {
      return [=, this](long) {
        std::memcpy(out + mine, in + mine, part_bytes);
        move(in + other, part_bytes, out + other, part_bytes);
      };
    }
    if (op == "reduce_scatter") {
      return [=, this](long) {
        move(in + other, part_bytes, out, part_bytes);
        for (std::size_t i = 0; i < part; ++i) out[i] += in[mine + i];
      };
    }
    if (op == "ping_pong") {
      return [=, this](long) {
        if (rank == 0) move(in, bytes, nullptr, 0);
        move(nullptr, 0, out, bytes);
        if (rank == 1) move(in, bytes, nullptr, 0);
      };
    }
    return {};
  }

 private:
  static std::size_t at(int r) { return static_cast<std::size_t>(r); }

  void connect() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(contest::variable("PORT", 29790)));
    ::inet_pton(AF_INET, contest::variable("ADDRESS", "127.0.0.1").c_str(), &address.sin_addr);
    auto* where = reinterpret_cast<sockaddr*>(&address);
    const int on = 1;
    if (rank == 0) {
      const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (::bind(listener, where, sizeof address) != 0 || ::listen(listener, 1) != 0) fail("bind");
      socket_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      ::close(listener);
      return;
    }
    for (int tries = 0; tries < connect_tries; ++tries) {  // Rank 0 may not listen yet.
      socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(socket_, where, sizeof address) == 0) return;
      ::close(socket_);
      ::usleep(5000);
    }
    fail("connect");
  }

  /// Sends and receives at once. `arrived` is told how many bytes have come so far.
  template <class Arrived>
  void move(const void* out, std::size_t out_bytes, void* in, std::size_t in_bytes,
            Arrived arrived) {
    std::size_t sent = 0, got = 0;
    while (sent < out_bytes || got < in_bytes) {
      bool moved = false;
      if (sent < out_bytes) {
        const auto n = ::send(socket_, static_cast<const char*>(out) + sent,
                              std::min(step_bytes, out_bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) fail("send");
        if (n > 0) sent += static_cast<std::size_t>(n), moved = true;
      }
      if (got < in_bytes) {
        const auto n = ::recv(socket_, static_cast<char*>(in) + got,
                              std::min(step_bytes, in_bytes - got), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail("recv");
        if (n > 0) got += static_cast<std::size_t>(n), moved = true, arrived(got);
      }
      if (!moved && in_kernel_) {
        const int events = (sent < out_bytes ? POLLOUT : 0) | (got < in_bytes ? POLLIN : 0);
        pollfd ready = {socket_, static_cast<short>(events), 0};
        ::poll(&ready, 1, 1000);
      }
    }
  }
  void move(const void* out, std::size_t out_bytes, void* in, std::size_t in_bytes) {
    move(out, out_bytes, in, in_bytes, [](std::size_t) {});
  }

  contest::Call all_reduce(const std::string& way, float* in, std::size_t count) {
    const std::size_t bytes = count * sizeof(float);
    arrived_.resize(count);
    float* arrived = arrived_.data();
    if (way == "exchange") {
      if (bytes > exchange_max) return {};
      return [=, this](long) {
        move(in, bytes, arrived, bytes);
        for (std::size_t i = 0; i < count; ++i) in[i] += arrived[i];
      };
    }
    if (count < 256) return {};
    const std::size_t half = count / 2;
    const std::size_t mine = rank == 0 ? 0 : half, mine_count = rank == 0 ? half : count - half;
    const std::size_t other = rank == 0 ? half : 0, other_count = count - mine_count;
    return [=, this](long) {
      std::size_t added = 0;  // Data that has come is added while the rest is under way.
      move(in + other, other_count * sizeof(float), arrived, mine_count * sizeof(float),
           [&](std::size_t got) {
             for (; added < got / sizeof(float); ++added) in[mine + added] += arrived[added];
           });
      move(in + mine, mine_count * sizeof(float), in + other, other_count * sizeof(float));
    };
  }

  int socket_ = -1;
  bool in_kernel_ = false;
  std::vector<float> arrived_;
};

}  // namespace

int main(int argc, char** argv) {
  Floor floor;
  return contest::run(floor, argc, argv);
}
