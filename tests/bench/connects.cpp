// What the job's secret costs: connections to a store server on loopback, one after another, each
// up to WELCOME, in the clear and through TLS.   connects [COUNT]
#include "tests/support/store_server.hpp"

#include <cstdio>
#include <cstdlib>

using namespace dlaunch;

namespace {

Key key_of(std::string_view job) {
  constexpr std::string_view secret =
      "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  return Secret::parse(as_bytes(secret), "the benchmark").job_key(job);
}

void measure(test::ServerThread& server, int count, const char* what, std::optional<Key> key) {
  store::Client::Options options;
  options.hello.job = "bench";
  options.key = std::move(key);
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) store::Client(server.connect(), options, nullptr, test::soon());
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%-6s %6d connections  %8.0f /s  %6.0f us each, both ends\n", what, count,
              count / seconds, seconds / count * 1e6);
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  test::ServerThread server;
  server.on_loop([](store::Server& s) {
    return s.ask_for({.keys = {{.key_of = key_of}}, .trust_loopback = true}), 0;
  });
  const Key key = key_of("bench");
  measure(server, count / 10, "warm", key);
  measure(server, count, "plain", std::nullopt);
  measure(server, count, "tls", key);
} catch (const std::exception& error) {
  std::fprintf(stderr, "connects: %s\n", error.what());
  return 1;
}
