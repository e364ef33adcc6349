#include "collectives/training/scale.hpp"

#include "collectives/api/buffers.hpp"
#include "collectives/reduce/element_types.hpp"

#include <dlaunch/error.hpp>

#include <complex>
#include <cstring>
#include <type_traits>

namespace dlaunch::training {
namespace {

/// `Wide` is the type in which an element is multiplied.
template <class T, class Wide>
void scale_as(const ConstTensorView& from, std::byte* to, Wide factor) {
  const auto* in = static_cast<const T*>(from.data);
  auto* out = reinterpret_cast<T*>(to);
  if (from.stride == 1) {
    for (std::size_t i = 0; i < from.count; ++i) {
      out[i] = static_cast<T>(static_cast<Wide>(in[i]) * factor);
    }
    return;
  }
  for (std::size_t i = 0; i < from.count; ++i, in += from.stride) {
    out[i] = static_cast<T>(static_cast<Wide>(*in) * factor);
  }
}

}  // namespace

void scale(const ConstTensorView& from, std::byte* to, double factor) {
  if (factor == 1) {
    if (from.data != to) pack(from, to);
    return;
  }
  // Both parts of a complex number lie side by side.
  const DType part = element_type(from.dtype).part;
  if (part != from.dtype && from.stride == 1) {
    return scale(ConstTensorView(from.data, from.count * 2, part), to, factor);
  }
  const bool is_scaled = with_element(from.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T>) {
      return false;
    } else if constexpr (requires { typename T::value_type; }) {
      scale_as<T>(from, to, T(static_cast<typename T::value_type>(factor)));
    } else if constexpr (std::is_class_v<T>) {
      scale_as<T>(from, to, static_cast<float>(factor));
    } else {
      scale_as<T>(from, to, static_cast<T>(factor));
    }
    return true;
  });
  if (is_scaled) return;
  throw Error(Errc::internal,
              std::string("gradients of ") + to_string(from.dtype) + " elements have no mean");
}

}  // namespace dlaunch::training
