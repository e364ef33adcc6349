#include "collectives/call/call.hpp"

#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/call/core/diagnose.hpp"
#include "collectives/call/wait/investigation.hpp"
#include "collectives/call/wait/news.hpp"
#include "collectives/call/wait/records.hpp"
#include "collectives/call/wait/started_messages.hpp"
#include "collectives/call/wait/waiter.hpp"
#include "collectives/transport/message/fault_point.hpp"
#include "runtime/base/pools.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Kind;
using transport::Outgoing;
using transport::Receive;

/// How often we look for changes of which nobody tells.
constexpr auto look_interval = 200us;
/// How long to spin: most calls on a device are over sooner than a thread could sleep and be woken.
constexpr auto spin_time = 100us;
/// A little more than the time in which the cause of a known loss arrives.
constexpr auto loss_grace = 2s;
/// How long to wait for another rank's sentence about its wrong arguments, which does not fit into
/// its flag line.
constexpr auto sentence_grace = 1s;

/// Takes back what is still posted, however the call ends. Under the mesh's lock.
class Posted {
 public:
  Posted(transport::Links& mesh, Receive* receive, Outgoing* outgoing)
      : mesh_(mesh), receive_(receive), outgoing_(outgoing) {
    if (receive_ != nullptr) mesh_.post(*receive_);
    if (outgoing_ != nullptr) mesh_.post(*outgoing_);
  }
  Posted(transport::Links& mesh, Receive& receive, const transport::Inbox::Apart& message)
      : mesh_(mesh), receive_(&receive), outgoing_(nullptr) {
    mesh_.post_apart(receive, message);
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;
  ~Posted() {
    if (receive_ != nullptr && receive_->pending()) mesh_.withdraw(*receive_);
    if (outgoing_ != nullptr && outgoing_->state != Outgoing::State::done) {
      mesh_.withdraw(*outgoing_);
    }
  }

 private:
  transport::Links& mesh_;
  Receive* receive_;
  Outgoing* outgoing_;
};

/// While it lives, the shm group's members ring this rank's bell when they publish. Under the
/// mesh's lock.
class Sleeper {
 public:
  Sleeper(transport::ShmGroup& shm, transport::Links& mesh) : shm_(shm), mesh_(mesh) {
    shm_.count_sleeper(true);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    mesh_.get_up();
    shm_.count_sleeper(false);
  }

