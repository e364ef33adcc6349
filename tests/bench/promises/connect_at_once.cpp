// How long COUNT clients take that connect to a server at one moment, until all are welcomed.
//   connect_at_once PORT COUNT
#include "tests/support/connecting_crowd.hpp"

#include <cstdio>
#include <cstdlib>

using namespace dlaunch;

int main(int argc, char** argv) try {
  if (argc != 3) return 64;
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  const auto count = static_cast<std::size_t>(std::atoi(argv[2]));
  test::raise_descriptors();
  test::ConnectingCrowd crowd(resolve("127.0.0.1", port).at(0));
  const auto began = Clock::now();
  crowd.connect(count);
  const std::size_t welcomed = crowd.greet(count, began + std::chrono::seconds(30));
  std::printf("welcomed %zu in_ms %.0f\n", welcomed,
              std::chrono::duration<double, std::milli>(Clock::now() - began).count());
} catch (const std::exception& error) {
  std::fprintf(stderr, "connect_at_once: %s\n", error.what());
  return 1;
}
