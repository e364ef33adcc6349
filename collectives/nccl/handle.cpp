#include "collectives/nccl/handle.hpp"

#include <thread>
#include <utility>

namespace dlaunch::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How long NCCL may go on sending to other ranks before it is cut off. The program does not wait
/// for it.
constexpr auto finish_limit = 30s;
constexpr auto finish_interval = 1ms;
/// How long to wait for the thread inside NCCL. Most calls take microseconds, but those after a
/// failure may not.
constexpr auto busy_limit = 1s;

/// Lets NCCL send its remaining data and destroy the communicator; whether it did.
bool finish(const NcclApi& nccl, NcclComm comm) {
  NcclResult result = nccl.comm_finalize(comm);
  for (const auto until = Clock::now() + finish_limit;
       result == nccl_in_progress && Clock::now() < until;) {
    std::this_thread::sleep_for(finish_interval);
    if (nccl.get_async_error(comm, &result) != nccl_success) return false;
  }
  return result == nccl_success && nccl.comm_destroy(comm) == nccl_success;
}

/// Ends a communicator. NCCL may report an earlier failure, but nobody is left to be told.
void end_comm(const Uses& uses, NcclComm comm, bool in_order) {
  const Current current(uses.devices.cuda, uses.context);
  if (in_order && finish(uses.nccl, comm)) return;
  static_cast<void>(uses.nccl.comm_abort(comm));
}

}  // namespace

Slot::~Slot() {
  if (NcclComm const left = take(); left != nullptr) {
    uses_.reaper.run([uses = uses_, left] { end_comm(uses, left, false); });
  }
}

NcclComm Slot::take() { return std::exchange(made_, nullptr); }

CommHandle::Inside CommHandle::enter() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return inside_ == 0 || revoked_; });
  if (comm_ == nullptr || revoked_) return {};
  ++inside_;
  return {this, comm_};
}

CommHandle::Inside CommHandle::enter_revoked() {
  std::unique_lock lock(mutex_);
  const bool is_free =
      changed_.wait_for(lock, busy_limit, [this] { return inside_ == 0 || aborted_; });
  if (!is_free || comm_ == nullptr || aborted_) return {};
  ++inside_;
  return {this, comm_};
}

CommHandle::Inside CommHandle::try_enter(bool& is_gone) {
  const std::lock_guard lock(mutex_);
  is_gone = comm_ == nullptr || aborted_;
  if (is_gone || inside_ > 0) return {};
  ++inside_;
  return {this, comm_};
}

void CommHandle::leave() {
  std::function<void()> work;
  {
    const std::lock_guard lock(mutex_);
    --inside_;
    changed_.notify_all();
    if (aborted_ && inside_ == 0) work = take_out(in_order_);
  }
  if (work) hand_over(std::move(work));
}

void CommHandle::put(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  comm_ = comm;
  had_one_ = comm != nullptr;
}

bool CommHandle::keep(const std::shared_ptr<Slot>& slot) {
  const std::lock_guard lock(mutex_);
  if (slot_) return false;
  slot_ = slot;
  return true;
}

void CommHandle::close_slot() {
  std::shared_ptr<Slot> slot;
  const std::lock_guard lock(mutex_);
  slot.swap(slot_);
  if (slot) slot->close();
}

bool CommHandle::is_there() {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr && !aborted_;
}

void CommHandle::revoke() {
  const std::lock_guard lock(mutex_);
  revoked_ = true;
  changed_.notify_all();
}

/// A group that is being made of this one is given up with it.
bool CommHandle::revoke_by(std::function<NcclResult(NcclComm)> work) {
  NcclComm comm = nullptr;
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    revoked_ = true;
    changed_.notify_all();
    const auto may_enter = [this] { return inside_ == 0 || blocks_; };
    if (!changed_.wait_for(lock, busy_limit, may_enter)) return false;
    if (comm_ == nullptr || aborted_) return false;
    ++inside_;
    comm = comm_;
    slot.swap(slot_);
  }
  uses_.reaper.run([self = shared_from_this(), work = std::move(work), comm, slot] {
    {
      const Current current(self->uses_.devices.cuda, self->uses_.context);
      self->revoked_with_ = work(comm);
    }
    self->leave();
  });
  return true;
}

/// Takes the communicator out. Memory to which NCCL may write is kept until the communicator is
/// gone.
std::function<void()> CommHandle::take_out(bool in_order) {
  NcclComm const comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return nullptr;
  return [uses = uses_, comm, in_order, slot = std::exchange(slot_, nullptr)] {
    end_comm(uses, comm, in_order && !slot);
  };
}

void CommHandle::hand_over(std::function<void()> work) {
  auto ending = uses_.reaper.run(std::move(work));
  const std::lock_guard lock(mutex_);
  ending_ = std::move(ending);
  changed_.notify_all();
}

void CommHandle::abort() { end(false, {}); }

bool CommHandle::end(bool in_order, Clock::duration limit) {
  const auto until = Clock::now() + limit;
  std::function<void()> work;
  {
    const std::lock_guard lock(mutex_);
    in_order_ = in_order && (in_order_ || !aborted_);
    revoked_ = aborted_ = true;
    changed_.notify_all();
    if (!had_one_) return true;
    if (inside_ == 0) work = take_out(in_order_);
  }
  if (work) hand_over(std::move(work));
  if (limit <= Clock::duration::zero()) return false;
  std::unique_lock lock(mutex_);
  // The thread inside NCCL has to leave first.
  if (!changed_.wait_until(lock, until, [this] { return ending_ != nullptr; })) return false;
  const auto ending = ending_;
  lock.unlock();
  return ending->wait_for(until - Clock::now());
}

}  // namespace dlaunch::nccl
