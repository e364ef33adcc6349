#pragma once

#include "collectives/call/collective_call.hpp"
#include "collectives/communicator/started_queue.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_state.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace dlaunch {

/// A started collective.
class Communicator::State::CollectiveWork final : public WorkState, public StartedQueue::Item {
 public:
  CollectiveWork(State& owner, std::shared_ptr<StartedQueue> queue)
      : owner_(owner), queue_(std::move(queue)) {}

  /// Borrows the buffers until it is finished. Not while it is under way.
  void set(const CollectiveCall& what) {
    renew();
    call_.emplace(what);
  }

  void wait() override;
  bool wait_until(Clock::time_point until) override { return queue_->finish_by(*this, until); }
  bool test() override { return queue_->look(*this); }
  bool is_done() noexcept override { return is_finished(); }
  void on_complete(Work::Completion completion) override {
    queue_->on_finish(*this, std::move(completion));
  }
  void order_before(void* cuda_stream) override;

 private:
  void run() override;
  bool may_change_threads() const noexcept override;
  bool is_short() const noexcept override;

  State& owner_;  ///< Not used once it is finished.
  const std::shared_ptr<StartedQueue> queue_;
  std::optional<WaitingCall> call_;
};

}  // namespace dlaunch
