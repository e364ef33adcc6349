#pragma once

// The 16-bit types' way to what they are accumulated in and back, for one set of instructions, as
// reduce_elements.hpp is.

#include "collectives/reduce/elements.hpp"
#include "collectives/reduce/kernels.hpp"

#include <cstddef>

namespace dlaunch::kernels {
namespace {

/// Lanes that one conversion takes; elements that share 32 bits are converted one by one, which the
/// compiler makes vectors of.
template <class Element>
constexpr int lanes_at_once = Element::parts == 1 ? register_bytes / 4 : 1;

template <class Element>
void widen(const std::byte* from, std::byte* to, std::size_t count) {
  constexpr int n = lanes_at_once<Element>;
  std::size_t i = 0;
  if constexpr (n > 1) {
    for (; count - i >= n; i += n) {
      Lanes<float, n> wide[1];
      Element::template enter<n>(from + i * 2, wide);
      __builtin_memcpy(to + i * 4, wide, sizeof wide);
    }
  }
  for (; i < count; ++i) {
    float wide[1];
    Element::One::template enter<1>(from + i * 2, wide);
    __builtin_memcpy(to + i * 4, wide, sizeof wide);
  }
}

template <class Element>
void round(const std::byte* from, std::byte* to, std::size_t count) {
  constexpr int n = lanes_at_once<Element>;
  std::size_t i = 0;
  if constexpr (n > 1) {
    for (; count - i >= n; i += n) {
      const Lanes<float, n> wide[1] = {load<Lanes<float, n>>(from + i * 4)};
      const auto rounded = Element::template leave<n>(wide);
      __builtin_memcpy(to + i * 2, &rounded, sizeof rounded);
    }
  }
  for (; i < count; ++i) {
    const float wide[1] = {load<float>(from + i * 4)};
    const auto rounded = Element::One::template leave<1>(wide);
    __builtin_memcpy(to + i * 2, &rounded, sizeof rounded);
  }
}

inline Conversions conversions(DType dtype) {
  if (dtype == DType::f16) return {widen<Half>, round<Half>};
  if (dtype == DType::bf16) return {widen<Bfloat>, round<Bfloat>};
  return {};
}

}  // namespace
}  // namespace dlaunch::kernels
