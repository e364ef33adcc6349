// A store server and nothing else: kv_server PORT serves both protocols on 127.0.0.1.
#include "runtime/store/server/server.hpp"

#include "runtime/base/os/socket.hpp"

#include <cstdio>
#include <cstdlib>

#include <boost/asio/io_context.hpp>
#include <sys/resource.h>

namespace {

class Everyone : public dlaunch::store::Host {
 public:
  std::variant<dlaunch::wire::Welcome, Refusal> admit(dlaunch::store::ConnectionId,
                                                      const dlaunch::wire::Hello&) override {
    return dlaunch::wire::Welcome{"bench", 1, 0};
  }
  void on_message(dlaunch::store::ConnectionId, const dlaunch::wire::FrameHeader&,
                  dlaunch::BytesView) override {}
  void on_other_version(dlaunch::store::ConnectionId, std::uint32_t) override {}
  void on_closed(dlaunch::store::ConnectionId, bool) override {}
};

}  // namespace

int main(int argc, char** argv) try {
  const int port = argc > 1 ? std::atoi(argv[1]) : 0;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  boost::asio::io_context io(1);
  Everyone host;
  dlaunch::store::Server server(io, host);
  auto listener =
      dlaunch::listen_tcp(dlaunch::resolve("127.0.0.1", static_cast<std::uint16_t>(port)).at(0));
  std::printf("%d\n", dlaunch::local_address(listener.get()).port());
  std::fflush(stdout);
  server.listen(std::move(listener), {true, true});
  io.run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "kv_server: %s\n", error.what());
  return 1;
}
