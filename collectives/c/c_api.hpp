#pragma once

#include "runtime/base/pools.hpp"

#include <dlaunch/dlaunch.h>
#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// The common parts of the C API: handles, the one guard, and conversions. They use the public C++
/// interface alone.
namespace dlaunch::c_api {

/// The most axes of a dl_tensor and of a dl_parameter.
constexpr std::int32_t axes_max = 64;

/// A text that is seldom there, and takes one word until it is: every started call has some.
class RareText {
 public:
  RareText& operator=(std::string text) {
    text_ = std::make_unique<std::string>(std::move(text));
    return *this;
  }
  void clear() noexcept { text_.reset(); }
  bool empty() const noexcept { return text_ == nullptr; }
  std::string str() const { return c_str(); }
  const char* c_str() const noexcept { return text_ ? text_->c_str() : ""; }

 private:
  std::unique_ptr<std::string> text_;
};

/// What every handle begins with, so that dl_last_message can take any of them.
struct Handle {
  /// Whether several threads may use the handle, so that each needs its own message; see
  /// LastFailure.
  explicit Handle(bool is_shared) : shared(is_shared), serial(is_shared ? next_serial() : 0) {}
  const bool shared;
  const std::uint64_t serial;  ///< Its own number if it is shared; else 0.
  mutable RareText message;

 private:
  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
};

}  // namespace dlaunch::c_api

struct dl_world : dlaunch::c_api::Handle {
  explicit dl_world(dlaunch::World made) : Handle(true), world(std::move(made)) {}
  static constexpr const char* type = "dl_world";
  dlaunch::World world;
};

struct dl_store : dlaunch::c_api::Handle {
  explicit dl_store(std::shared_ptr<dlaunch::Store> used) : Handle(true), store(std::move(used)) {}
  static constexpr const char* type = "dl_store";
  const std::shared_ptr<dlaunch::Store> store;
};

struct dl_comm : dlaunch::c_api::Handle {
  explicit dl_comm(dlaunch::Communicator made) : Handle(false), comm(std::move(made)) {}
  static constexpr const char* type = "dl_comm";
  dlaunch::Communicator comm;
};

struct dl_buffer : dlaunch::c_api::Handle {
  explicit dl_buffer(dlaunch::SharedBuffer allocated)
      : Handle(false), buffer(std::move(allocated)) {}
  explicit dl_buffer(dlaunch::DeviceBuffer allocated)
      : Handle(false), on_device(std::move(allocated)) {}
  static constexpr const char* type = "dl_buffer";
  // One of them is empty.
  const dlaunch::SharedBuffer buffer;
  const dlaunch::DeviceBuffer on_device;
};

struct dl_work : dlaunch::c_api::Handle {
  explicit dl_work(dlaunch::Work started, bool is_shared = false)
      : Handle(is_shared), work(std::move(started)) {}
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;
  static constexpr const char* type = "dl_work";
  dlaunch::Work work;
  dlaunch::c_api::RareText fault;  ///< See Called.
};
inline void* dl_work::operator new(std::size_t) {
  return dlaunch::PooledMemory<sizeof(dl_work), alignof(dl_work)>::take();
}
inline void dl_work::operator delete(void* memory) noexcept {
  dlaunch::PooledMemory<sizeof(dl_work), alignof(dl_work)>::give_back(memory);
}

struct dl_message : dlaunch::c_api::Handle {
  explicit dl_message(dlaunch::Message matched) : Handle(false), message(std::move(matched)) {}
  static constexpr const char* type = "dl_message";
  dlaunch::Message message;
};

struct dl_reducer : dlaunch::c_api::Handle {
  dl_reducer(dlaunch::Communicator& comm, std::vector<dlaunch::Parameter> parameters,
             std::vector<dlaunch::TensorView> buffers, const dlaunch::ReducerSettings& settings,
             const dlaunch::CallSite& site)
      : Handle(false), reducer(comm, std::move(parameters), std::move(buffers), settings, site) {}
  static constexpr const char* type = "dl_reducer";
  dlaunch::GradientReducer reducer;
  std::optional<dlaunch::GradientReducer::NoSync> without_sync;
};

