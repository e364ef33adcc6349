#pragma once

#include "runtime/base/verdict.hpp"

#include <iterator>
#include <string>

namespace dlaunch::testing {

/// "left", "node_lost"...
inline std::string name_of(Verdict::Kind kind) {
  const char* names[] = {"failed", "left",      "node_lost", "lost",
                         "absent", "disagreed", "arguments", "gave_up"};
  static_assert(std::size(names) == static_cast<std::size_t>(Verdict::kind_last) + 1);
  return names[static_cast<int>(kind)];
}

}  // namespace dlaunch::testing
