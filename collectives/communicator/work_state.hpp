#pragma once

#include "collectives/communicator/started_queue.hpp"
#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/send_queue.hpp"
#include "runtime/base/os/home_process.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace dlaunch {

/// A started call. For the thread that uses its communicator.
struct WorkState {
  WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;
  virtual ~WorkState() = default;

  virtual void wait() = 0;
  /// True when complete, false if it is not by then.
  virtual bool wait_until(Clock::time_point until) = 0;
  virtual bool test() = 0;
  /// Takes no lock that it would have to wait for.
  virtual bool is_done() noexcept = 0;
  virtual void on_complete(Work::Completion completion) = 0;
  virtual void order_before(void* cuda_stream) = 0;
  /// In a forked child the threads that would complete it are not there.
  bool is_ours() const noexcept { return home_.is_here(); }

 private:
  const HomeProcess home_;
};

class CollectiveWork final : public WorkState {
 public:
  CollectiveWork(std::shared_ptr<StartedQueue> queue, std::shared_ptr<StartedQueue::Item> item)
      : queue_(std::move(queue)), item_(std::move(item)) {}

  void wait() override;
  bool wait_until(Clock::time_point until) override { return queue_->finish_by(*item_, until); }
  bool test() override { return is_done(); }
  bool is_done() noexcept override { return item_->is_finished(); }
  void on_complete(Work::Completion completion) override {
    queue_->on_finish(*item_, std::move(completion));
  }
  void order_before(void* cuda_stream) override;

 private:
  std::shared_ptr<StartedQueue> queue_;
  std::shared_ptr<StartedQueue::Item> item_;
};

/// One message, of which either `receive` or `outgoing` was posted; the communicator lists it until
/// it is finished.
class MessageWork final : public WorkState {
 public:
  MessageWork(const transport::Fingerprint& call, const MessageOptions& options, int peer)
      : fingerprint_(call), options_(options), peer_(peer) {}
  /// A message that was never waited for is taken back; its communicator has ended.
  ~MessageWork() override;

  /// Posts it. The rest of what it needs is set before.
  void begin(std::shared_ptr<Communicator::State> owner);
  void cancel(std::exception_ptr why) noexcept;

  void wait() override;
  bool wait_until(Clock::time_point until) override;
  bool test() override;
  bool is_done() noexcept override;
  void on_complete(Work::Completion completion) override;
  void order_before(void* cuda_stream) override;

  std::optional<transport::Receive> receive;
  std::optional<transport::Outgoing> outgoing;
  std::vector<std::byte> packed;  ///< Strided data on its way.
  TensorView unpack_to;

 private:
  // Under the mesh's lock.
  bool has_arrived() const;
  bool cannot_arrive() const;
  void unlist() noexcept;

  void settle() noexcept;

  transport::Fingerprint fingerprint_;
  MessageOptions options_;
  int peer_;
  std::shared_ptr<Communicator::State> owner_;  ///< Null before it began and once it is finished.
  std::exception_ptr error_;
};

}  // namespace dlaunch
