// The calls of a communicator that uses a device, which other ranks' words are compared with later.
#include "collectives/call/core/device_history.hpp"

#include <cstdint>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

transport::Fingerprint call(std::uint64_t sequence, bool on_device) {
  transport::Fingerprint made;
  made.op = on_device ? transport::Op::all_reduce : transport::Op::barrier;
  made.sequence = sequence;
  made.traffic = on_device ? transport::device_bit : 0;
  return made;
}

}  // namespace

TEST_CASE("a call on the device is known still when thousands on the host have followed") {
  CallHistory history;
  history.record(call(1, true));
  history.record(call(2, false));
  for (std::uint64_t i = 3; i < 10'000; ++i) history.record(call(i, false));
  REQUIRE(history.find(1));
  CHECK(history.find(1)->on_device());
  CHECK_FALSE(history.find(2));
  CHECK(history.find(9'999));
  CHECK(history.last().sequence == 9'999);
  CHECK(history.untold_count() == 1);
}

TEST_CASE("as many calls on the device are known as a queue of it holds") {
  CallHistory history;
  const std::uint64_t made = 2 * CallHistory::calls_max + 7;
  for (std::uint64_t i = 1; i <= made; ++i) history.record(call(2 * i, true));
  CHECK_FALSE(history.find(2 * (made - CallHistory::calls_max)));
  CHECK(history.find(2 * (made - CallHistory::calls_max + 1)));
  CHECK(history.find(2 * made));
  CHECK_FALSE(history.find(2 * made - 1));
  CHECK_FALSE(history.find(2 * made + 2));
  CHECK(history.take_untold().collectives.size() == CallHistory::calls_max);
}
