#include "collectives/api/buffers.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/communicator/collective_work.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_state.hpp"
#include "runtime/base/deadline.hpp"

#include <dlaunch/work.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <sched.h>

namespace dlaunch {

using transport::Fingerprint;
using transport::Outgoing;
using transport::Receive;

namespace {

/// How late the failure of another thread's call is seen.
constexpr auto failure_interval = std::chrono::milliseconds(50);

[[noreturn]] void throw_forked() {
  throw Error(Errc::misuse, "a forked child cannot wait for a call that its parent started");
}

[[noreturn]] void throw_host_buffers() {
  throw Error(Errc::unsupported,
              "order_before is for CUDA buffers, and this call's are in host memory: wait for it");
}

[[noreturn]] void throw_no_receive() {
  throw Error(Errc::unsupported,
              "cancel is for started receives and probes, and this is neither: a send or a "
              "collective ends when its other ranks come, or the communicator is aborted");
}

[[noreturn]] void throw_message() {
  throw Error(Errc::unsupported,
              "on_complete is for collectives, and this is a message: test it, wait for one of "
              "several, or wait for it");
}

}  // namespace

bool WorkState::cancel() { throw_no_receive(); }

// ---- Collectives. ----

void Communicator::State::CollectiveWork::order_before(void* /*cuda_stream*/) {
  throw_host_buffers();
}
void MessageWork::order_before(void* /*cuda_stream*/) { throw_host_buffers(); }

void Communicator::State::CollectiveWork::wait() {
  queue_->finish(*this);
  if (error()) std::rethrow_exception(error());
}

// ---- Messages. ----

Work complete_message() {
  // Never destroyed, since Works may still exist at the program's end.
  static CompleteMessage* const complete = new CompleteMessage;
  return Work(std::shared_ptr<WorkState>(std::shared_ptr<WorkState>(), complete));
}

void CompleteMessage::on_complete(Work::Completion /*completion*/) { throw_message(); }
void CompleteMessage::order_before(void* /*cuda_stream*/) { throw_host_buffers(); }

MessageWork::~MessageWork() {
  if (owner_ != nullptr) {
    give_up(std::make_exception_ptr(Error(Errc::aborted, "the call was given up")));
  }
}

std::span<std::byte> MessageWork::pack_for(const TensorView& unpack_to, std::size_t bytes) {
  strided_ = std::make_unique<Strided>(Strided{std::vector<std::byte>(bytes), unpack_to});
  return strided_->packed;
}

Fingerprint MessageWork::fingerprint() const {
  const auto* receive = std::get_if<Receive>(&message_);
  return receive != nullptr ? receive->expected
                            : fingerprint_of(std::get<Outgoing>(message_).header);
}

const char* MessageWork::name() const {
  const auto* receive = std::get_if<Receive>(&message_);
  return receive != nullptr ? name_of_receive(receive->up_to)
                            : name_of_send(std::get<Outgoing>(message_).is_synchronous);
}

bool MessageWork::is_pending() const {
  if (const auto* receive = std::get_if<Receive>(&message_)) return receive->pending();
  return std::get<Outgoing>(message_).pending();
}

bool MessageWork::has_arrived() const {
  if (const auto* receive = std::get_if<Receive>(&message_)) {
    return receive->state == Receive::State::done;
  }
  return std::get<Outgoing>(message_).state == Outgoing::State::done;
}

bool MessageWork::begin_plainly(Communicator::State& owner) {
  Receive& receive = *receiving();
  if (!owner.progress_thread->is_awake() || !owner.mesh->post_now(receive)) return false;
  owner.progress_thread->attend();
  owner_ = &owner;
  owner.messages.push_back(*this);
  if (receive.state == Receive::State::answering) owner.mesh->tell_senders();
  if (receive.state == Receive::State::done) {
    settle();
    owner.mesh->tell_program();
  }
  return true;
}

Work Communicator::State::start_plain_receive(const TensorView& data, int from,
                                              const MessageOptions& options, bool up_to) {
  Receive plain;
  describe(plain, data, from, options, up_to);
  if (mesh->may_be_there(plain)) {
    // Made first: a message that was taken is not lost for want of memory.
    auto complete = std::allocate_shared<CompleteReceive>(Pooled<CompleteReceive>());
    if (mesh->receive_at_once(plain)) {
      complete->what = received_by(plain, from);
      mesh->tell_program();
      return Work(std::move(complete));
    }
  }
  auto work = MessageWork::make(options, from);
  describe(work->receive(), data, from, options, up_to);
  return work->begin_plainly(*this) ? Work(std::move(work)) : Work();
}

void MessageWork::begin(Communicator::State& owner) {
  owner_ = &owner;
  owner.messages.push_back(*this);
  {
    const auto lock = owner.mesh->lock();
    if (Receive* const receive = receiving()) {
      owner.mesh->post(*receive);
    } else {
      owner.mesh->post(*sending());
    }
    if (is_pending() || owner.mesh->is_telling()) owner.progress_thread->attend();
  }
  if (!has_arrived()) return;
  owner.mesh->tell_program();
  settle();
}

void MessageWork::give_up(std::exception_ptr why) noexcept {
  if (!has_arrived()) {
    const auto lock = owner_->mesh->lock();
    if (Receive* const receive = receiving()) {
      if (receive->pending()) owner_->mesh->withdraw(*receive);
    } else if (sending()->state != Outgoing::State::done) {
      owner_->mesh->withdraw(*sending());
    }
  }
  error_ = std::move(why);
  leave();
}

void MessageWork::end(std::exception_ptr why) noexcept {
  if (has_arrived()) return settle();
  give_up(std::move(why));
}

bool MessageWork::cancel() {
  Receive* const receive = receiving();
  if (receive == nullptr) throw_no_receive();
  if (owner_ == nullptr) return false;
  {
    const auto lock = owner_->mesh->lock();
    if (receive->state != Receive::State::waiting) return false;
    owner_->mesh->withdraw(*receive);
  }
  const CallContext call{
      owner_->group, receive->expected, options_.timeout, options_.site, peer_, options_.tag,
      name()};
  error_ =
      std::make_exception_ptr(Error(Errc::aborted, call.label() + " was cancelled" + call.where()));
  leave();
  return true;
}

std::optional<Received> MessageWork::received() noexcept {
  const Receive* const receive = receiving();
  if (receive == nullptr || !is_done()) return std::nullopt;
  const Receive::State state = receive->state;
  const bool has_met = state == Receive::State::done || state == Receive::State::too_long;
  if (!has_met) return std::nullopt;
  const auto& header = receive->header;
  const int source = owner_ != nullptr ? owner_->group.rank_of(receive->source) : peer_;
  return Received{source, header.tag, header.dtype, header.count};
}

/// Whether wait() would throw without waiting, or almost: it gives a message on its way some time.
bool MessageWork::cannot_arrive() {
  is_hopeless_ = is_hopeless_ || cannot_arrive_now();
  return is_hopeless_;
}

bool MessageWork::cannot_arrive_now() const {
  const transport::Links& mesh = *owner_->mesh;
  if (owner_->error.is_set() || owner_->aborted || owner_->progress_thread->has_failed())
    return true;
  if (mesh.control().has_failures() && mesh.control().failure_of(owner_->group.id) != nullptr) {
    return true;
  }
  if (const auto* const outgoing = std::get_if<Outgoing>(&message_)) {
    const Outgoing::State state = outgoing->state;
    return state == Outgoing::State::failed || mesh.loss_of(outgoing->to) != nullptr ||
           (state == Outgoing::State::sent && mesh.is_gone(outgoing->to));
  }
  const auto& receive = std::get<Receive>(message_);
  const Receive::State state = receive.state;
  if (state == Receive::State::mismatched || state == Receive::State::too_long) return true;
  if (receive.from != any_source) {
    return receive.from != mesh.rank() && mesh.is_gone(receive.from);
  }
  return receive.sources.size() > 1 &&
         std::all_of(receive.sources.begin(), receive.sources.end(),
                     [&](int rank) { return rank == mesh.rank() || mesh.is_gone(rank); });
}

/// To be called after the message has arrived.
void MessageWork::settle() noexcept {
  if (strided_ && strided_->unpack_to.count > 0) {
    strided_->unpack_to.count = receiving()->header.count;
    unpack(strided_->packed.data(), strided_->unpack_to);
  }
  if (owner_ != nullptr) leave();
  note_settled();
}

void MessageWork::leave() noexcept {
  const Receive* const receive = peer_ == any_source ? receiving() : nullptr;
  if (receive != nullptr && receive->source != any_source) {
    peer_ = owner_->group.rank_of(receive->source);
  }
  owner_->messages.remove(*this);
  owner_ = nullptr;
}

bool MessageWork::is_done() noexcept {
  if (owner_ == nullptr) return true;
  if (!has_arrived()) {
    if (is_hopeless_) return true;
    const auto lock = owner_->mesh->try_lock();
    if (!lock) return false;
    if (!has_arrived()) return cannot_arrive();
  }
  settle();
  return true;
}

bool MessageWork::test() {
  if (owner_ == nullptr) return true;
  if (!has_arrived() && !look()) return false;
  // A failed call is complete, too; wait() throws.
  if (has_arrived()) settle();
  return true;
}

/// What it waits for, a posted receive, may lie behind messages that nobody has received yet; so
/// may the word that a synchronous message was taken.
void MessageWork::look_past() {
  const Outgoing* const outgoing = sending();
  const bool is_answered = outgoing != nullptr && outgoing->awaits_word();
  owner_->mesh->inbox().look_past(is_answered ? std::span(&outgoing->to, 1)
                                              : std::span<const int>());
}

/// Whether wait() would not wait now.
bool MessageWork::look() {
  transport::Links& mesh = *owner_->mesh;
  {
    const auto lock = mesh.lock();
    if (!has_arrived() && !cannot_arrive()) {
      look_past();
      mesh.look();
    }
    if (has_arrived() || cannot_arrive()) return true;
  }
  // The awaited rank may need this processor.
  if (mesh.is_crowded()) ::sched_yield();
  return false;
}

bool MessageWork::wait_until(Clock::time_point until) {
  if (owner_ == nullptr) return true;
  const auto ends = [this] {
    look_past();
    return has_arrived() || cannot_arrive();
  };
  if (!has_arrived() && !owner_->watch(ends, until, failure_interval)) return false;
  if (has_arrived()) settle();
  return true;  // If it has not arrived wait() says why.
}

const transport::Links* MessageWork::mesh() const noexcept {
  return owner_ != nullptr ? owner_->mesh.get() : nullptr;
}

void MessageWork::wait_beside(std::span<Work* const> works, Clock::time_point until) {
  const auto has_ended = [this](Work* work) {
    WorkState* const state = work != nullptr ? of(*work) : nullptr;
    MessageWork* const beside = state != nullptr ? state->message() : nullptr;
    if (beside == nullptr || beside->mesh() != mesh()) return false;
    if (beside != this && beside->sending() != nullptr) beside->look_past();
    return beside->has_arrived() || beside->cannot_arrive();
  };
  const auto ends = [&] {
    look_past();  // For all posted receives.
    return std::any_of(works.begin(), works.end(), has_ended);
  };
  const bool ended = owner_->watch(ends, until, failure_interval);
  // A rank that looks again and again may keep the awaited one from its processor.
  if (!ended && owner_->mesh->is_crowded()) ::sched_yield();
}

void MessageWork::on_complete(Work::Completion /*completion*/) { throw_message(); }

/// Spins for a moment first: most messages come sooner than a full wait, which can explain delays,
/// would have begun.
bool MessageWork::arrives_soon() {
  if (owner_->error.is_set() || owner_->aborted) return false;
  transport::Links& mesh = *owner_->mesh;
  const auto lock = mesh.lock();
  const Receive* const receive = receiving();
  mesh.look_awhile(receive != nullptr ? receive->from : sending()->to,
                   [this] { return !is_pending(); });
  return has_arrived();
}

BytesView MessageWork::borrowed() {
  const Receive* const receive = receiving();
  return receive != nullptr ? BytesView(receive->into) : sending()->payload;
}

void MessageWork::wait() {
  const bool was_freed = owner_ != nullptr && is_poisoned(borrowed().data(), borrowed().size());
  if (owner_ != nullptr && (was_freed || (!has_arrived() && !arrives_soon()))) {
    try {
      const Fingerprint call = fingerprint();
      owner_->message(call, options_, peer_, Flight::Kind::wait, name(), [&](Call& waiting) {
        require(waiting, !was_freed, [] {
          return std::string(
              "its memory was freed before it was complete: AddressSanitizer says so");
        });
        waiting.wait(receiving(), sending());
      });
    } catch (...) {
      give_up(std::current_exception());
    }
  }
  if (owner_ != nullptr) settle();
  if (error_) std::rethrow_exception(error_);
}

// ---- The face. ----

/// Waits for the call, as the destructor says, and takes back a receive that an exception leaves
/// behind: the message may never come, and the exception has to be seen. The Work is not empty.
void Work::finish() noexcept {
  if (state_->is_settled()) return;
  if (!state_->is_ours()) {
    // In a forked child the state is left alone: the parent's threads hold its locks.
    static_cast<void>(new std::shared_ptr(std::move(state_)));
    return;
  }
  try {
    MessageWork* const message = state_->message();
    if (std::uncaught_exceptions() > 0 && message != nullptr && message->is_receive()) {
      message->cancel();
    }
    state_->wait();
  } catch (...) {
    // The error sticks to the communicator, whose next call throws it.
  }
}

void Work::wait() {
  if (!state_ || state_->is_settled()) return;
  if (!state_->is_ours()) throw_forked();
  state_->wait();
}

bool Work::test() {
  if (!state_ || state_->is_settled()) return true;
  if (!state_->is_ours()) throw_forked();
  return state_->test();
}

bool Work::wait_for(Clock::duration limit) {
  if (!state_ || state_->is_settled()) return true;
  if (!state_->is_ours()) throw_forked();
  return state_->wait_until(deadline_after(limit));
}

std::exception_ptr Work::error() {
  if (!test()) return nullptr;
  try {
    wait();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::optional<Received> Work::received() const {
  if (!state_) return std::nullopt;
  if (!state_->is_settled() && !state_->is_ours()) throw_forked();
  return state_->received();
}

bool Work::cancel() {
  if (!state_) return false;
  if (!state_->is_ours()) throw_forked();
  return state_->cancel();
}

void Work::on_complete(Completion completion) {
  if (!completion) throw Error(Errc::misuse, "on_complete was given no function");
  if (state_ == nullptr) return completion(nullptr);
  if (!state_->is_ours()) throw_forked();
  state_->on_complete(std::move(completion));
}

bool Work::done() const noexcept { return !state_ || state_->is_settled() || state_->is_done(); }

void Work::order_before(void* cuda_stream) {
  if (!state_) throw_host_buffers();
  if (!state_->is_ours()) throw_forked();
  state_->order_before(cuda_stream);
}

}  // namespace dlaunch
