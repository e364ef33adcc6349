#include "collectives/c/c_api.hpp"

#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>

/// Status, messages, memory and the conversions of the C API.
namespace dlaunch::c_api {
namespace {

// counterparts_test compares the numbers of the enumerations.
static_assert(DL_ANY_SOURCE == any_source && DL_ANY_TAG == any_tag && DL_TAG_MAX == tag_max);
// The sizes of structures that are passed by value or in arrays, and so cannot grow.
static_assert(sizeof(dl_view) == 32 && sizeof(dl_const_view) == 32 && sizeof(dl_reduction) == 48);
static_assert(sizeof(dl_bytes) == 16);
// The size of dl_options when it was published.
constexpr std::size_t options_size_first = 56;
static_assert(sizeof(dl_options) >= options_size_first);

/// The calling thread's last failed call.
struct LastFailure {
  std::uint64_t serial = 0;  ///< The handle's; 0: no handle.
  std::string message;
  bool out_of_memory = false;  ///< Memory ran out, for the message, too.
};
thread_local LastFailure last_failure;  // NOLINT: what errno is to libc.

constexpr const char* out_of_memory_text = "memory ran out";

/// What the function of a custom reduction that runs on this thread has said by dl_fold_failed.
thread_local std::optional<std::string> fold_failure;  // NOLINT: a function of C has no other way.

/// Throws that, as a function of C++ would throw it itself.
void run_fold(dl_fold fold, void* to, void* accumulated, const void* next, std::size_t count,
              DType dtype) {
  fold_failure.reset();
  fold(to, accumulated, next, count, static_cast<dl_dtype>(dtype));
  if (fold_failure) throw std::runtime_error(*std::exchange(fold_failure, std::nullopt));
}

}  // namespace

Failure describe(const std::string& call) {
  try {
    throw;
  } catch (const Misuse& misuse) {
    return {DL_MISUSE, call + ": " + misuse.what};
  } catch (const Error& error) {
    // An error of a callback may have a code that is not one of ours, or none.
    const auto status = static_cast<dl_status>(error.errc());
    const bool known = status > DL_OK && status <= DL_UNAUTHENTICATED;
    return {known ? status : DL_INTERNAL, error.what()};
  } catch (const std::bad_alloc&) {
    return {DL_INTERNAL, call + ": " + out_of_memory_text};
  } catch (const std::exception& error) {
    return {DL_INTERNAL, call + ": " + error.what()};
  } catch (...) {
    return {DL_INTERNAL, call + ": a callback threw an exception without a text"};
  }
}

dl_status failed(const char* call, const Handle* handle) noexcept {
  try {
    Failure failure = describe(call);
    if (handle != nullptr && !handle->shared) handle->message = failure.message;
    last_failure = {handle != nullptr ? handle->serial : 0, std::move(failure.message), false};
    return failure.status;
  } catch (...) {
    if (handle != nullptr && !handle->shared) handle->message.clear();
    last_failure.serial = handle != nullptr ? handle->serial : 0;
    last_failure.out_of_memory = true;
    return DL_INTERNAL;
  }
}

Clock::duration duration_of(std::int64_t ms) {
  using std::chrono::milliseconds;
  constexpr auto longest = std::chrono::duration_cast<milliseconds>(Clock::duration::max()).count();
  if (ms >= longest) return Clock::duration::max();
  return std::max<Clock::duration>(milliseconds(std::max<std::int64_t>(ms, -1)), milliseconds(-1));
}

CallOptions options_of_another_size(const dl_options& options) {
  return call_options_of(known_part(&options, options_size_first, "dl_options"));
}

void throw_no_dtype(dl_dtype dtype) {
  throw Misuse{"the number " + std::to_string(dtype) + " is no dtype"};
}

void throw_no_place(std::int32_t place) {
  throw Misuse{"a view's place is DL_HOST or DL_CUDA(device), not " + std::to_string(place)};
}

namespace {

Reduction in_order_of_ranks(const dl_reduction& reduction) {
  switch (reduction.op) {
    case DL_SUM:
    case DL_PRODUCT:
    case DL_MIN:
    case DL_MAX:
    case DL_MEAN:
    case DL_BAND:
    case DL_BOR:
    case DL_BXOR:
    case DL_LAND:
    case DL_LOR:
    case DL_LXOR:
      return {static_cast<ReduceOp>(reduction.op)};
    case DL_PREMUL_SUM:
      return Reduction::premul_sum(reduction.factor);
    case DL_CUSTOM:
      require(reduction.name != nullptr && reduction.name[0] != '\0' && reduction.fold != nullptr,
              "a custom reduction needs a name and a function; make it with dl_op_custom");
      return Reduction::custom(
          reduction.name,
          [fold = reduction.fold, to = reduction.argument](void* accumulated, const void* next,
                                                           std::size_t count, DType dtype) {
            run_fold(fold, to, accumulated, next, count, dtype);
          },
          reduction.element_bytes);
    default:
      if (reduction.fold == fold_of_none) throw Misuse{reduction.name};
      throw Misuse{"the number " + std::to_string(reduction.op) + " is no dl_reduce_op"};
  }
}

}  // namespace

void fold_of_none(void*, void*, const void*, std::size_t, dl_dtype) {}

Reduction reduction_of(const dl_reduction& reduction) {
  const Reduction made = in_order_of_ranks(reduction);
  switch (reduction.order) {
    case DL_ORDER_RANKS:
      return made;
    case DL_ORDER_CANONICAL:
      return made.canonical();
    case DL_ORDER_ANY:
      return made.any_order();
    default:
      throw Misuse{"the number " + std::to_string(reduction.order) +
                   " is no dl_reduce_order; make a dl_reduction with dl_op"};
  }
}

std::string_view text_of(const char* text, const char* name) { return &place(text, name); }

BytesView bytes_of(const void* data, std::size_t size, const char* name) {
  require(data != nullptr || size == 0, [&] {
    return std::string("'") + name + "' is a null pointer for " + std::to_string(size) + " bytes";
  });
  return {static_cast<const std::byte*>(data), size};
}

dl_bytes copied(BytesView bytes) {
  void* memory = std::malloc(std::max<std::size_t>(bytes.size(), 1));
  if (memory == nullptr) throw std::bad_alloc();
  if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
  return {memory, bytes.size()};
}

char* copied_text(std::string_view text) {
  auto* memory = static_cast<char*>(std::malloc(text.size() + 1));
  if (memory == nullptr) throw std::bad_alloc();
  std::memcpy(memory, text.data(), text.size());
  memory[text.size()] = '\0';
  return memory;
}

}  // namespace dlaunch::c_api