struct dl_listener : dlaunch::c_api::Handle {
  explicit dl_listener(dlaunch::Listener opened) : Handle(false), listener(std::move(opened)) {}
  static constexpr const char* type = "dl_listener";
  dlaunch::Listener listener;
};

struct dl_tree : dlaunch::c_api::Handle {
  explicit dl_tree(dlaunch::Tree value);
  static constexpr const char* type = "dl_tree";
  const dlaunch::Tree tree;
  std::vector<const dlaunch::Tensor*> tensors;  ///< In the order of the tree's text.
};

namespace dlaunch::c_api {

/// A mistake of the caller's that is found before the C++ interface is called. The guard adds the
/// call's name.
struct Misuse {
  std::string what;
};

inline void require(bool holds, std::string_view otherwise) {
  if (!holds) throw Misuse{std::string(otherwise)};
}
/// The same with a sentence that is made if it is needed: on the way of every call.
template <std::invocable Otherwise>
void require(bool holds, const Otherwise& otherwise) {
  if (!holds) [[unlikely]]
    throw Misuse{otherwise()};
}

/// Keeps the present exception as the message of the handle (which may be null) and the thread.
/// Called in a catch clause.
dl_status failed(const char* call, const Handle* handle) noexcept;
/// Status and sentence of the present exception. Called in a catch clause.
struct Failure {
  dl_status status = DL_INTERNAL;
  std::string message;
};
Failure describe(const std::string& call);

/// The guard of calls without a handle.
template <class Body>
dl_status guarded(Body&& body, const char* call = __builtin_FUNCTION()) noexcept {
  try {
    body();
    return DL_OK;
  } catch (...) {
    return failed(call, nullptr);
  }
}

/// The guard of all others: runs `body` unless the handle is null.
template <class H, class Body>
[[gnu::always_inline]] inline dl_status guarded_on(
    H* handle, Body&& body, const char* call = __builtin_FUNCTION()) noexcept {
  try {
    if (handle == nullptr) throw Misuse{std::string("the ") + H::type + " is a null pointer"};
    body();
    return DL_OK;
  } catch (...) {
    return failed(call, handle);
  }
}

/// Checks that the place for a result is not null.
template <class T>
T& place(T* pointer, const char* name) {
  if (pointer == nullptr) throw Misuse{std::string("'") + name + "' is a null pointer"};
  return *pointer;
}

/// What is made of each of a caller's items, for as long as a call lasts. Up to `few` of them take
/// no memory but the stack's.
template <class T, std::size_t few>
class ShortList {
 public:
  template <class Given, class Convert>
  ShortList(std::span<const Given> given, const Convert& convert) {
    items_.reserve(given.size());
    for (const Given& each : given) items_.push_back(convert(each));
  }
  operator std::span<const T>() const noexcept { return items_; }

 private:
  alignas(T) std::array<std::byte, few * sizeof(T)> room_;
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};
  std::pmr::vector<T> items_{&memory_};
};

/// No structure of ours will ever be that large; a larger struct_size was never set.
constexpr std::size_t structure_bytes_max = 4096;

/// Checks the size of a caller's structure; `first` is its size when it was published.
inline void check_structure_size(std::size_t size, std::size_t first, const char* name) {
  if (size >= first && size <= structure_bytes_max) return;
  throw Misuse{std::string("a ") + name + " with struct_size " + std::to_string(size) +
               " was given; set struct_size to sizeof(" + name + ")"};
}

/// Copies a structure of a caller that may know more or fewer fields than we do: fields that it
/// does not know become zero, fields that we do not know have to be zero.
template <class T>
T known_part(const T* given, std::size_t first, const char* name) {
  T known{};
  if (given == nullptr) return known;
  const std::size_t size = given->struct_size;
  check_structure_size(size, first, name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](auto b) { return b; })) {
    throw Error(Errc::version, std::string("a ") + name + " of " + std::to_string(size) +
                                   " bytes asks for what libdlaunch " + version() +
                                   " does not know; it was built for a newer one");
  }
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  return known;
}

