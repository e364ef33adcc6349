#include "collectives/device/library.hpp"

#include "collectives/nccl/device.hpp"
#include "collectives/nccl/group.hpp"
#include "collectives/nccl/shared_objects.hpp"

#include <cstring>
#include <string>
#include <string_view>

/// libdlaunch_nccl.so: what it exports, and how NCCL and the driver become a device library.
namespace dlaunch::nccl {
namespace {

using device::Answer;

class NcclLibrary final : public device::Library {
 public:
  NcclLibrary() : devices_(load_cuda()), nccl_(load_nccl(file_, version_)) {}

  std::string name() const override {
    return "NCCL " + version_text(version_) + " (" + file_ + ")";
  }
  int version() const override { return version_; }

  Answer check(int device) override {
    Answer answer;
    devices_.context_of(device, answer);
    return answer;
  }

  Answer make_id(device::Id& id) override {
    NcclUniqueId unique{};
    const NcclResult result = nccl_.get_unique_id(&unique);
    if (result != nccl_success) {
      return Answer::failed(
          Errc::internal, std::string("ncclGetUniqueId failed: ") + nccl_.get_error_string(result));
    }
    std::memcpy(id.data(), &unique, sizeof unique);
    return {};
  }

  Answer join(const device::Id& id, int device, int rank, int size,
              std::unique_ptr<device::Group>& made) override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return answer;
    auto group = std::make_unique<NcclGroup>(Uses{nccl_, devices_, context, reaper_});
    answer = group->join(id, rank, size);
    if (!answer.has_failed()) made = std::move(group);
    return answer;
  }

  Answer is_capturing(int device, void* stream, bool& capturing) override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return answer;
    const Current current(devices_.cuda, context);
    return devices_.is_capturing(stream, capturing);
  }

  Answer allocate(int device, std::size_t bytes, void*& memory) override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return answer;
    const Current current(devices_.cuda, context);
    const std::size_t size = bytes == 0 ? 1 : bytes;
    if (has_allocator()) {
      const NcclResult result = nccl_.mem_alloc(&memory, size);
      if (result == nccl_success) return {};
      return Answer::failed(Errc::internal,
                            std::string("ncclMemAlloc failed: ") + nccl_.get_error_string(result));
    }
    CuDevicePtr pointer = 0;
    answer = devices_.answer_of(devices_.cuda.mem_alloc(&pointer, size), "cuMemAlloc");
    memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer));
    return answer;
  }

  void free(int device, void* memory) noexcept override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return;
    const Current current(devices_.cuda, context);
    if (has_allocator()) {
      nccl_.mem_free(memory);
    } else {
      devices_.cuda.mem_free(static_cast<CuDevicePtr>(reinterpret_cast<std::uintptr_t>(memory)));
    }
  }

  Answer count_devices(int& count) override {
    Answer answer;
    count = devices_.count(answer);
    return answer;
  }

  Answer make_stream(int device, void*& stream) override {
    return on(device, "cuStreamCreate",
              [&] { return devices_.cuda.stream_create(&stream, cu_stream_non_blocking); });
  }

  void free_stream(int device, void* stream) noexcept override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return;
    const Current current(devices_.cuda, context);
    devices_.cuda.stream_destroy(stream);
  }

  Answer synchronize(int device, void* stream) override {
    return on(device, "cuStreamSynchronize",
              [&] { return devices_.cuda.stream_synchronize(stream); });
  }

  Answer make_mark(int device, void* stream, std::unique_ptr<device::Event>& made) override {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return answer;
    const Current current(devices_.cuda, context);
    auto event = std::make_unique<StreamEvent>(devices_, context);
    answer = event->record(stream);
    if (!answer.has_failed()) made = std::move(event);
    return answer;
  }

  Answer copy(int device, const void* from, void* to, std::size_t bytes, void* stream) override {
    if (bytes == 0) return {};
    return on(device, "cuMemcpyDtoDAsync", [&] {
      return devices_.cuda.copy_async(address_of(to), address_of(from), bytes, stream);
    });
  }

  Answer clear(int device, void* memory, std::size_t bytes, void* stream) override {
    if (bytes == 0) return {};
    return on(device, "cuMemsetD8Async",
              [&] { return devices_.cuda.fill_async(address_of(memory), 0, bytes, stream); });
  }

  Answer copy_across(int device, const void* from, void* to, std::size_t bytes) override {
    if (bytes == 0) return {};
    const Answer copied = on(device, "cuMemcpy", [&] {
      return devices_.cuda.copy(address_of(to), address_of(from), bytes);
    });
    // A copy from pageable memory may return before its last part has arrived, and streams that do
    // not wait for the default one would read what was there before.
    return copied.has_failed() ? copied : synchronize(device, nullptr);
  }

 private:
  template <class Function>
  Answer on(int device, const char* name, const Function& function) {
    Answer answer;
    const CuContext context = devices_.context_of(device, answer);
    if (context == nullptr) return answer;
    const Current current(devices_.cuda, context);
    return devices_.answer_of(function(), name);
  }
  bool has_allocator() const { return nccl_.mem_alloc != nullptr && nccl_.mem_free != nullptr; }

  std::string file_;
  int version_ = 0;
  Devices devices_;
  const NcclApi nccl_;
  Reaper reaper_;
};

}  // namespace
}  // namespace dlaunch::nccl

extern "C" __attribute__((visibility("default"))) dlaunch::device::Library* dlaunch_device_library(
    const char* version, std::string* why) {
  if (std::string_view(version) != DLAUNCH_VERSION) {
    *why =
        std::string("libdlaunch_nccl.so is of dlaunch " DLAUNCH_VERSION " and libdlaunch.so of ") +
        version + ": install both from one build";
    return nullptr;
  }
  try {
    // Lives as long as the process: work on a device may outlast every communicator.
    static dlaunch::nccl::NcclLibrary* const library = new dlaunch::nccl::NcclLibrary;
    return library;
  } catch (const dlaunch::nccl::Lacking& lacking) {
    *why = lacking.sentence;
    return nullptr;
  }
}
