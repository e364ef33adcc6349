#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace dlaunch {

/// One reduction of one element type, ready to be applied. Pure; a value.
class Folder {
 public:
  /// `reduction` is borrowed for the folder's life.
  Folder(const Reduction& reduction, DType dtype, bool truncate_mean);

  /// Why this operation makes no sense for this type, naming both; nullopt if it does.
  static std::optional<std::string> objection(const Reduction& reduction, DType dtype,
                                              bool truncate_mean);

  std::size_t element_bytes() const { return size_of(dtype_); }
  /// out[i] = inputs[0][i] op inputs[1][i] op ..., from left to right, `count` elements each. `out`
  /// may be one of the inputs. At least one input.
  void operator()(std::span<const std::byte* const> inputs, std::byte* out,
                  std::size_t count) const;

 private:
  const Reduction& reduction_;
  DType dtype_;
};

}  // namespace dlaunch
