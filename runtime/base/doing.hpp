#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace dlaunch {

/// What a rank is seen doing by what it has recorded.
struct SeenDoing {
  std::string text;  ///< "in all_reduce #3 [train.cpp:42] for 7 s", "stopped by a signal, ...".
  // The collective that it is in, by the numbers in its record; sequence 0: in none.
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint8_t op = 0;

  static auto fields(auto& m) { return std::tie(m.text, m.communicator, m.sequence, m.op); }
  bool operator==(const SeenDoing&) const = default;
};

}  // namespace dlaunch