using namespace dlaunch::c_api;  // NOLINT: what follows is this namespace's face.

const char* dl_last_message(const void* handle) {
  const auto own = [] {
    return last_failure.out_of_memory ? out_of_memory_text : last_failure.message.c_str();
  };
  if (handle == nullptr) return own();
  const auto* known = static_cast<const Handle*>(handle);
  if (!known->shared) return known->message.c_str();
  return last_failure.serial == known->serial ? own() : "";
}

const char* dl_status_text(dl_status status) {
  return status == DL_OK ? "ok" : dlaunch::to_string(static_cast<dlaunch::Errc>(status));
}

const char* dl_version() { return dlaunch::version(); }

const char* dl_dtype_text(dl_dtype dtype) {
  const bool fits = dtype >= 0 && dtype <= std::numeric_limits<std::uint8_t>::max();
  return dlaunch::to_string(static_cast<dlaunch::DType>(fits ? dtype : 0));
}

size_t dl_dtype_size(dl_dtype dtype) {
  const bool fits = dtype >= 0 && dtype <= std::numeric_limits<std::uint8_t>::max();
  return dlaunch::size_of(static_cast<dlaunch::DType>(fits ? dtype : 0));
}

const char* dl_reduce_op_text(dl_reduce_op op) {
  const bool fits = op >= 0 && op <= std::numeric_limits<std::uint8_t>::max();
  return dlaunch::to_string(static_cast<dlaunch::ReduceOp>(fits ? op : 0));
}

void dl_fold_failed(const char* why) {
  try {
    fold_failure = why != nullptr && *why != '\0' ? why : "it does not say why";
  } catch (const std::bad_alloc&) {
    fold_failure.emplace();  // An empty text takes no memory.
  }
}

void dl_free(void* memory) { std::free(memory); }

dl_status dl_bytes_copy(dl_bytes* bytes, const void* data, size_t size) {
  return guarded([&] {
    auto& copy = place(bytes, "bytes");
    copy = copied(bytes_of(data, size, "data"));
  });
}

void dl_bytes_free(dl_bytes* bytes) {
  if (bytes == nullptr) return;
  std::free(bytes->data);
  *bytes = {nullptr, 0};
}
