#include "collectives/api/buffers.hpp"

#include <cstring>

namespace dlaunch {

void pack(const ConstTensorView& from, std::byte* to) {
  if (from.stride == 1) {
    if (from.count > 0) std::memcpy(to, from.data, from.bytes());
    return;
  }
  const std::size_t size = size_of(from.dtype);
  const auto step = from.stride * static_cast<std::ptrdiff_t>(size);
  const auto* at = static_cast<const std::byte*>(from.data);
  for (std::size_t i = 0; i < from.count; ++i, to += size) {
    std::memcpy(to, at + static_cast<std::ptrdiff_t>(i) * step, size);
  }
}

void unpack(const std::byte* from, const TensorView& to) {
  if (to.stride == 1) {
    if (to.count > 0) std::memcpy(to.data, from, to.bytes());
    return;
  }
  const std::size_t size = size_of(to.dtype);
  const auto step = to.stride * static_cast<std::ptrdiff_t>(size);
  auto* at = static_cast<std::byte*>(to.data);
  for (std::size_t i = 0; i < to.count; ++i, from += size) {
    std::memcpy(at + static_cast<std::ptrdiff_t>(i) * step, from, size);
  }
}

void Packed::copy(ConstTensorView view) {
  copy_ = std::make_unique_for_overwrite<std::byte[]>(view.bytes());
  pack(view, copy_.get());
  bytes_ = {copy_.get(), view.bytes()};
}

void Unpacked::copy(TensorView view, bool reads) {
  copy_ = std::make_unique<Copy>();
  copy_->of = view;
  copy_->bytes = std::make_unique_for_overwrite<std::byte[]>(view.bytes());
  if (reads) pack(view, copy_->bytes.get());
  bytes_ = {copy_->bytes.get(), view.bytes()};
}

}  // namespace dlaunch
