#pragma once

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dlaunch::rendezvous {

/// Durations, counted by size. One thread; a copy may go elsewhere.
struct Histogram {
  /// Upper bounds in seconds, as an exposition writes them; the last count has none.
  static constexpr std::array<double, 12> bounds = {0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005,
                                                    0.01,    0.05,    0.1,    0.5,    1,     5};

  std::array<std::uint64_t, bounds.size() + 1> counts{};
  double sum_s = 0;

  void add(Clock::duration took) {
    const double seconds = std::chrono::duration<double>(took).count();
    const auto bound = std::ranges::lower_bound(bounds, seconds);
    ++counts[static_cast<std::size_t>(bound - bounds.begin())];
    sum_s += seconds;
  }
};

}  // namespace dlaunch::rendezvous
