#include "launcher/output/write_spans.hpp"

#include <chrono>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

TEST_CASE("what is written within a second is one span, and a pause divides") {
  WriteSpans spans;
  const Clock::time_point start(1h);
  spans.add(10, start);
  spans.add(10, start + 900ms);
  spans.add(5, start + 1500ms);
  spans.add(5, start + 10s);
  REQUIRE(spans.spans().size() == 3);
  CHECK(spans.spans()[0].begin == 0);
  CHECK(spans.spans()[0].last == start + 900ms);
  CHECK(spans.spans()[1].begin == 20);
  CHECK(spans.spans()[2].begin == 25);
  CHECK(spans.spans()[2].first == start + 10s);
}

TEST_CASE("of a month a bounded number of spans is kept, the new ones short") {
  WriteSpans spans;
  Clock::time_point now(1h);
  for (int i = 0; i < 86'400; ++i) spans.add(1, now += 30s);
  CHECK(spans.spans().size() < 200);
  const auto& all = spans.spans();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto longest = std::max<Clock::duration>(1s, (now - all[i].last) / 8);
    CHECK(all[i].last - all[i].first <= longest);
    if (i > 0) CHECK(all[i].first > all[i - 1].last);
    if (i > 0) CHECK(all[i].begin > all[i - 1].begin);
  }
  CHECK(all.back().last == now);
}
