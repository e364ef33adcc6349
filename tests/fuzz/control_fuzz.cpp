#include "collectives/call/core/outcome.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/wait_chain.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>

/// Any bytes as the payload of what ranks tell each other beside data, or leave in the store for
/// each other. What is read is written as the same bytes again; a chain of waiting ranks is read as
/// the same again, and told as text if it is a ring.

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

template <class Value>
void check(const std::optional<Value>& value, BytesView payload) {
  if (!value || std::ranges::equal(encode(*value), payload)) return;
  std::fputs("control_fuzz: what was decoded encodes differently\n", stderr);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView payload = std::as_bytes(std::span(data, size));
  static_cast<void>(decode_failure(Header{}, payload));
  check(decode_answer(payload), payload);
  check(decode_brought(payload), payload);
  const auto outcome = decode_outcome(payload, 8);
  check(outcome, payload);
  const Group group{"world", 1, 0, {0, 1, 2, 3, 4, 5, 6, 7}};
  if (outcome) static_cast<void>(failure_of({group, Op::agree, 1}, *outcome));
  read_chain(payload);
  return 0;
}
