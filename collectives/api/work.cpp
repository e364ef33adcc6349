#include "collectives/api/buffers.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_state.hpp"
#include "runtime/base/deadline.hpp"

#include <dlaunch/work.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace dlaunch {

using transport::Outgoing;
using transport::Receive;

namespace {

/// So often several calls are looked at, each of which may tell another thread of its end, or none.
constexpr auto look_interval = std::chrono::microseconds(200);

std::vector<Work*> pointers_to(std::span<Work> works) {
  std::vector<Work*> pointers;
  for (Work& work : works) pointers.push_back(&work);
  return pointers;
}

[[noreturn]] void throw_forked() {
  throw Error(Errc::misuse, "a forked child cannot wait for a call that its parent started");
}

[[noreturn]] void throw_host_buffers() {
  throw Error(Errc::unsupported,
              "order_before is for CUDA buffers, and this call's are in host memory: call wait()");
}

}  // namespace

// ---- Collectives. ----

void CollectiveWork::order_before(void* /*cuda_stream*/) { throw_host_buffers(); }
void MessageWork::order_before(void* /*cuda_stream*/) { throw_host_buffers(); }

void CollectiveWork::wait() {
  queue_->finish(*item_);
  if (item_->error()) std::rethrow_exception(item_->error());
}

// ---- Messages. ----

MessageWork::~MessageWork() {
  if (owner_) cancel(std::make_exception_ptr(Error(Errc::aborted, "the call was given up")));
}

void MessageWork::begin(std::shared_ptr<Communicator::State> owner) {
  owner_ = std::move(owner);
  owner_->messages.push_back(this);
  const auto lock = owner_->mesh->lock();
  if (receive) {
    owner_->mesh->post(*receive);
    owner_->progress_thread->add(*receive);
  } else {
    owner_->mesh->post(*outgoing);
    owner_->progress_thread->add(*outgoing);
  }
}

void MessageWork::cancel(std::exception_ptr why) noexcept {
  {
    const auto lock = owner_->mesh->lock();
    unlist();
    if (receive && receive->pending()) owner_->mesh->withdraw(*receive);
    if (outgoing && outgoing->pending()) owner_->mesh->withdraw(*outgoing);
  }
  error_ = std::move(why);
  std::erase(owner_->messages, this);
  owner_.reset();
}

bool MessageWork::has_arrived() const {
  return receive ? receive->state == Receive::State::done
                 : outgoing->state == Outgoing::State::done;
}

/// wait() would not wait, but throw; or nearly so, since it gives what is on its way some time.
bool MessageWork::cannot_arrive() const {
  const transport::Links& mesh = *owner_->mesh;
  if (owner_->error.is_set() || owner_->aborted || owner_->progress_thread->has_failed())
    return true;
  if (mesh.control().failure_of(owner_->group.id) != nullptr) return true;
  if (outgoing) {
    return outgoing->state == Outgoing::State::failed || mesh.loss_of(outgoing->to) != nullptr;
  }
  if (receive->state == Receive::State::mismatched) return true;
  if (receive->from != any_source) {
    return receive->from != mesh.rank() && mesh.is_gone(receive->from);
  }
  return receive->sources.size() > 1 &&
         std::all_of(receive->sources.begin(), receive->sources.end(),
                     [&](int rank) { return rank == mesh.rank() || mesh.is_gone(rank); });
}

/// After it has arrived.
void MessageWork::settle() noexcept {
  if (receive && unpack_to.count > 0) unpack(packed.data(), unpack_to);
  std::erase(owner_->messages, this);
  owner_.reset();
}

/// The progress thread, which moves messages, forgets this one.
void MessageWork::unlist() noexcept {
  if (receive) {
    owner_->progress_thread->remove(*receive);
  } else {
    owner_->progress_thread->remove(*outgoing);
  }
}

bool MessageWork::is_done() noexcept {
  if (!owner_) return true;
  {
    const auto lock = owner_->mesh->try_lock();
    if (!lock) return false;
    if (!has_arrived()) return cannot_arrive();
    unlist();
  }
  settle();
  return true;
}

