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

/// The place of a reducer's gradients: what is done with them there, and in which order with their
/// sums. For one thread.
class BucketSite {
 public:
  virtual ~BucketSite() = default;
  virtual Place place() const = 0;
  /// Zeros.
  virtual BucketMemory allocate(std::size_t bytes) = 0;
  virtual void clear(std::byte* memory, std::size_t bytes) = 0;
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  /// A gradient into its bucket, where it may be already.
  virtual void put(const ConstTensorView& gradient, std::byte* to, double factor) = 0;
  virtual void take(const std::byte* from, const TensorView& gradient) = 0;
  /// The sum of all ranks' buckets; times `factor` where put() did not see to it.
  virtual Work start_sum(const TensorView& bucket, double factor, Options options) = 0;
  /// Later work here is done after that sum.
  virtual void await(Work& sum) = 0;
  /// Until everything is done that was asked for here, before memory is given back.
  virtual void finish() = 0;
};

/// The site of a communicator's gradients in host memory.
std::unique_ptr<BucketSite> host_site(Communicator& communicator);
/// The site of those on a device, computed and used on that stream. Throws Error{unsupported}.
std::unique_ptr<BucketSite> device_site(Communicator& communicator, int device, void* stream);

}  // namespace dlaunch::training
