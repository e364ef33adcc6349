#pragma once

#include "collectives/nccl/device.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/reaper.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace dlaunch::nccl {

/// The interfaces for using NCCL on a device. They live as long as the process.
struct Uses {
  const NcclApi& nccl;
  const Devices& devices;
  CuContext context;
  Reaper& reaper;
};

/// The place where NCCL writes a communicator that it makes of another one; it does so in the
/// background, when it is done or has failed. So the other communicator keeps the place until
/// nothing more is written. A communicator that nobody has taken by then is aborted.
class Slot {
 public:
  explicit Slot(const Uses& uses) : uses_(uses) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot();

  NcclComm* target() { return &made_; }
  /// Whether nothing more is written, and a communicator was made.
  void close() { closed_ = true; }
  bool is_closed() const { return closed_; }
  NcclComm take();

 private:
  const Uses uses_;
  NcclComm made_ = nullptr;
  std::atomic<bool> closed_{false};
};

/// An ncclComm. NCCL lets one thread at a time use it, and none while it is being ended. So a
/// thread that wants to end it does not wait for the thread inside NCCL, which ends it when it
/// leaves. One that blocks may hold that thread for ever: NCCL lets another one revoke it
/// meanwhile. For any number of threads.
class CommHandle : public std::enable_shared_from_this<CommHandle> {
 public:
  explicit CommHandle(const Uses& uses, bool blocks = false) : uses_(uses), blocks_(blocks) {}
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  /// The right of one thread to be inside NCCL with it; may be empty.
  class Inside {
   public:
    Inside() = default;
    Inside(CommHandle* handle, NcclComm comm) : handle_(handle), comm_(comm) {}
    Inside(Inside&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), comm_(other.comm_) {}
    Inside& operator=(Inside&&) = delete;
    ~Inside() { leave(); }
    void leave() {
      if (CommHandle* const handle = std::exchange(handle_, nullptr)) handle->leave();
    }
    explicit operator bool() const { return handle_ != nullptr; }
    NcclComm comm() const { return comm_; }

   private:
    CommHandle* handle_ = nullptr;
    NcclComm comm_ = nullptr;
  };
  /// Waits for the thread inside; empty if there is no communicator, or it was ended.
  Inside enter();
  /// The same for one that may have been revoked; empty also while the revoke is under way.
  Inside enter_revoked();
  /// The same without waiting. `is_gone`: it was aborted.
  Inside try_enter(bool& is_gone);

  void put(NcclComm comm);
  /// For the thread inside: keeps the place to which NCCL writes from now on, until close_slot().
  /// False if there is such a place already.
  bool keep(const std::shared_ptr<Slot>& slot);
  /// NCCL is done with the slot.
  void close_slot();

  /// Whether there is a communicator that was not aborted.
  bool is_there();
  /// From now on only enter_revoked() succeeds.
  void revoke();
  /// The same, and another thread, which is inside meanwhile, does `work` with the communicator. If
  /// that blocks, a caller may still be inside, too. False if there is no communicator.
  bool revoke_by(std::function<NcclResult(NcclComm)> work);
  /// The result of that work; nccl_success if there was none.
  NcclResult revoked_with() const { return revoked_with_; }
  /// Aborts the communicator soon, without waiting.
  void abort();
  /// Ends it. `in_order`: nothing is under way, and data for other ranks is sent first. Otherwise,
  /// or if that takes long, it is aborted. True if it is over within that time.
  bool end(bool in_order, std::chrono::steady_clock::duration limit);

 private:
  void leave();
  /// To be called with the mutex held; the returned function is to be called without it.
  std::function<void()> take_out(bool in_order);
  void hand_over(std::function<void()> work);

  const Uses uses_;
  const bool blocks_;
  std::mutex mutex_;  ///< Never held inside NCCL or CUDA.
  std::condition_variable changed_;
  NcclComm comm_ = nullptr;  ///< Null once it was handed over.
  std::shared_ptr<Slot> slot_;
  bool had_one_ = false;
  int inside_ = 0;  ///< Number of threads; two where one revokes it.
  bool revoked_ = false;
  bool aborted_ = false;
  bool in_order_ = false;
  std::atomic<NcclResult> revoked_with_{nccl_success};
  std::shared_ptr<Reaper::Task> ending_;
};

}  // namespace dlaunch::nccl
