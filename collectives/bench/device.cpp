#include "collectives/bench/device.hpp"

#include "collectives/device/loader.hpp"

#include <algorithm>

namespace dlaunch::bench {
namespace {

void require_done(const device::Answer& answer) {
  if (!answer.is_done()) throw Error(answer.code, answer.why);
}

}  // namespace

CudaDevice::CudaDevice(int local_rank) : library_(device::library()) {
  int count = 0;
  require_done(library_.count_devices(count));
  if (count == 0) throw Error(Errc::unsupported, "this process has no CUDA device");
  number_ = local_rank % count;
  require_done(library_.check(number_));
  require_done(library_.make_stream(number_, stream_));
}

CudaDevice::~CudaDevice() { library_.free_stream(number_, stream_); }

void CudaDevice::bring_up(Communicator& communicator) { communicator.prepare_device(number_); }

void* CudaDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  require_done(library_.allocate(number_, bytes, memory));
  return memory;
}

void CudaDevice::synchronize() { require_done(library_.synchronize(number_, stream_)); }

void CudaDevice::write(std::span<const std::byte> from, void* to) {
  require_done(library_.copy_across(number_, from.data(), to, from.size()));
}

void CudaDevice::read(const void* from, std::span<std::byte> to) {
  require_done(library_.copy_across(number_, from, to.data(), to.size()));
}

void Shown::clear() {
  const auto all = bytes();
  std::fill(all.begin(), all.end(), std::byte{0});
  put_back();
}

}  // namespace dlaunch::bench
