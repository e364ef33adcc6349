#include "collectives/state.hpp"

#include "collectives/buffers.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {

using transport::Fingerprint;
using transport::Scope;

Clock::duration Communicator::State::timeout_of(const Options& options) const {
  if (options.timeout < Clock::duration::zero()) {
    throw Error(Errc::misuse, "a timeout is not negative");
  }
  return options.timeout == Clock::duration::zero() ? timeout : options.timeout;
}

void Communicator::State::throw_if_broken() const {
  if (error) throw *error;
}

void Communicator::State::find_team(Call& call) {
  team = form_team(call, *mesh, group);
  team_sought = true;
}

/// Wrong arguments fail one call, and in a collective the others' same call; anything else breaks
/// the communicator.
void Communicator::State::fail(Call& call) {
  try {
    throw;
  } catch (const Error& failure) {
    fail(call, failure);
  } catch (const std::exception& failure) {
    // Out of memory, or thrown by a custom reduction: the others must not wait for it.
    fail(call, Error(Errc::internal, call.label() + ": rank " + std::to_string(group.rank) +
                                         " failed: " + failure.what()));
  }
}

void Communicator::State::fail(Call& call, const Error& failure) {
  const bool wrong_call = failure.errc() == Errc::misuse || failure.errc() == Errc::unsupported;
  if (wrong_call) {
    if (call.fingerprint().op >= transport::Op::send) return;
    call.tell_failure(failure, Scope::this_call);
    if (call.team() != nullptr) call.team()->refuse();
    return;
  }
  const auto* known = dynamic_cast<const CallError*>(&failure);
  error.emplace(failure.errc(), failure.what(), known != nullptr ? known->blamed() : -1,
                known != nullptr && known->told());
  // With few ranks whoever failed first told all.
  if (!error->told() || group.size() > 64) call.tell_failure(failure, Scope::from_here_on);
  if (membership) membership->report(failure, error->blamed());
}

Work Communicator::State::start(std::function<void(Communicator&)> body) {
  auto work = std::make_shared<WorkState>();
  work->owner = shared_from_this();
  work->body = std::move(body);
  started.push_back(work);
  return Work(std::move(work));
}

void Communicator::State::run_started(const WorkState* last) {
  while (!started.empty()) {
    const auto work = std::move(started.front());
    started.pop_front();
    // The body is a collective too, and must not find itself in the queue it came from.
    auto rest = std::exchange(started, {});
    run_body(*work);
    started = std::move(rest);
    if (work.get() == last) return;
  }
}

void Communicator::State::run_body(WorkState& work) {
  Communicator face(shared_from_this());
  try {
    work.body(face);
  } catch (...) {
    work.error = std::current_exception();
  }
  face.state_.reset();  // It does not own the calls under way, so it must not end them.
  work.finished = true;
  work.body = nullptr;
}

std::shared_ptr<Communicator::State> Communicator::State::child(Group child_group) const {
  auto made = std::make_shared<State>();
  made->group = std::move(child_group);
  made->mesh = mesh;
  made->membership = membership;
  made->timeout = timeout;
  return made;
}

// ---- Work ----

/// A message that was never waited for is taken back; its communicator has ended.
WorkState::~WorkState() {
  if (finished || !owner) return;
  cancel(Error(Errc::aborted, "the call was given up"));
}

void WorkState::cancel(const Error& why) {
  if (finished) return;
  {
    const auto lock = owner->mesh->lock();
    if (receive && receive->pending()) owner->mesh->withdraw(*receive);
    if (outgoing && outgoing->pending()) owner->mesh->withdraw(*outgoing);
  }
  std::erase(owner->messages, this);
  body = nullptr;
  finished = true;
  error = std::make_exception_ptr(why);
}

bool WorkState::arrived() const {
  return (!receive || receive->state == transport::Receive::State::done) &&
         (!outgoing || outgoing->state == transport::Outgoing::State::done);
}

void WorkState::settle() {
  finished = true;
  if (receive && unpack_to.count > 0) unpack(packed.data(), unpack_to);
  std::erase(owner->messages, this);
}

void WorkState::wait() {
  if (!finished && body) owner->run_started(this);
  if (!finished) {
    try {
      owner->message(fingerprint, options, peer, [&](Call& call) {
        call.wait(receive ? &*receive : nullptr, outgoing ? &*outgoing : nullptr);
      });
      settle();
    } catch (const Error&) {
      const auto failure = std::current_exception();
      cancel(Error(Errc::aborted, "the call was given up"));
      error = failure;
    }
  }
  if (error) std::rethrow_exception(error);
}

bool WorkState::test() {
  if (finished) return true;
  if (body) {
    owner->run_started(this);
    return true;
  }
  const bool over = owner->error || owner->aborted;
  const auto lock = owner->mesh->lock();
  if (!arrived() && !over) owner->mesh->step(Clock::now());
  // A failure is complete too; wait() throws it.
  const bool failed = (receive && receive->state == transport::Receive::State::mismatched) ||
                      (outgoing && outgoing->state == transport::Outgoing::State::failed);
  if (arrived()) settle();
  return finished || failed || over;
}

Work::Work() noexcept = default;
Work::Work(std::shared_ptr<WorkState> state) noexcept : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    Work ended(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Work::~Work() {
  if (!state_) return;
  try {
    state_->wait();
  } catch (...) {
    // It sticks to the communicator, whose next call throws it.
  }
}

void Work::wait() {
  if (state_) state_->wait();
}
bool Work::test() { return !state_ || state_->test(); }
bool Work::done() const noexcept { return !state_ || state_->finished; }

void Work::order_before(void* /*cuda_stream*/) {
  throw Error(Errc::unsupported,
              "order_before is for CUDA buffers, and this call's are in host memory: call wait()");
}

}  // namespace dlaunch
