#pragma once

#include "collectives/call/call.hpp"
#include "collectives/device/library.hpp"

#include <dlaunch/communicator.hpp>

#include <functional>
#include <initializer_list>
#include <span>

/// What each collective and message is on a device: its fingerprint, its checks, and the steps of
/// this rank. Pure.
namespace dlaunch::device {

/// Whether any of these lies on a device.
inline bool any_on_device(std::initializer_list<ConstTensorView> views) noexcept {
  for (const ConstTensorView& view : views) {
    if (!view.place.is_host()) return true;
  }
  return false;
}
bool any_on_device(std::span<const Transfer> transfers) noexcept;
/// The same for what a rank uses where the root alone uses both.
inline bool is_on_device(bool uses_both, const ConstTensorView& one,
                         const ConstTensorView& other) noexcept {
  return any_on_device({one, uses_both ? other : ConstTensorView()});
}

/// One call, before it is made. The views are borrowed until it is, and so are counts and
/// reductions.
struct Request {
  transport::Fingerprint fingerprint;
  int device = -1;
  int peer = any_source;  ///< The peer of a message.
  /// Throws Error{misuse} or Error{unsupported}.
  std::function<Plan(const Call&)> plan;
};

/// The streams sum that byte, which is on the device. Null: only prepares the device.
Request barrier(int device, void* byte);
Request broadcast(TensorView inout, int root);
Request reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction,
               const Options& options);
Request all_reduce(TensorView inout, const Reduction& reduction, const Options& options);
Request all_gather(ConstTensorView in, TensorView out);
Request all_gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts);
Request gather(ConstTensorView in, TensorView out, int root);
Request gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts, int root);
Request scatter(ConstTensorView in, TensorView out, int root);
Request scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                  int root);
Request reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction,
                       const Options& options);
Request reduce_scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                         const Reduction& reduction, const Options& options);
Request all_to_all(ConstTensorView in, TensorView out);
Request all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts, TensorView out,
                     std::span<const std::size_t> out_counts);
/// All at once; at least one of them on a device, and so all.
Request messages(std::span<const Transfer> transfers, const Options& options);

}  // namespace dlaunch::device