/// Milliseconds as a duration; too long ones become the longest duration.
Clock::duration duration_of(std::int64_t ms);
/// The C++ options of a call, from the caller's one structure. Every field is copied by itself:
/// compilers copy a nested structure in pairs of words, and such a load of words that were just
/// stored one by one waits for all stores before it.
struct CallOptions {
  Clock::duration timeout = Clock::duration::zero();
  void* cuda_stream = nullptr;
  const char* file = "";
  int line = 0;
  const char* function = "";
  int tag = 0;
  bool truncate_mean = false;
  bool ordered_output = false;

  CallSite site() const { return {file, line, function}; }
  operator Options() const { return {timeout, cuda_stream, {file, line, function}}; }
  operator BarrierOptions() const {
    return {timeout, cuda_stream, ordered_output, {file, line, function}};
  }
  operator ReduceOptions() const {
    return {timeout, cuda_stream, truncate_mean, {file, line, function}};
  }
  operator MessageOptions() const { return {timeout, tag, cuda_stream, {file, line, function}}; }
};
inline CallOptions call_options_of(const dl_options& given) {
  return {given.timeout_ms != 0 ? duration_of(given.timeout_ms) : Clock::duration::zero(),
          given.cuda_stream,
          given.file != nullptr ? given.file : "",
          given.line,
          given.function != nullptr ? given.function : "",
          given.tag,
          given.truncate_mean != 0,
          given.ordered_output != 0};
}
/// The same of options that an older or a newer program has filled.
CallOptions options_of_another_size(const dl_options& options);
inline CallOptions options_of(const dl_options* options) {
  if (options == nullptr) return {};
  if (options->struct_size == sizeof *options) [[likely]]
    return call_options_of(*options);
  return options_of_another_size(*options);
}

[[noreturn]] void throw_no_dtype(dl_dtype dtype);
[[noreturn]] void throw_no_place(std::int32_t place);
inline DType dtype_of(dl_dtype dtype) {
  // Larger numbers are not left to wrap around.
  if (dtype < 0 || dtype > std::numeric_limits<std::uint8_t>::max()) [[unlikely]]
    throw_no_dtype(dtype);
  return static_cast<DType>(dtype);
}
template <class View, class Given>
View view_as(const Given& given) {
  if (given.place < DL_HOST) [[unlikely]]
    throw_no_place(given.place);
  return {given.data, given.count, dtype_of(given.dtype), Place{given.place - 1},
          given.stride == 0 ? 1 : given.stride};
}
inline TensorView view_of(const dl_view& view) { return view_as<TensorView>(view); }
inline ConstTensorView view_of(const dl_const_view& view) { return view_as<ConstTensorView>(view); }
Reduction reduction_of(const dl_reduction& reduction);
/// The function of a reduction that could not be made, whose name says why. Never called.
void fold_of_none(void* argument, void* accumulated, const void* next, std::size_t count,
                  dl_dtype dtype);
/// Error{misuse} for null.
std::string_view text_of(const char* text, const char* name);
BytesView bytes_of(const void* data, std::size_t size, const char* name);

/// A list with an entry for each rank; empty for a null pointer, which the call itself then
/// refuses, so that the other ranks hear of it.
inline std::span<const std::size_t> counts_of(const dl_comm* comm, const std::size_t* counts) {
  return {counts, counts != nullptr ? static_cast<std::size_t>(comm->comm.size()) : 0};
}

/// The communicator of a call, with the name of the function that is called with it.
struct Called {
  Called(dl_comm* on, const char* function = __builtin_FUNCTION())  // NOLINT: as an argument.
      : comm(on), name(function) {}
  dl_comm* comm;
  const char* name;
  /// What is wrong with an argument that C++ has no value for. The call gets a value that it
  /// refuses, so that the other ranks hear of it as of any wrong argument; this says it in terms
  /// of C. Empty: nothing.
  RareText fault;
};

