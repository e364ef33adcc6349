#pragma once

#include <cstdint>
#include <string_view>

namespace dlaunch {

/// FNV-1a: the same on every node, where std::hash may differ between builds. `so_far` goes on with
/// an earlier text's.
inline std::uint64_t text_hash(std::string_view text,
                               std::uint64_t so_far = 14695981039346656037U) {
  for (const char c : text) {
    so_far = (so_far ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return so_far;
}

}  // namespace dlaunch
