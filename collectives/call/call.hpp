#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/core/call_error.hpp"
#include "collectives/call/core/rooted_window.hpp"
#include "collectives/call/telling.hpp"
#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"
#include "collectives/transport/message/mesh.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

/// A message as the flight recorder takes it.
inline Flight::Call record_of(const transport::Fingerprint& message, int peer, int tag,
                              Flight::Kind kind = Flight::Kind::call) noexcept {
  Flight::Call call = message.record();
  call.what = Flight::Call::pack(static_cast<std::uint8_t>(message.op),
                                 static_cast<std::uint8_t>(message.dtype), 0, peer);
  call.sequence = 0;
  call.argument = static_cast<std::uint64_t>(tag);
  return call.as(kind);
}

/// One call on a communicator, while it lasts: what algorithms send, receive and wait by. Throws
/// CallError. It has withdrawn all it posted when it returns or throws. Making one costs next to
/// nothing: it looks at the clock when it first has to wait. It holds the mesh's lock while it
/// waits, and not between.
class Call final : public Mesh, public transport::WaitPolicy {
 public:
  using Setting = CallSetting;
  /// Both are borrowed for the call's life.
  Call(const Setting& setting, const transport::Fingerprint& fingerprint) noexcept
      : frame_{setting, nullptr, nullptr, false, fingerprint, std::nullopt} {}
  ~Call() override = default;
  Call(Setting&& temporary, const transport::Fingerprint& fingerprint) = delete;
  Call(const Setting& setting, transport::Fingerprint&& temporary) = delete;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Does work that all ranks do before they check their arguments: wrong arguments on another rank
  /// do not end it.
  template <class Prepare>
  void prepare(const Prepare& work) {
    frame_.tolerant = true;
    work();
    frame_.tolerant = false;
  }
  /// The ways in which its ranks reach each other.
  algorithms::Ranks ranks() { return {*this, frame_.shm, frame_.nodes}; }
  /// The call uses this group from here on. Borrowed for the call's life. `record` is the
  /// fingerprint's.
  void use(transport::ShmGroup& shm, const Flight::Call& record) {
    frame_.shm = &shm;
    shm.begin(*this, record);
  }
  void use(const algorithms::by_node::Nodes& nodes) {
    frame_.nodes = &nodes;
    if (nodes.shm() == nullptr) return;
    nodes.shm()->begin(*this, fingerprint().record());
  }
  /// The argument behind the fingerprint's hash; what it borrows is borrowed for the call's life.
  void explain(const Argument& argument) { frame_.argument = argument; }
  BufferPool& buffer_pool() override { return setting().kept.buffer_pool; }
  const algorithms::Table& table() const override { return setting().mesh.table(); }
  int rank() const override { return setting().group.rank; }
  int size() const override { return setting().group.size(); }
  void send(int to, BytesView data) override;
  void recv(int from, std::span<std::byte> data) override;
  void exchange(int to, BytesView out, int from, std::span<std::byte> in) override;
  Ticket start_send(int to, BytesView data) override;
  Ticket start_recv(int from, std::span<std::byte> data) override;
  void wait(Ticket ticket) override;
  void take_back(Ticket ticket) noexcept override;

  void wait_long(int member, const Ready& ready) override;
  void look_around(int member, const Ready& ready) override;
  [[noreturn]] void disagree(int member, std::uint32_t call) override;
  [[noreturn]] void disagree_with_refused(int member) override;
  [[noreturn]] void differ(int member, std::uint64_t theirs, std::uint64_t ours) override;
  bool is_over() const noexcept override { return setting().aborted; }
  bool gives_thread_back() noexcept override;

  // A message of the fingerprint's dtype and count: to be posted, or sent and received at once.
  transport::Outgoing make_message(int to, int tag, BytesView data) const;
  transport::Receive make_message_receive(int from, int tag, std::span<std::byte> into) const;
  void send_message(transport::Outgoing& outgoing);
  /// Receives a message; `receive` then describes it.
  void receive_message(transport::Receive& receive);
  /// The same for a message that was set apart; waits for its rest.
  void receive_apart(transport::Receive& receive, const transport::Inbox::Apart& message);
  /// Waits until neither is pending; either may be null.
  void wait(transport::Receive* receive, transport::Outgoing* outgoing);
  /// Waits until `ready()`, which is asked under the mesh's lock, for a message of `from` (a rank
  /// here, or any).
  void wait_until(const Ready& ready, int from);
  /// The same for a change of which nobody tells: looks again and again. `from_it_alone`: only a
  /// call of that rank on this communicator can end the wait.
  void look_until(const Ready& ready, int from, bool from_it_alone);
  /// The same for work of a device, in which all ranks take part.
  void watch_until(const Ready& ready);
  /// Throws if something has ended the call, or one before it on the device; waits only when a rank
  /// is lost, for the cause.
  void look();
  /// The same, but only if some thread has received news: costs next to nothing.
  void look_at_news();
  void tell_device_calls(CallHistory& history) { dlaunch::tell_device_calls(frame_, history); }
  /// Throws if the call is already known to have failed; does not wait.
  void check_entry() {
    if (setting().aborted || setting().mesh.control().has_failures()) [[unlikely]]
      check_known();
  }

  /// Ends this call for all ranks: checks that they have come, and made the same calls as this one.
  void confirm(const RootedWindow& window);

  const transport::Fingerprint& fingerprint() const { return frame_.fingerprint; }
  bool has_own_timeout() const noexcept { return setting().has_own_timeout; }
  // What CallContext says of it.
  std::string label() const { return frame_.context().label(); }
  std::string full_label() const { return frame_.context().full_label(); }
  std::string where() const { return frame_.context().where(); }
  /// Tells the ranks' shm group that this call's arguments are wrong, for which it may have to
  /// wait. Throws what ends the wait.
  void refuse();
  /// To be called while its exception is being handled.
  void keep_thread() noexcept {
    if (setting().lent != nullptr) setting().lent->keep();
  }
  void tell_failure(const Error& error, transport::Scope scope) {
    dlaunch::tell_failure(frame_, error, scope);
  }

 private:
  /// The parts of a call that are made when it first has to wait, which small calls seldom do.
  struct Later;
  struct DeleteLater {
    void operator()(Later* later) const noexcept;
  };

  const Setting& setting() const { return frame_.setting; }
  Later& later();
  // Under the mesh's lock.
  void wait_posted(transport::Receive* receive, transport::Outgoing* outgoing);
  Waiting in_shm_group(int member) const;
  void wait_for(const Waiting& waiting, const Ready& ready,
                Clock::duration look_interval = Clock::duration::max());
  [[noreturn]] void fail(Ending ending) const;
  Flight::Call recorded() const;
  void check_known() const;
  transport::Receive make_receive(int from, std::span<std::byte> into) const;
  transport::Outgoing make_outgoing(int to, BytesView data) const;

  CallFrame frame_;
  std::unique_ptr<Later, DeleteLater> later_;  ///< From the first wait on.
};

}  // namespace dlaunch
