#include <dlaunch/tensor.hpp>

namespace dlaunch {

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::u16:
      return "u16";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::i64:
      return "i64";
    case DType::u64:
      return "u64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::boolean:
      return "bool";
    case DType::c64:
      return "c64";
    case DType::c128:
      return "c128";
  }
  return "unknown dtype";  // A number read off the wire may be newer than this build.
}

}  // namespace dlaunch