 private:
  transport::ShmGroup& shm_;
  transport::Links& mesh_;
};

constexpr Waiting for_nothing;

/// The mesh's answer to inquiries, as long as this call waits.
class Busy {
 public:
  explicit Busy(const CallFrame& frame, const Waiting& waiting = for_nothing)
      : mesh_(frame.setting.mesh), answer_([&frame, &waiting] {
          return transport::UnderWay{frame.context().doing(waiting.whom()), frame.argument_text()};
        }) {
    mesh_.control().begin(answer_);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { mesh_.control().end(answer_); }

 private:
  transport::Links& mesh_;
  transport::Activity answer_;
};

}  // namespace

struct Call::Later {
  std::optional<Waiter> waiter;
  StartedMessages started;

  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;
};

void* Call::Later::operator new(std::size_t) {
  return PooledMemory<sizeof(Later), alignof(Later)>::take();
}
void Call::Later::operator delete(void* memory) noexcept {
  PooledMemory<sizeof(Later), alignof(Later)>::give_back(memory);
}

void Call::DeleteLater::operator()(Later* later) const noexcept { delete later; }

Call::Later& Call::later() {
  if (!later_) later_.reset(new Later);
  return *later_;
}

Flight::Call Call::recorded() const {
  if (!frame_.is_message()) return fingerprint().record();
  return record_of(fingerprint(), setting().peer, setting().tag);
}

// ---- The face for algorithms. ----

Receive Call::make_receive(int from, std::span<std::byte> into) const {
  Receive receive;
  receive.communicator = setting().group.id;
  receive.from = setting().group.world_rank(from);
  receive.expected = fingerprint();
  receive.into = into;
  return receive;
}

Outgoing Call::make_outgoing(int to, BytesView data) const {
  Outgoing outgoing;
  outgoing.to = setting().group.world_rank(to);
  outgoing.header = make_header(Kind::collective, setting().group.id, fingerprint(), data.size());
  outgoing.payload = data;
  return outgoing;
}

void Call::send(int to, BytesView data) {
  transport::at_step();
  Outgoing outgoing = make_outgoing(to, data);
  const auto lock = setting().mesh.lock();
  if (setting().mesh.send_now(outgoing)) return;
  const Posted posted(setting().mesh, nullptr, &outgoing);
  wait_posted(nullptr, &outgoing);
}

void Call::recv(int from, std::span<std::byte> data) {
  transport::at_step();
  Receive receive = make_receive(from, data);
  const auto lock = setting().mesh.lock();
  if (setting().mesh.receive_now(receive, setting().lent == nullptr)) return;
  const Posted posted(setting().mesh, &receive, nullptr);
  wait_posted(&receive, nullptr);
}

void Call::exchange(int to, BytesView out, int from, std::span<std::byte> in) {
  transport::at_step();
  Outgoing outgoing = make_outgoing(to, out);
  Receive receive = make_receive(from, in);
  const auto lock = setting().mesh.lock();
  const bool sent = setting().mesh.send_now(outgoing);
  const Posted sending(setting().mesh, nullptr, sent ? nullptr : &outgoing);
  const bool is_out = sent || outgoing.state == Outgoing::State::done;
  if (is_out && setting().mesh.receive_now(receive, setting().lent == nullptr)) return;
  const Posted receiving(setting().mesh, &receive, nullptr);
  wait_posted(&receive, is_out ? nullptr : &outgoing);
}

Call::Ticket Call::start_send(int to, BytesView data) {
  transport::at_step();
  const auto lock = setting().mesh.lock();
  return later().started.start(setting().mesh, make_outgoing(to, data));
}

Call::Ticket Call::start_recv(int from, std::span<std::byte> data) {
  transport::at_step();
  const auto lock = setting().mesh.lock();
  return later().started.start(setting().mesh, make_receive(from, data));
}

void Call::wait(Ticket ticket) {
  transport::at_step();
  auto& message = later().started.at(ticket);
  wait(message.receive ? &*message.receive : nullptr,
       message.outgoing ? &*message.outgoing : nullptr);
  later().started.end(ticket);
}

void Call::take_back(Ticket ticket) noexcept {
  const auto lock = setting().mesh.lock();
  later_->started.take_back(setting().mesh, ticket);
}

// ---- Messages. ----

Outgoing Call::make_message(int to, int tag, BytesView data) const {
  Outgoing outgoing;
  outgoing.to = setting().group.world_rank(to);
  outgoing.header = make_header(Kind::message, setting().group.id, fingerprint(), data.size(), tag);
  outgoing.payload = data;
  return outgoing;
}

Receive Call::make_message_receive(int from, int tag, std::span<std::byte> into) const {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = setting().group.id;
  receive.from = from == any_source ? any_source : setting().group.world_rank(from);
  receive.sources = setting().group.world_ranks;
  receive.tag = tag;
  receive.expected = fingerprint();
  receive.into = into;
  return receive;
}

void Call::send_message(Outgoing& outgoing) {
  transport::at_step();
  const auto lock = setting().mesh.lock();
  const Posted posted(setting().mesh, nullptr, &outgoing);
  wait_posted(nullptr, &outgoing);
}

void Call::receive_message(Receive& receive) {
  transport::at_step();
  const auto lock = setting().mesh.lock();
  const Posted posted(setting().mesh, &receive, nullptr);
  wait_posted(&receive, nullptr);
}

void Call::receive_apart(Receive& receive, const transport::Inbox::Apart& message) {
  const auto lock = setting().mesh.lock();
  const Posted posted(setting().mesh, receive, message);
  wait_posted(&receive, nullptr);
}

// ---- Waiting. ----

void Call::wait(Receive* receive, Outgoing* outgoing) {
  const auto lock = setting().mesh.lock();
  wait_posted(receive, outgoing);
}

void Call::wait_posted(Receive* receive, Outgoing* outgoing) {
  wait_for({.receive = receive, .outgoing = outgoing}, [&] {
    return (receive == nullptr || receive->state == Receive::State::done) &&
           (outgoing == nullptr || outgoing->state == Outgoing::State::done);
  });
}

void Call::wait_until(const Ready& ready, int from) {
  const auto lock = setting().mesh.lock();
  Waiting waiting;
  if (from == any_source) {
    waiting.ranks = setting().group.world_ranks;
  } else {
    waiting.rank = setting().group.world_rank(from);
  }
  wait_for(waiting, ready);
}

void Call::look_until(const Ready& ready, int from, bool from_it_alone) {
  const auto lock = setting().mesh.lock();
  wait_for({.rank = setting().group.world_rank(from), .in_memory = from_it_alone}, ready,
           look_interval);
}

void Call::watch_until(const Ready& ready) {
  const auto spin_until = Clock::now() + spin_time;
  do {
    if (ready()) return;
    std::this_thread::yield();  // A thread of NCCL's does what is waited for.
  } while (Clock::now() < spin_until && !is_over());
  const auto lock = setting().mesh.lock();
  wait_for({.all = true}, ready, look_interval);
}

bool Call::gives_thread_back() noexcept {
  if (setting().aborted || !frame_.is_thread_wanted()) return false;
  setting().lent->give_back();
  return true;
}

void Call::wait_long(int member, const Ready& ready) {
  transport::ShmGroup& shm = *frame_.shm_here();
  const auto lock = setting().mesh.lock();
  // A thread that is wanted back does not sleep here.
  const bool may_sleep = !frame_.is_thread_wanted();
  std::optional<Sleeper> sleeper;
  if (may_sleep) sleeper.emplace(shm, setting().mesh);
  const auto lies_down = [&] {
    // The sleep is announced before the last look, so that a rank that publishes after it sees that
    // we sleep.
    if (may_sleep) shm.lie_down();
    return ready();
  };
  wait_for(in_shm_group(member), std::cref(lies_down));
}

void Call::look_around(int member, const Ready& ready) {
  const auto lock = setting().mesh.lock();
  bool has_looked = false;  // It is asked before the look, and after it.
  wait_for(in_shm_group(member), [&] { return std::exchange(has_looked, true) || ready(); }, {});
}

Waiting Call::in_shm_group(int member) const {
  return {.rank = frame_.world_rank_of(member), .in_shm_group = true, .has_spun = true};
}

/// Waits; others may ask this rank what it does until it has given up.
void Call::wait_for(const Waiting& waiting, const Ready& ready, Clock::duration interval) {
  if (ready()) return;
  const transport::Caller caller(setting().mesh.progress_lock());
  const Busy busy(frame_, waiting);
  const auto whom = waiting.to_receive().empty() ? waiting.to_send() : waiting.to_receive();
  const Flight::Waiting seen(setting().flight, recorded(),
                             waiting.any() || whom.empty() ? -1 : whom.front());
  auto& waiter = later().waiter;
  if (!waiter) waiter.emplace(frame_);
  auto ending = waiter->wait(waiting, ready, interval);
  if (ending) ending = Investigation(frame_).complete(std::move(*ending), ready);
  if (ending) throw diagnose({frame_.context(), std::move(*ending)});
}

void Call::fail(Ending ending) const {
  throw diagnose({frame_.context(), Investigation(frame_).complete(std::move(ending))});
}

// ---- What ends it without a wait. ----

void Call::check_known() const {
  const auto lock = setting().mesh.lock();
  if (auto told = find_told(frame_)) fail(std::move(*told));
}

void Call::look() {
  const auto lock = setting().mesh.lock();
  setting().mesh.step(Clock::now());
  if (auto news = find_news(frame_, nullptr)) fail(std::move(*news));
  const auto& losses = setting().mesh.losses();
  const bool has_lost = std::any_of(losses.begin(), losses.end(), [this](const PeerLoss& loss) {
    return frame_.is_lost_here(loss);
  });
  if (!has_lost) return;
  const auto until = Clock::now() + loss_grace;
  wait_for({.all = true}, [&] { return Clock::now() >= until; });
}

void Call::look_at_news() {
  const auto& news = setting().mesh.control();
  if (is_over() || news.has_failures() || news.has_calls()) look();
}

void Call::disagree(int member, std::uint32_t call) {
  const auto lock = setting().mesh.lock();
  const Busy busy(frame_);
  // A member that had wrong arguments has said so before it went on.
  setting().mesh.step(Clock::now());
  Ending ending = Investigation(frame_).complete(
      ending::CallDiffers{frame_.world_rank_of(member), call_of(frame_, member, call)});
  const auto* wrong = setting().mesh.control().wrong_arguments(setting().group.id);
  auto* const differs = std::get_if<ending::CallDiffers>(&ending);
  if (differs != nullptr && wrong != nullptr) differs->wrong = *wrong;
  throw diagnose({frame_.context(), std::move(ending)});
}

/// The member itself says what was wrong.
void Call::disagree_with_refused(int member) {
  const auto lock = setting().mesh.lock();
  const Busy busy(frame_);
  for (const auto until = Clock::now() + sentence_grace; Clock::now() < until;) {
    if (auto news = find_news(frame_, nullptr)) fail(std::move(*news));
    setting().mesh.step(until);
  }
  fail(ending::Refused{frame_.world_rank_of(member)});
}

void Call::differ(int member, std::uint64_t theirs, std::uint64_t ours) {
  const auto lock = setting().mesh.lock();
  const Busy busy(frame_);
  ending::CallDiffers differs{frame_.world_rank_of(member), fingerprint()};
  differs.sizes = {theirs, ours};
  fail(std::move(differs));
}

/// Takes the step for a call with wrong arguments, even if other ranks were wrong in it, too. Ranks
/// that go by nodes may have had no step to take; one that has taken it hears of the wrong
/// arguments while it waits for this rank's step, or finds this rank's next call there.
void Call::refuse() {
  if (frame_.shm == nullptr) return;
  frame_.tolerant = true;
  frame_.shm->refuse();
}

void Call::confirm(const RootedWindow& window) {
  algorithms::tell_by_dissemination(*this, window.bytes(), [&](int from, BytesView theirs) {
    const auto differ = window.find_difference(theirs);
    if (!differ) return;
    const auto lock = setting().mesh.lock();
    const Busy busy(frame_);
    fail(ending::WindowDiffers{setting().group.world_rank(from), *differ});
  });
}

}  // namespace dlaunch
