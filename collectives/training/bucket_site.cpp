#include "collectives/training/bucket_site.hpp"

#include "collectives/api/buffers.hpp"
#include "collectives/device/loader.hpp"
#include "collectives/training/scale.hpp"

#include <cstring>
#include <utility>

namespace dlaunch::training {
namespace {

class HostSite final : public BucketSite {
 public:
  explicit HostSite(Communicator& communicator) : communicator_(communicator) {}

  Place place() const override { return {}; }
  BucketMemory allocate(std::size_t bytes) override {
    BucketMemory memory{communicator_.allocate(bytes), {}};
    clear(memory.data(), bytes);
    return memory;
  }
  void clear(std::byte* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void put(const ConstTensorView& gradient, std::byte* to, double factor) override {
    scale(gradient, to, factor);
  }
  void take(const std::byte* from, const TensorView& gradient) override { unpack(from, gradient); }
  Work start_sum(const TensorView& bucket, double /*factor*/, Options options) override {
    return communicator_.start_all_reduce(bucket, ReduceOp::sum, options);
  }
  void await(Work& sum) override { sum.wait(); }
  void finish() override {}

 private:
  Communicator& communicator_;
};

/// Sums have a stream of their own, so that they run beside what computes the next gradients; the
/// host waits for neither.
class DeviceSite final : public BucketSite {
 public:
  DeviceSite(Communicator& communicator, int device, void* stream)
      : communicator_(communicator),
        library_(device::library()),
        device_(device),
        computing_(stream) {
    require_done(library_.check(device));
    require_done(library_.make_stream(device, summing_));
  }
  DeviceSite(const DeviceSite&) = delete;
  DeviceSite& operator=(const DeviceSite&) = delete;
  ~DeviceSite() override { library_.free_stream(device_, summing_); }

  Place place() const override { return {device_}; }
  BucketMemory allocate(std::size_t bytes) override {
    BucketMemory memory{{}, communicator_.allocate_device(bytes, device_)};
    clear(memory.data(), bytes);
    return memory;
  }
  void clear(std::byte* memory, std::size_t bytes) override {
    require_done(library_.clear(device_, memory, bytes, computing_));
  }
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    require_done(library_.copy(device_, from, to, bytes, computing_));
  }
  void put(const ConstTensorView& gradient, std::byte* to, double /*factor*/) override {
    if (gradient.data != to) {
      copy(static_cast<const std::byte*>(gradient.data), to, gradient.bytes());
    }
  }
  void take(const std::byte* from, const TensorView& gradient) override {
    copy(from, static_cast<std::byte*>(gradient.data), gradient.bytes());
  }
  Work start_sum(const TensorView& bucket, double factor, Options options) override {
    std::unique_ptr<device::Event> computed;
    require_done(library_.make_mark(device_, computing_, computed));
    require_done(computed->order_before(summing_));
    options.cuda_stream = summing_;
    return communicator_.start_all_reduce(bucket, Reduction::premul_sum(factor), options);
  }
  void await(Work& sum) override { sum.order_before(computing_); }
  void finish() override { require_done(library_.synchronize(device_, computing_)); }

 private:
  static void require_done(const device::Answer& answer) {
    if (!answer.is_done()) throw Error(answer.code, "GradientReducer: " + answer.why);
  }

  Communicator& communicator_;
  device::Library& library_;
  const int device_;
  void* const computing_;
  void* summing_ = nullptr;
};

}  // namespace

std::unique_ptr<BucketSite> host_site(Communicator& communicator) {
  return std::make_unique<HostSite>(communicator);
}

std::unique_ptr<BucketSite> device_site(Communicator& communicator, int device, void* stream) {
  return std::make_unique<DeviceSite>(communicator, device, stream);
}

}  // namespace dlaunch::training
