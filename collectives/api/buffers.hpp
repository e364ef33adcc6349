#pragma once

#include <dlaunch/store.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch {

void pack(const ConstTensorView& from, std::byte* to);
void unpack(const std::byte* from, const TensorView& to);

/// The contiguous bytes of a view that is read: the view's own memory, or a packed copy if it is
/// strided.
class Packed {
 public:
  explicit Packed(const ConstTensorView& view)
      : bytes_(static_cast<const std::byte*>(view.data), view.bytes()) {
    if (view.stride != 1) [[unlikely]]
      copy(view);
  }
  BytesView bytes() const { return bytes_; }

 private:
  void copy(ConstTensorView view);

  std::unique_ptr<std::byte[]> copy_;
  BytesView bytes_;
};

/// Contiguous bytes for a view that is written: its own memory, or a buffer that commit() spreads
/// over a strided view. With `reads` the buffer begins with the view's values.
class Unpacked {
 public:
  explicit Unpacked(const TensorView& view, bool reads = false)
      : bytes_(static_cast<std::byte*>(view.data), view.bytes()) {
    if (view.stride != 1) [[unlikely]]
      copy(view, reads);
  }
  std::span<std::byte> bytes() const { return bytes_; }
  void commit() const {
    if (copy_) [[unlikely]]
      unpack(copy_->bytes.get(), copy_->of);
  }
  /// The first `count` elements alone.
  void commit(std::size_t count) const {
    if (!copy_) [[likely]]
      return;
    TensorView first = copy_->of;
    first.count = count;
    unpack(copy_->bytes.get(), first);
  }

 private:
  struct Copy {
    TensorView of;
    std::unique_ptr<std::byte[]> bytes;
  };
  void copy(TensorView view, bool reads);

  std::unique_ptr<Copy> copy_;
  std::span<std::byte> bytes_;
};

/// The same of several views, `One` being Packed or Unpacked.
template <class One, class View>
class ViewList {
 public:
  explicit ViewList(std::span<const View> views) {
    for (const View& view : views) places_.push_back(views_.emplace_back(view).bytes().data());
  }
  /// The address at which each begins.
  auto places() const { return std::span(places_); }
  void commit() const {
    for (const One& view : views_) view.commit();
  }

 private:
  std::vector<One> views_;
  std::vector<decltype(std::declval<One>().bytes().data())> places_;
};
using PackedList = ViewList<Packed, ConstTensorView>;
using UnpackedList = ViewList<Unpacked, TensorView>;

}  // namespace dlaunch
