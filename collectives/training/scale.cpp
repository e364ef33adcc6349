#include "collectives/training/scale.hpp"

#include "collectives/api/buffers.hpp"

#include <dlaunch/error.hpp>

#include <complex>
#include <cstring>

namespace dlaunch::training {
namespace {

/// `Wide` is in what an element is multiplied.
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
  switch (from.dtype) {
    case DType::f32:
      return scale_as<float>(from, to, static_cast<float>(factor));
    case DType::f64:
      return scale_as<double>(from, to, factor);
    case DType::f16:
      return scale_as<float16>(from, to, static_cast<float>(factor));
    case DType::bf16:
      return scale_as<bfloat16>(from, to, static_cast<float>(factor));
    case DType::c64:
      // Both parts, which lie side by side.
      if (from.stride == 1) {
        const ConstTensorView parts(from.data, from.count * 2, DType::f32);
        return scale_as<float>(parts, to, static_cast<float>(factor));
      }
      return scale_as<std::complex<float>>(from, to,
                                           std::complex<float>(static_cast<float>(factor)));
    case DType::c128:
      return scale_as<std::complex<double>>(from, to, std::complex<double>(factor));
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
    case DType::boolean:
      break;
  }
  throw Error(Errc::internal,
              std::string("gradients of ") + to_string(from.dtype) + " elements have no mean");
}

}  // namespace dlaunch::training
