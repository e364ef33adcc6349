#include "packaging/python-torch/extension/group.hpp"

#include "packaging/python-torch/extension/errors.hpp"
#include "packaging/python-torch/extension/finisher.hpp"
#include "packaging/python-torch/extension/meeting.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace dlaunch::torch_backend {
namespace {

// A thread that waits has the communicator for a slice, and others may start calls between two.
constexpr Clock::duration slice_first = std::chrono::milliseconds(1);
constexpr Clock::duration slice_max = std::chrono::milliseconds(4);

}  // namespace

Group::Group(std::shared_ptr<const World> world, Communicator communicator)
    : world_(std::move(world)), communicator_(std::move(communicator)) {}

Group::~Group() { close(); }

void Group::check_process() const {
  if (!is_forked()) return;
  refuse("this process was forked from process " + std::to_string(process_) +
         ", which is a rank, and has no rank of its own; fork before init_process_group, or start "
         "programs by subprocess");
}

Communicator& Group::open() {
  if (!communicator_) fail("this process group was shut down");
  return *communicator_;
}

void Group::start(const std::shared_ptr<Started>& started, const Begin& begin) {
  check_process();
  Dropped dropped;  // Until the turn is over.
  const std::lock_guard turn(turns_);
  let_go_of_complete(dropped);
  begin(open(), started->works);
  if (started->look()) return;
  if (started->kind == Started::Kind::collective) {
    collectives_.push_back(started);
  } else {
    messages_.push_back(started);
  }
}

bool Group::wait(Started& started, Clock::time_point until) {
  if (!started.is_complete()) check_process();
  for (Clock::duration slice = slice_first; !started.is_complete();
       slice = std::min(slice * 2, slice_max)) {
    const auto left = until == Clock::time_point::max() ? slice : until - Clock::now();
    Dropped dropped;  // Until the turn is over.
    const std::lock_guard turn(turns_);
    if (started.advance(std::min(slice, left))) break;
    // Threads that only ask find no turn to look in, as this one has nearly all.
    let_go_of_complete(dropped);
    if (left <= Clock::duration::zero()) return false;
  }
  return true;
}

bool Group::test(Started& started) {
  if (started.is_complete()) return true;
  if (is_forked() || !turns_.try_lock()) return false;
  const std::lock_guard turn(turns_, std::adopt_lock);
  return started.advance(Clock::duration::zero());
}

bool Group::cancel(Started& started) {
  const std::lock_guard turn(turns_);
  if (started.kind != Started::Kind::receive || started.look()) return false;
  bool all = true;
  for (Work& work : started.works) all = work.cancel() && all;
  return all;
}

void Group::when_complete(const std::shared_ptr<Started>& started, std::function<void()> then) {
  if (started->kind != Started::Kind::collective) {
    run_beside([self = shared_from_this(), started, then = std::move(then)] {
      self->wait(*started, Clock::time_point::max());
      then();
    });
    return;
  }
  const std::lock_guard turn(turns_);
  if (started->look()) {
    run_beside(std::move(then));
    return;
  }
  started->on_complete([then = std::move(then)]() mutable { run_beside(std::move(then)); });
}

void Group::abort(const CallSite& place) {
  if (is_forked()) return;
  const std::lock_guard lock(abort_mutex_);
  if (communicator_) communicator_->abort(place);
}

void Group::close() {
  if (is_forked()) return;  // What it has is its parent's.
  Dropped dropped;
  std::optional<Communicator> ended;
  {
    const std::lock_guard turn(turns_);
    for (const auto& started : collectives_) started->finish();
    for (const auto& started : messages_) {
      if (started->kind == Started::Kind::send) started->finish();
    }
    dropped.assign(collectives_.begin(), collectives_.end());
    dropped.insert(dropped.end(), messages_.begin(), messages_.end());
    collectives_.clear();
    messages_.clear();
    const std::lock_guard lock(abort_mutex_);
    ended.swap(communicator_);
  }
  ended.reset();  // What is still under way is complete then, and dropping it waits for nobody.
  world_.reset();
}

void Group::abandon() {
  if (is_forked() || !world_ || world_->rank() != 0 || is_job(world_)) return;
  if (!turns_.try_lock()) return;
  const std::lock_guard turn(turns_, std::adopt_lock);
  const std::lock_guard lock(abort_mutex_);
  communicator_.reset();
  world_.reset();
}

void Group::let_go_of_complete(Dropped& dropped) {
  while (!collectives_.empty() && collectives_.front()->look()) {
    dropped.push_back(std::move(collectives_.front()));
    collectives_.pop_front();
  }
  const auto left = std::partition(messages_.begin(), messages_.end(),
                                   [](const auto& started) { return !started->look(); });
  dropped.insert(dropped.end(), left, messages_.end());
  messages_.erase(left, messages_.end());
}

}  // namespace dlaunch::torch_backend
