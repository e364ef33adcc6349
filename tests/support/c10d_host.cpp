#include "runtime/base/socket.hpp"
#include "runtime/store/server.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <unistd.h>

/// Serves PyTorch's store protocol, and nothing else, on 127.0.0.1 for tests and benchmarks that
/// need no launcher: c10d_host [PORT]. Prints the port; a line "renew" on the standard input starts
/// an empty store, the end of the input ends it.

namespace {

using namespace dlaunch;

class NobodyElse final : public store::Host {
 public:
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId, const wire::Hello&) override {
    return Refusal{Errc::refused, "this server is for PyTorch's clients"};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_closed(store::ConnectionId, bool) override {}
};

class Commands {
 public:
  Commands(boost::asio::io_context& io, store::Server& server)
      : input_(io, ::dup(STDIN_FILENO)), server_(server) {
    read();
  }

 private:
  void read() {
    boost::asio::async_read_until(input_, boost::asio::dynamic_buffer(text_, 4096), '\n',
                                  [this](boost::system::error_code error, std::size_t size) {
                                    if (error) return server_.stop();
                                    if (text_.starts_with("renew")) renew();
                                    text_.erase(0, size);
                                    read();
                                  });
  }
  void renew() {
    server_.renew_c10d();
    std::puts("renewed");
    std::fflush(stdout);
  }

  boost::asio::posix::stream_descriptor input_;
  store::Server& server_;
  std::string text_;
};

}  // namespace

int main(int argc, char** argv) try {
  std::uint16_t port = 0;
  if (argc > 1) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), port);
  boost::asio::io_context io;
  NobodyElse host;
  store::Server server(io, host);
  auto listener = listen_tcp(resolve("127.0.0.1", port).front());
  std::printf("%d\n", local_address(listener.get()).port());
  std::fflush(stdout);
  server.listen(std::move(listener), {.native = false, .c10d = true});
  Commands commands(io, server);
  io.run();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "c10d_host: %s\n", error.what());
  return 1;
}
