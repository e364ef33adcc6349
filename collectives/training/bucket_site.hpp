#pragma once

#include <dlaunch/buffer.hpp>
#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <memory>

namespace dlaunch::training {

/// Memory of gradients that are summed together: one of these.
struct BucketMemory {
  SharedBuffer on_host;
  DeviceBuffer on_device;

  std::byte* data() const {
    return on_device.data() != nullptr ? static_cast<std::byte*>(on_device.data()) : on_host.data();
  }
  std::size_t size_bytes() const {
    return on_device.data() != nullptr ? on_device.size_bytes() : on_host.size_bytes();
  }
};

/// The place of a reducer's gradients: the work on them there, ordered with their sums. For one
/// thread.
class BucketSite {
 public:
  virtual ~BucketSite() = default;
  virtual Place place() const = 0;
  /// Zeros.
  virtual BucketMemory allocate(std::size_t bytes) = 0;
  virtual void clear(std::byte* memory, std::size_t bytes) = 0;
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  /// Puts a gradient into its bucket, where it may already be.
  virtual void put(const ConstTensorView& gradient, std::byte* to, double factor) = 0;
  virtual void take(const std::byte* from, const TensorView& gradient) = 0;
  /// Starts the sum of all ranks' buckets; multiplies by `factor` unless put() has done so.
  virtual Work start_sum(const TensorView& bucket, double factor, Options options) = 0;
  /// Orders later work here behind that sum.
  virtual void await(Work& sum) = 0;
  /// Waits until all work here is done, before memory is given back.
  virtual void finish() = 0;
};

/// The site of a communicator's gradients in host memory.
std::unique_ptr<BucketSite> host_site(Communicator& communicator);
/// The site of those on a device, computed and used on that stream. Throws Error{unsupported}.
std::unique_ptr<BucketSite> device_site(Communicator& communicator, int device, void* stream);

}  // namespace dlaunch::training
