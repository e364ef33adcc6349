// How long a server takes to refuse a wrong secret for a job that is there, and for one that is
// not: in turns, so that what disturbs the machine disturbs both alike.
//   refusals PORT JOB COUNT
#include "runtime/base/os/socket.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/store/client/client.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace dlaunch;

namespace {

constexpr auto patience = std::chrono::seconds(20);

double refused_us(const Address& server, const std::string& job, const Key& key) {
  store::Client::Options options;
  options.hello.job = job;
  options.hello.session = 1;
  options.key = key;
  unique_fd socket = connect_tcp(server, Clock::now() + patience);
  const auto began = Clock::now();
  try {
    const store::Client let_in(std::move(socket), options, nullptr, began + patience);
  } catch (const Error& refused) {
    const auto took = Clock::now() - began;
    if (refused.errc() != Errc::unauthenticated) throw;
    return std::chrono::duration<double, std::micro>(took).count();
  }
  throw Error(Errc::internal, "a wrong secret was let in");
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  const Address server = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const std::string known = argv[2];
  // As long as the other one's name: the name's length is no secret.
  const std::string unknown(known.size(), 'u');
  const Key wrong(KeyView(as_bytes("0123456789abcdef0123456789abcdef")));
  std::vector<double> of_known, of_unknown;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    of_known.push_back(refused_us(server, known, wrong));
    of_unknown.push_back(refused_us(server, unknown, wrong));
  }
  std::printf("known_us %.1f unknown_us %.1f\n", median(of_known), median(of_unknown));
} catch (const std::exception& error) {
  std::fprintf(stderr, "refusals: %s\n", error.what());
  return 1;
}
