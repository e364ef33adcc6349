#pragma once

#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/send_queue.hpp"
#include "runtime/base/intrusive_list.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/base/pools.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch {

namespace transport {
class Links;
}
class MessageWork;

/// A started call. For the thread that uses its communicator.
struct WorkState {
  /// Null for an empty one.
  static WorkState* of(const Work& work) noexcept { return work.state_.get(); }

  WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;
  virtual ~WorkState() = default;

  virtual void wait() = 0;
  /// True when complete, false if it is not by then.
  virtual bool wait_until(Clock::time_point until) = 0;
  virtual bool test() = 0;
  /// Takes no lock for which it would have to wait.
  virtual bool is_done() noexcept = 0;
  virtual void on_complete(Work::Completion completion) = 0;
  virtual void order_before(void* cuda_stream) = 0;
  // By default, for calls that are no receives: nothing was received, and nothing can be cancelled.
  virtual std::optional<Received> received() noexcept { return std::nullopt; }
  virtual bool cancel();
  /// Null for calls that are no messages.
  virtual MessageWork* message() noexcept { return nullptr; }
  /// In a forked child the threads that would complete it are not there.
  bool is_ours() const noexcept { return home_.is_here(); }
  /// Whether it is known to be complete, without an error.
  bool is_settled() const noexcept { return is_settled_; }

 protected:
  void note_settled() noexcept { is_settled_ = true; }

 private:
  const HomeProcess home_;
  bool is_settled_ = false;
};

/// A message that was complete when it was started.
class CompleteMessage : public WorkState {
 public:
  CompleteMessage() { note_settled(); }
  void wait() override {}
  bool wait_until(Clock::time_point /*until*/) override { return true; }
  bool test() override { return true; }
  bool is_done() noexcept override { return true; }
  void on_complete(Work::Completion completion) override;
  void order_before(void* cuda_stream) override;
};

/// A receive whose message was there when it was started.
class CompleteReceive final : public CompleteMessage {
 public:
  std::optional<Received> received() noexcept override { return what; }
  bool cancel() override { return false; }

  Received what;
};

/// One message, to be sent or received. From its beginning until it is finished its communicator
/// lists it.
class MessageWork final : public WorkState {
 public:
  /// Copies the options field by field (see make_header), but the stream, which no message in host
  /// memory has.
  MessageWork(const MessageOptions& options, int peer)
      : options_{.timeout = options.timeout,
                 .tag = options.tag,
                 .site = {options.site.file, options.site.line, options.site.function}},
        peer_(peer) {}
  /// The communicator has ended: a message that was never waited for is taken back.
  ~MessageWork() override;
  static std::shared_ptr<MessageWork> make(const MessageOptions& options, int peer) {
    return std::allocate_shared<MessageWork>(Pooled<MessageWork>(), options, peer);
  }

  // One of these gives it what it needs, before it begins.
  transport::Outgoing& send() { return message_.emplace<transport::Outgoing>(); }
  transport::Receive& receive() { return message_.emplace<transport::Receive>(); }
  /// Memory for strided data while the message is on its way.
  std::span<std::byte> pack_for(const TensorView& unpack_to, std::size_t bytes);

  /// The short form of begin() for a receive that surely cannot fail; otherwise false, and nothing
  /// is done. Under the mesh's lock.
  bool begin_plainly(Communicator::State& owner);
  /// Posts it.
  void begin(Communicator::State& owner);
  /// Takes it back where it is not complete: wait() throws this from then on.
  void give_up(std::exception_ptr why) noexcept;
  /// The communicator ends: the same, unless the message has arrived.
  void end(std::exception_ptr why) noexcept;

  void wait() override;
  bool wait_until(Clock::time_point until) override;
  bool test() override;
  bool is_done() noexcept override;
  void on_complete(Work::Completion completion) override;
  void order_before(void* cuda_stream) override;
  std::optional<Received> received() noexcept override;
  bool cancel() override;
  MessageWork* message() noexcept override { return this; }
  /// The mesh that moves it; null once it is finished.
  const transport::Links* mesh() const noexcept;
  /// Waits until one of this mesh's messages among `works` has ended, or until then; moves once at
  /// least. It may return earlier. This one has not ended.
  void wait_beside(std::span<Work* const> works, Clock::time_point until);

  /// A part of a message to send has left, and not all of it. Under the mesh's lock.
  bool has_begun_to_leave() const {
    const auto* outgoing = std::get_if<transport::Outgoing>(&message_);
    return outgoing != nullptr && outgoing->sent > 0 &&
           outgoing->state == transport::Outgoing::State::waiting;
  }

  ListPlace<MessageWork> place;  ///< Among its communicator's.
  bool is_receive() const { return std::holds_alternative<transport::Receive>(message_); }

 private:
  struct Strided {
    std::vector<std::byte> packed;
    TensorView unpack_to;
  };

  transport::Receive* receiving() { return std::get_if<transport::Receive>(&message_); }
  transport::Outgoing* sending() { return std::get_if<transport::Outgoing>(&message_); }
  transport::Fingerprint fingerprint() const;
  const char* name() const;
  BytesView borrowed();
  bool is_pending() const;
  bool has_arrived() const;
  /// Under the mesh's lock.
  bool cannot_arrive();
  bool cannot_arrive_now() const;
  void look_past();
  bool look();
  bool arrives_soon();
  void settle() noexcept;
  void leave() noexcept;

  MessageOptions options_;
  int peer_;  ///< A rank there; once a receive is complete, its source.
  std::variant<std::monostate, transport::Receive, transport::Outgoing> message_;
  std::unique_ptr<Strided> strided_;
  Communicator::State* owner_ = nullptr;  ///< Null before it began and once it is finished.
  std::exception_ptr error_;
  bool is_hopeless_ = false;  ///< It was found that it cannot arrive, which stays so.
};

/// A message that was complete when it was started, and has nothing to report: one object for all.
Work complete_message();

}  // namespace dlaunch