// Converts an argument to that of the C++ counterpart.

/// The argument that `convert` makes; where there is none, what `refused` makes, which the call
/// refuses, or does not use.
template <class Convert, class Refused>
std::invoke_result_t<Convert> taken_or(Called& call, const Convert& convert,
                                       const Refused& refused) {
  try {
    return convert();
  } catch (const Misuse& misuse) {
    if (call.fault.empty()) call.fault = misuse.what;
    return refused();
  }
}
template <class View, class Given>
View taken_view(Called& call, const Given& view) {
  return taken_or(
      call, [&] { return view_of(view); },
      [&] {
        const Place nowhere{-2};
        const bool is_known = dl_dtype_size(view.dtype) != 0;
        return View(view.data, view.count, is_known ? static_cast<DType>(view.dtype) : DType{},
                    view.place < DL_HOST ? nowhere : Place{view.place - 1});
      });
}
inline TensorView taken(Called& call, const dl_view& view) {
  return taken_view<TensorView>(call, view);
}
inline ConstTensorView taken(Called& call, const dl_const_view& view) {
  return taken_view<ConstTensorView>(call, view);
}
inline Reduction taken(Called& call, const dl_reduction& given) {
  return taken_or(
      call, [&] { return reduction_of(given); }, [] { return Reduction(ReduceOp{}); });
}
inline CallOptions taken(Called&, const dl_options* options) { return options_of(options); }
inline int taken(Called&, int rank) { return rank; }
inline std::span<const std::size_t> taken(Called& call, const std::size_t* counts) {
  return counts_of(call.comm, counts);
}
/// Views of a list, as with counts.
template <class View, class Given>
std::vector<View> taken_views(Called& call, const Given* views) {
  std::vector<View> all;
  const std::size_t count = views != nullptr ? static_cast<std::size_t>(call.comm->comm.size()) : 0;
  for (const Given& view : std::span(views, count)) all.push_back(taken(call, view));
  return all;
}
inline std::vector<TensorView> taken(Called& call, const dl_view* views) {
  return taken_views<TensorView>(call, views);
}
inline std::vector<ConstTensorView> taken(Called& call, const dl_const_view* views) {
  return taken_views<ConstTensorView>(call, views);
}

/// Runs `body`; where it is refused for a fault that is known in terms of C, throws that.
template <class Body>
[[gnu::always_inline]] inline decltype(auto) in_terms_of_c(const RareText& fault, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (fault.empty() || error.errc() != Errc::misuse) throw;
    throw Misuse{fault.str()};
  }
}

/// Calls the communicator's `member` with these arguments, converted.
template <class Member, class... Given>
[[gnu::always_inline]] inline dl_status run(Called call, Member member,
                                            const Given&... given) noexcept {
  return guarded_on(
      call.comm,
      [&] {
        in_terms_of_c(call.fault, [&] { return (call.comm->comm.*member)(taken(call, given)...); });
      },
      call.name);
}
/// What `member` has started.
template <class Member, class... Given>
[[gnu::always_inline]] inline Work started_by(Called& call, Member member, const Given&... given) {
  return in_terms_of_c(call.fault,
                       [&] { return (call.comm->comm.*member)(taken(call, given)...); });
}
inline dl_work* handle_of(Work&& started, const Called& call) {
  auto made = std::make_unique<dl_work>(std::move(started));
  if (!call.fault.empty()) made->fault = call.name + (": " + call.fault.str());
  return made.release();
}
/// Like run() for a call that starts a Work, which goes to the caller's place.
template <class Member, class... Given>
[[gnu::always_inline]] inline dl_status start(Called call, dl_work** work, Member member,
                                              const Given&... given) noexcept {
  return guarded_on(
      call.comm,
      [&] {
        auto& started = place(work, "work");
        started = handle_of(started_by(call, member, given...), call);
      },
      call.name);
}

/// A copy that dl_bytes_free frees.
dl_bytes copied(BytesView bytes);
/// Text that dl_free frees.
char* copied_text(std::string_view text);

}  // namespace dlaunch::c_api
