#include "collectives/reduce/partial_reducer.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace dlaunch {
namespace {

/// The part of each input that is prepared at a time: the parts of all inputs together stay in the
/// first-level cache.
constexpr std::size_t block_elements = 512;
constexpr std::size_t element_bytes_max = 16;

/// The accumulator's type. A custom operation accumulates in its own way, so its partials keep the
/// dtype.
DType accumulated(const Reducer& whole) {
  const bool is_ours = traits_of(whole.reduction().op()).needs != Needs::function;
  return is_ours ? element_type(whole.dtype()).accumulated : whole.dtype();
}

Reduction joining(const Reduction& reduction) {
  const ReduceOpTraits row = traits_of(reduction.op());
  if (row.joins_by_sum) return ReduceOp::sum;
  return row.needs == Needs::function ? reduction : Reduction(row.op);
}

kernels::Conversions conversions(const Reducer& whole) {
  if (accumulated(whole) == whole.dtype()) return {};
  switch (whole.instructions()) {
    case Instructions::baseline:
      return kernels::conversions_baseline(whole.dtype());
#if defined(__x86_64__)
    case Instructions::avx2:
      return kernels::conversions_avx2(whole.dtype());
    case Instructions::avx512:
      return kernels::conversions_avx512(whole.dtype());
#else
    case Instructions::avx2:
    case Instructions::avx512:
      return kernels::conversions_baseline(whole.dtype());
#endif
  }
  return {};
}

template <class T>
void divide(std::byte* values, std::size_t count, int ranks) {
  const auto divisor = static_cast<T>(ranks);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    value /= divisor;
    std::memcpy(values + i * sizeof value, &value, sizeof value);
  }
}

/// Divides for a mean, which here is of floats or of complex numbers' parts.
void divide(DType dtype, std::byte* values, std::size_t count, int ranks) {
  const DType part = element_type(dtype).part;
  const std::size_t parts = count * (size_of(dtype) / size_of(part));
  if (part == DType::f32) return divide<float>(values, parts, ranks);
  assert(part == DType::f64 && "a mean of what is not accumulated as floats");
  divide<double>(values, parts, ranks);
}

}  // namespace

PartialReducer::PartialReducer(const Reducer& whole)
    : whole_(whole),
      joining_reduction_(dlaunch::joining(whole.reduction())),
      joining_(joining_reduction_, accumulated(whole), false, whole.instructions()),
      convert_(conversions(whole)),
      has_factor_(traits_of(whole.reduction().op()).needs == Needs::factor),
      divides_(whole.reduction().op() == ReduceOp::mean),
      is_truth_(traits_of(whole.reduction().op()).is_truth),
      scaling_(has_factor_ ? whole.reduction() : joining_reduction_, accumulated(whole), false,
               whole.instructions()) {
  assert(whole.freedom() != Freedom::none);
}

void PartialReducer::extend(const std::byte* partial, std::span<const std::byte* const> inputs,
                            std::byte* out, std::size_t count) {
  const bool as_they_are = convert_.widen == nullptr && !has_factor_;
  const std::size_t first = partial != nullptr ? 1 : 0;
  const std::size_t from_bytes = whole_.element_bytes(), to_bytes = element_bytes();
  const std::size_t step = as_they_are ? count : block_elements;
  inputs_.resize(first + inputs.size());
  if (!as_they_are) scratch_.resize(inputs.size() * block_elements * element_bytes_max);
  for (std::size_t begin = 0; begin < count; begin += step) {
    const std::size_t now = std::min(step, count - begin);
    if (partial != nullptr) inputs_[0] = partial + begin * to_bytes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::byte* from = inputs[i] + begin * from_bytes;
      inputs_[first + i] = from;
      if (as_they_are) continue;
      std::byte* prepared = scratch_.data() + i * block_elements * element_bytes_max;
      if (convert_.widen != nullptr) {
        convert_.widen(from, prepared, now);
        from = prepared;
      }
      if (has_factor_) scaling_(std::span(&from, 1), prepared, now);
      inputs_[first + i] = prepared;
    }
    joining_(inputs_, out + begin * to_bytes, now);
  }
}

void PartialReducer::finish(const std::byte* partial, std::byte* out, std::size_t count,
                            int ranks) const {
  const std::size_t bytes = element_bytes();
  if (convert_.round == nullptr) {
    if (out != partial && count > 0) std::memmove(out, partial, count * bytes);
    if (divides_) divide(joining_.dtype(), out, count, ranks);
    return;
  }
  std::array<std::byte, block_elements * sizeof(float)> wide;
  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    const std::size_t now = std::min(block_elements, count - begin);
    std::memcpy(wide.data(), partial + begin * bytes, now * bytes);
    if (divides_) divide(joining_.dtype(), wide.data(), now, ranks);
    convert_.round(wide.data(), out + begin * whole_.element_bytes(), now);
  }
}

}  // namespace dlaunch
