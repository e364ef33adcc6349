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

/// All it takes to use NCCL on a device. It lives as long as the process.
struct Uses {
  const NcclApi& nccl;
  const Devices& devices;
  CuContext context;
  Reaper& reaper;
};

/// The place where NCCL puts a communicator that it makes of another one: in the background, when
/// it is done or has failed. So the other one keeps it until nothing is written any more. A
/// communicator that nobody has taken then is aborted.
class Slot {
 public:
  explicit Slot(const Uses& uses) : uses_(uses) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot();

  NcclComm* target() { return &made_; }
  /// Nothing is written any more, and something was made.
  void close() { closed_ = true; }
  bool is_closed() const { return closed_; }
  NcclComm take();

 private:
  const Uses uses_;
  NcclComm made_ = nullptr;
  std::atomic<bool> closed_{false};
};

/// An ncclComm. NCCL lets one thread at a time use it, and no thread while it is ended: so who
/// wants it to end does not wait for who is inside, who does it when he leaves. For any number of
/// threads.
class CommHandle : public std::enable_shared_from_this<CommHandle> {
 public:
  explicit CommHandle(const Uses& uses) : uses_(uses) {}
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  /// The one thread that is inside NCCL with it, or nobody.
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
  /// Waits for who is inside; nobody's where there is no communicator, or it was ended.
  Inside enter();
  /// The same of one that may have been revoked; nobody's, too, where that is still going on.
  Inside enter_revoked();
  /// The same without waiting. `is_gone`: it was aborted.
  Inside try_enter(bool& is_gone);

  void put(NcclComm comm);
  /// For who is inside: where NCCL writes to from now on. Kept until close_slot(). False where
  /// there is such a one already.
  bool keep(const std::shared_ptr<Slot>& slot);
  /// NCCL has done what it was asked for.
  void close_slot();

  /// There is one, and it was not aborted.
  bool is_there();
  /// From now on nobody enters but by enter_revoked().
  void revoke();
  /// The same, and `work` is done with it by another thread, which is inside meanwhile. False where
  /// there is nothing to do it with.
  bool revoke_by(std::function<NcclResult(NcclComm)> work);
  /// The result of that; nccl_success if there was none.
  NcclResult revoked_with() const { return revoked_with_; }
  /// It is aborted, soon; nobody waits for that.
  void abort();
  /// `in_order`: nothing is under way, and what other ranks have still to get of this one is sent
  /// before; else, or where that takes long, it is aborted. True if it is over within that time.
  bool end(bool in_order, std::chrono::steady_clock::duration limit);

 private:
  void leave();
  /// With the mutex held; what is returned is to be called without it.
  std::function<void()> take_out(bool in_order);
  void hand_over(std::function<void()> work);

  const Uses uses_;
  std::mutex mutex_;  ///< Never held inside NCCL or CUDA.
  std::condition_variable changed_;
  NcclComm comm_ = nullptr;  ///< Null once it was handed over.
  std::shared_ptr<Slot> slot_;
  bool had_one_ = false;
  bool inside_ = false;
  bool revoked_ = false;
  bool aborted_ = false;
  bool in_order_ = false;
  std::atomic<NcclResult> revoked_with_{nccl_success};
  std::shared_ptr<Reaper::Task> ending_;
};

}  // namespace dlaunch::nccl