bool MessageWork::test() {
  if (!owner_) return true;
  {
    const auto lock = owner_->mesh->lock();
    // A failure is complete too; wait() throws it.
    if (!has_arrived() && !cannot_arrive()) owner_->mesh->step(Clock::now());
    if (!has_arrived()) return cannot_arrive();
    unlist();
  }
  settle();
  return true;
}

bool MessageWork::wait_until(Clock::time_point until) {
  // So late it is seen that another thread's call has failed.
  constexpr auto look_interval = std::chrono::milliseconds(50);
  if (!owner_) return true;
  if (!owner_->watch([this] { return has_arrived() || cannot_arrive(); }, until, look_interval)) {
    return false;
  }
  {
    const auto lock = owner_->mesh->lock();
    if (!has_arrived()) return true;  // wait() says why.
    unlist();
  }
  settle();
  return true;
}

void MessageWork::on_complete(Work::Completion /*completion*/) {
  throw Error(Errc::unsupported,
              "on_complete is for collectives, and this is a message: look at it with test() or "
              "wait_any(), or wait for it");
}

void MessageWork::wait() {
  if (owner_) {
    try {
      owner_->message(fingerprint_, options_, peer_, Flight::Kind::wait, [&](Call& call) {
        call.wait(receive ? &*receive : nullptr, outgoing ? &*outgoing : nullptr);
      });
      const auto lock = owner_->mesh->lock();
      unlist();
    } catch (...) {
      cancel(std::current_exception());
    }
  }
  if (owner_) settle();
  if (error_) std::rethrow_exception(error_);
}

// ---- The face. ----

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
  if (!state_->is_ours()) {
    // Left as it is: the parent's threads hold its locks.
    static_cast<void>(new std::shared_ptr(std::move(state_)));
    return;
  }
  try {
    state_->wait();
  } catch (...) {
    // It sticks to the communicator, whose next call throws it.
  }
}

void Work::wait() {
  if (!state_) return;
  if (!state_->is_ours()) throw_forked();
  state_->wait();
}

bool Work::test() {
  if (!state_) return true;
  if (!state_->is_ours()) throw_forked();
  return state_->test();
}

bool Work::wait_for(Clock::duration limit) {
  if (!state_) return true;
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

void Work::on_complete(Completion completion) {
  if (!completion) throw Error(Errc::misuse, "on_complete was given no function");
  if (state_ == nullptr) return completion(nullptr);
  if (!state_->is_ours()) throw_forked();
  state_->on_complete(std::move(completion));
}

bool Work::done() const noexcept { return !state_ || state_->is_done(); }

void Work::order_before(void* cuda_stream) {
  if (!state_) throw_host_buffers();
  if (!state_->is_ours()) throw_forked();
  state_->order_before(cuda_stream);
}

// ---- Several of them. ----

std::optional<std::size_t> wait_any(std::span<Work* const> works, Clock::duration limit) {
  const auto until = deadline_after(limit);
  const auto is_call = [](const Work* work) { return work != nullptr && !work->is_empty(); };
  // The one that is waited for takes its turn, so that the messages of all communicators move.
  for (std::size_t turn = 0;; ++turn) {
    std::size_t calls = 0;
    for (std::size_t i = 0; i < works.size(); ++i) {
      if (!is_call(works[i])) continue;
      if (works[i]->test()) return i;
      ++calls;
    }
    const auto now = Clock::now();
    if (calls == 0 || now >= until) return std::nullopt;
    std::size_t left = turn % calls;
    const auto next = std::find_if(works.begin(), works.end(),
                                   [&](const Work* work) { return is_call(work) && left-- == 0; });
    static_cast<void>((*next)->wait_for(std::min<Clock::duration>(look_interval, until - now)));
  }
}

std::optional<std::size_t> wait_any(std::span<Work> works, Clock::duration limit) {
  return wait_any(pointers_to(works), limit);
}

void wait_all(std::span<Work* const> works) {
  std::exception_ptr first;
  for (Work* work : works) {
    if (work == nullptr) continue;
    try {
      work->wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void wait_all(std::span<Work> works) { wait_all(pointers_to(works)); }

}  // namespace dlaunch
