#include "collectives/reduce/element_types.hpp"

namespace dlaunch {

const char* to_string(DType dtype) noexcept {
  const ElementType* const found = find_element_type(dtype);
  // A number read off the wire may be newer than this build.
  return found != nullptr ? found->name : "unknown dtype";
}

}  // namespace dlaunch
