#include "collectives/transport/message/message.hpp"
#include "collectives/transport/wait_chain.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>

/// Any bytes as the payload of what ranks tell each other beside data. A chain of waiting ranks
/// that is read is written and read as the same again, and told as text if it is a ring.

namespace {

using namespace dlaunch;
using namespace dlaunch::transport;

void read_chain(BytesView payload) {
  const auto chain = decode_chain(payload);
  if (!chain) return;
  static_cast<void>(to_string(*chain));
  const auto bytes = encode(*chain);
  if (!bytes) return;
  const auto again = decode_chain(*bytes);
  const auto same = [](const WaitLink& a, const WaitLink& b) {
    return a.rank == b.rank && a.turn == b.turn && a.in_call_of(b);
  };
  if (again && std::ranges::equal(again->links, chain->links, same)) return;
  std::fputs("control_fuzz: a chain that was written reads differently\n", stderr);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView payload = std::as_bytes(std::span(data, size));
  static_cast<void>(decode_failure(Header{}, payload));
  static_cast<void>(decode_status(payload));
  read_chain(payload);
  return 0;
}
