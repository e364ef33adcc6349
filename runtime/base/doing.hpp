#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace dlaunch {

/// A rank's activity, seen from its records.
struct SeenDoing {
  std::string text;  ///< "in all_reduce #3 [train.cpp:42] for 7 s", "stopped by a signal, ...".
  // The collective that the rank is in, by the numbers of its record; sequence 0: none.
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint8_t op = 0;

  static auto fields(auto& m) { return std::tie(m.text, m.communicator, m.sequence, m.op); }
  bool operator==(const SeenDoing&) const = default;
};

}  // namespace dlaunch
