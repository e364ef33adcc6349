#pragma once

#include "collectives/call/call.hpp"
#include "collectives/call/core/device_history.hpp"
#include "collectives/device/library.hpp"

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

namespace dlaunch {

/// The calls of one communicator that go to its device. For the thread that uses the communicator,
/// except where it says otherwise. A thread of its own looks after them: nobody else may be in a
/// call while they run.
class DeviceCalls {
 public:
  /// All ranks are in `call`, and bring the device library up together. Throws what ends the call.
  DeviceCalls(Call& call, device::Library& library, int device);
  /// Uses a group that exists already.
  DeviceCalls(device::Library& library, int device, std::unique_ptr<device::Group> group);
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;
  ~DeviceCalls() { end(false); }

  int device() const { return device_; }
  CallHistory& history() { return history_; }
  /// From now on another thread calls `look` again and again, until it returns false or calls
  /// give_up().
  void watch(std::function<bool()> look);
  /// Puts a call on the stream. It waits only for NCCL itself, which connects ranks in their first
  /// calls, and for room on the stream. Where this thread is in NCCL for long, the other one waits
  /// on its behalf, and gets it out of there when the call has to end.
  device::Mark enqueue(Call& call, const device::Plan& plan, void* stream);
  /// Waits until the device has done everything before a mark, or something has failed.
  device::Answer wait(Call& call, device::Event& mark);
  /// Throws an error that has occurred in the background; `call` is the last one on the device.
  void check(Call& call);
  /// The group of those ranks that give this colour; null for -1. Waits until the calls before it
  /// are done, as NCCL wants it.
  std::unique_ptr<device::Group> split(Call& call, int color, int key);
  /// Whether shrink() may succeed.
  bool can_shrink() noexcept;
  /// The group of all ranks except those in `gone`; null if NCCL cannot make it of this one. `call`
  /// is one among the remaining ranks. Waits for the work under way if nobody is gone, else ends
  /// it.
  std::unique_ptr<device::Group> shrink(Call& call, std::span<const int> gone);
  /// A byte on the device, for barriers to sum. Throws if there is no room for it.
  void* byte();
  device::Library& library() { return library_; }
  device::Group& group() { return *group_; }
  /// Whether nothing is under way, as far as is known without waiting.
  bool is_quiet() noexcept;

  /// Ends the device's work, soon. From any thread.
  void give_up() noexcept;
  /// The same at once; then the thread is gone. `in_order`: nothing is under way, and nothing
  /// failed. Waits no longer than a few seconds.
  void end(bool in_order) noexcept;

 private:
  /// The call whose thread is inside the library.
  class Entered;

  void run(const std::stop_token& stop);
  void wait_for_entered(Call& call);
  bool revoke(const std::stop_token& stop);
  void end_work(const std::stop_token& stop);

  device::Library& library_;
  const int device_;
  std::unique_ptr<device::Group> group_;
  CallHistory history_;
  void* byte_ = nullptr;
  std::shared_ptr<device::Event> last_;  ///< The mark behind the last call that was not captured.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Call* entered_ = nullptr;        ///< The call whose thread is inside the library.
  bool has_been_seen_ = false;     ///< It was inside at the last look, too.
  bool is_waited_for_ = false;     ///< The other thread uses that call.
  std::exception_ptr ended_by_{};  ///< Why that call has to end.
  bool given_up_ = false;
  bool ended_ = false;     ///< The work under way was ended, after give_up().
  bool is_taken_ = false;  ///< By shrink().
  std::function<bool()> look_;
  std::jthread thread_;
};

/// Throws if it is a failure. If a rank died, the error has the membership's word, which is waited
/// for, in place of NCCL's.
void throw_if_failed(Call& call, const device::Answer& answer);

}  // namespace dlaunch
