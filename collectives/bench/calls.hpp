#pragma once

#include "collectives/bench/device.hpp"
#include "collectives/bench/options.hpp"
#include "collectives/bench/pattern.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace dlaunch::bench {

/// Memory for the calls of one benchmark, page-aligned and zeroed. Warm and registered: one piece;
/// rotating: as many pieces as fit into more memory than the caches hold.
class Arena {
 public:
  /// Registered memory comes from `communicator`. On `device` unless that is null; borrowed. Throws
  /// std::bad_alloc, or what the device says.
  Arena(Communicator& communicator, std::size_t piece_bytes_max, Buffers kind,
        CudaDevice* device = nullptr);
  /// The size of such an arena in bytes.
  static std::size_t bytes_for(std::size_t piece_bytes_max, Buffers kind);

  /// Whether calls may work in it in place.
  bool is_shared() const { return registered_.is_shared(); }
  CudaDevice* device() const { return device_; }
  /// The piece for the `turn`-th call.
  std::span<std::byte> piece(std::size_t bytes, long turn);

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  struct FreeOnDevice {
    CudaDevice* device;
    void operator()(std::byte* memory) const noexcept { device->free(memory); }
  };

  std::size_t bytes_;
  Buffers kind_;
  CudaDevice* device_;
  std::unique_ptr<std::byte, Free> ordinary_;
  SharedBuffer registered_;
  std::unique_ptr<std::byte, FreeOnDevice> on_device_{nullptr, FreeOnDevice{nullptr}};
  DeviceBuffer known_on_device_;
  std::byte* memory_;  ///< The memory of the one in use.
};

/// One operation of one size, to be called again and again. Borrows all it is given.
class Calls {
 public:
  Calls(Communicator& communicator, const Settings& settings, const Operation& operation,
        const Amount& amount, Arena& in, Arena& out);

  /// The `turn`-th call: it decides the root and the memory. On a device it may go on until
  /// finish().
  void operator()(long turn);
  /// All calls are done.
  void finish() {
    if (in_.device() != nullptr) in_.device()->synchronize();
  }
  /// Fills the buffers, makes the call, and checks the result. Returns the number of wrong elements
  /// on this rank. The buffers are zeros afterwards.
  std::uint64_t verify(long turn, Depth depth);

 private:
  struct Views {
    TensorView in;
    TensorView out;
    int root = 0;
  };
  Case case_of(long turn) const;
  Views views(long turn) const;
  /// That part of several.
  TensorView part(const TensorView& whole, int which) const;
  void exchange(const Views& views, int with);
  void end(Work work) const;
  void window(const Views& views);
  void halo(const Views& views);
  void fan_in(const Views& views, long turn);
  void put_in_order(const Case& call, std::span<std::byte> parts) const;

  Communicator& communicator_;
  const Settings& settings_;
  const Operation& operation_;
  Amount amount_;
  Arena& in_;
  Arena& out_;
  // The options for each kind of call.
  Options options_;
  BarrierOptions barrier_options_;
  ReduceOptions reduce_options_;
  std::vector<int> arrived_;  ///< The sources of the last fan_in, by the part that they lie in.
};

}  // namespace dlaunch::bench
