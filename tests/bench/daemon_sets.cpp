// What a set costs at a dlaunchd: nodes of jobs of one node set a key of 16 bytes each to 64 bytes,
// one set after the other.   daemon_sets PORT CLIENTS SECONDS
#include "rendezvous/service/messages.hpp"
#include "tests/support/raw_peer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace dlaunch;
namespace message = dlaunch::rendezvous::message;

namespace {

/// A node that has its place.
test::RawPeer come(const Address& daemon, int number) {
  test::RawPeer peer(connect_tcp(daemon, test::soon()));
  peer.say_hello(static_cast<std::uint64_t>(number) + 1, "sets-" + std::to_string(number));
  message::Join join;
  join.offer = {"node", "host", 1, std::nullopt, {"127.0.0.1:1"}};
  Bytes payload, out;
  message::encode(payload, join);
  wire::encode_frame(out, {0, message::Join::type, 0, 0, 0}, payload);
  peer.say(out);
  peer.read(wire::preface_bytes);
  for (;;) {
    const auto [header, text] = peer.frame();
    if (header == wire::FrameHeader{}) throw std::runtime_error("a node was not admitted");
    if (header.type == message::Admitted::type) return peer;
  }
}

/// Microseconds of each set.
std::vector<double> set_until(test::RawPeer& peer, Clock::time_point end) {
  const Bytes value(64, std::byte{'v'});
  std::vector<double> took;
  for (std::uint64_t request = 1; Clock::now() < end; ++request) {
    std::string key = "key-" + std::to_string(request % 1000);
    key.resize(16, '.');
    const auto begin = Clock::now();
    peer.ask(request, store::request::Set{key, value});
    wire::FrameHeader header;
    do header = peer.frame().first;
    while (header.request != request && !(header == wire::FrameHeader{}));
    if (header.type != wire::Type::done) throw std::runtime_error("a set was not carried out");
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return took;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  const Address daemon = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const auto clients = static_cast<std::size_t>(std::atoi(argv[2]));
  std::vector<test::RawPeer> peers;
  for (std::size_t i = 0; i < clients; ++i) peers.push_back(come(daemon, static_cast<int>(i)));
  std::vector<std::vector<double>> took(clients);
  const double seconds = std::atof(argv[3]);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] { took[i] = set_until(peers[i], end); });
  }
  threads.clear();
  std::vector<double> all;
  for (const auto& each : took) all.insert(all.end(), each.begin(), each.end());
  if (all.empty()) throw std::runtime_error("nothing was set");
  std::ranges::sort(all);
  const auto at = [&](double part) {
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
  };
  std::printf("%3zu clients  %8.0f sets/s  p50 %7.0f us  p99 %7.0f us\n", clients,
              static_cast<double>(all.size()) / seconds, at(0.5), at(0.99));
} catch (const std::exception& error) {
  std::fprintf(stderr, "daemon_sets: %s\n", error.what());
  return 1;
}
