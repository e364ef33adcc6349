#pragma once

#include <dlaunch/store.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace dlaunch {

/// The contiguous bytes of a view that is read: the view's own memory, or a packed copy if it is
/// strided.
class Packed {
 public:
  explicit Packed(const ConstTensorView& view);
  BytesView bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte[]> copy_;
  BytesView bytes_;
};

/// Contiguous bytes for a view that is written: its own memory, or a buffer that commit() spreads
/// over a strided view. With `reads` the buffer begins as what the view shows.
class Unpacked {
 public:
  explicit Unpacked(const TensorView& view, bool reads = false);
  std::span<std::byte> bytes() const { return bytes_; }
  void commit() const;

 private:
  TensorView view_;
  std::unique_ptr<std::byte[]> copy_;
  std::span<std::byte> bytes_;
};

void pack(const ConstTensorView& from, std::byte* to);
void unpack(const std::byte* from, const TensorView& to);

}  // namespace dlaunch
