#pragma once

#include <dlaunch/error.hpp>
#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// The seam between communicators and libdlaunch_nccl.so, the library that moves data on devices: a
/// program that has no CUDA buffer never loads it. Nothing here throws across the seam, and no
/// function of one library is needed in the other. Streams are cudaStream_t as they come in
/// Options::cuda_stream; null is the legacy default stream.
namespace dlaunch::device {

/// The progress of an operation, and if it failed, the reason: a clause that follows "all_reduce
/// #3: ".
struct Answer {
  enum class Now { done, pending, failed };

  Now now = Now::done;
  Errc code{};
  std::string why;

  static Answer pending() { return {Now::pending, {}, {}}; }
  static Answer failed(Errc code, std::string why) { return {Now::failed, code, std::move(why)}; }
  bool is_done() const { return now == Now::done; }
  bool has_failed() const { return now == Now::failed; }
};

/// The id by which the ranks of a group find each other; made by one of them.
using Id = std::array<std::byte, 128>;

enum class Move : std::uint8_t {
  all_reduce,
  reduce,          ///< `peer` is the root.
  broadcast,       ///< The same.
  all_gather,      ///< `count` elements of each rank.
  reduce_scatter,  ///< `count` elements for each rank.
  send,
  recv,
  copy,  ///< On this device alone.
};

struct Step {
  Move move{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int peer = -1;
  DType dtype = DType::u8;  ///< The message's dtype, whatever type it is moved as.

  bool operator==(const Step&) const = default;
};

/// One rank's part in a call: its copies, then all other steps at once.
struct Plan {
  DType dtype = DType::u8;  ///< u8: bytes, where nothing is reduced.
  ReduceOp reduce{};
  double factor = 1;  ///< The factor of premul_sum.
  std::vector<Step> steps;
};

/// A mark on a stream. For one thread at a time.
class Event {
 public:
  virtual ~Event() = default;
  /// Done once everything before it on the stream is done. Not to be asked while the stream is
  /// captured.
  virtual Answer query() = 0;
  /// Work that is put on `stream` from now on comes after the mark.
  virtual Answer order_before(void* stream) = 0;
};

/// Behind a call that was put on a stream.
struct Mark {
  std::shared_ptr<Event> event;
  /// An event to be used again, if nobody else holds it and no graph will.
  std::shared_ptr<Event> spare;
  bool captured = false;  ///< The event must never be queried, since a graph has the call.
};

/// One rank's place among the ranks of a communicator. For any number of threads.
class Group {
 public:
  /// As abort().
  virtual ~Group() = default;
  /// Pending while the group joins or splits, or the last call is not yet on its stream; meanwhile
  /// the group may only be aborted.
  virtual Answer progress() = 0;
  /// An error in the background, as far as is known: a failure, or done. Does not wait, and calls
  /// nothing of CUDA.
  virtual Answer check() = 0;
  /// Puts a call on the stream, and a mark behind it. If it is pending, the call is there once
  /// progress() is done, and the mark has to be made then.
  virtual Answer enqueue(const Plan& plan, void* stream, Mark& mark) = 0;
  virtual Answer make_mark(void* stream, Mark& mark) = 0;
  /// Called by all ranks; ranks of one colour make a group, in the order of `key`; -1: no group.
  /// The new group is pending as long as this one.
  virtual Answer split(int color, int key, std::unique_ptr<Group>& made) = 0;
  /// Ends calls under way, soon, and does not wait. From then on everything fails.
  virtual void abort() noexcept = 0;
  /// Ends the group. `in_order`: nothing is under way, and other ranks still get this rank's data;
  /// else as abort(). True if the library has destroyed it within that time. Otherwise the rest,
  /// such as a graph that still has its calls, is waited for in the background.
  virtual bool end(bool in_order, std::chrono::steady_clock::duration limit) noexcept = 0;

  /// Whether shrink() and revoke() can be called: the library has them, and the group was not
  /// aborted.
  virtual bool can_shrink() = 0;
  virtual bool can_revoke() = 0;
  /// Called by all ranks that are not gone, where at least one is: they make a group, in their
  /// order. Pending as with split(). `is_quiet`: nothing is under way here; otherwise calls under
  /// way are ended.
  virtual Answer shrink(std::span<const int> gone, bool is_quiet, std::unique_ptr<Group>& made) = 0;
  /// Ends calls under way, as far as progress() shows; then only split() and shrink() can be
  /// called.
  virtual Answer revoke() = 0;

  /// Registers memory, so that its data is moved without copies; null if that is not possible,
  /// which is no failure. Concerns this rank alone.
  virtual void* add_memory(void* memory, std::size_t bytes) noexcept = 0;
  /// Undoes that, before the memory is freed and when no call uses it.
  virtual void remove_memory(void* handle) noexcept = 0;
};

/// For any number of threads.
class Library {
 public:
  virtual ~Library() = default;
  /// "NCCL 2.27.3 (/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3)".
  virtual std::string name() const = 0;
  virtual int version() const = 0;
  /// Whether there is such a device, and it can be used.
  virtual Answer check(int device) = 0;
  virtual Answer make_id(Id& id) = 0;
  virtual Answer join(const Id& id, int device, int rank, int size,
                      std::unique_ptr<Group>& made) = 0;
  virtual Answer is_capturing(int device, void* stream, bool& capturing) = 0;
  virtual Answer allocate(int device, std::size_t bytes, void*& memory) = 0;
  virtual void free(int device, void* memory) noexcept = 0;

  // A stream for work on a device besides calls.
  virtual Answer count_devices(int& count) = 0;
  /// It and the default stream do not wait for each other.
  virtual Answer make_stream(int device, void*& stream) = 0;
  virtual void free_stream(int device, void* stream) noexcept = 0;
  /// Waits until everything on it is done.
  virtual Answer synchronize(int device, void* stream) = 0;
  virtual Answer make_mark(int device, void* stream, std::unique_ptr<Event>& made) = 0;
  /// On the stream, within a device's memory.
  virtual Answer copy(int device, const void* from, void* to, std::size_t bytes, void* stream) = 0;
  virtual Answer clear(int device, void* memory, std::size_t bytes, void* stream) = 0;
  /// Between a device's memory and the host's; is done when it returns.
  virtual Answer copy_across(int device, const void* from, void* to, std::size_t bytes) = 0;
};

/// The function that libdlaunch_nccl.so exports as dlaunch_device_library. Gives its one Library,
/// which lives as long as the process; or null, and why. `version` is the caller's DLAUNCH_VERSION.
using Entry = Library*(const char* version, std::string* why);

}  // namespace dlaunch::device
