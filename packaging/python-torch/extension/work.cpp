#include "packaging/python-torch/extension/work.hpp"

#include "packaging/python-torch/extension/call_site.hpp"
#include "packaging/python-torch/extension/errors.hpp"
#include "packaging/python-torch/extension/finisher.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::torch_backend {

using std::chrono::milliseconds;

StartedWork::StartedWork(int rank, What what, std::shared_ptr<Group> group,
                         std::shared_ptr<Started> started)
    : c10d::Work(rank, what.type, what.profiled, what.in),
      what_(std::move(what)),
      group_(std::move(group)),
      started_(std::move(started)) {}

void StartedWork::begin_watch() {
  // The profiler, say, wants to know when a call has ended, also one that nobody waits for.
  if (recordFunctionEndCallback_ || what_.ended) when_complete([] {});
}

bool StartedWork::isCompleted() {
  if (!group_->test(*started_)) return false;
  note_end();
  return true;
}

bool StartedWork::isSuccess() const { return started_->is_complete() && !started_->error(); }

std::exception_ptr StartedWork::exception() const {
  return started_->is_complete() ? started_->error() : nullptr;
}

int StartedWork::sourceRank() const {
  if (what_.type != c10d::OpType::RECVANYSOURCE || !started_->is_complete()) {
    return c10d::Work::sourceRank();
  }
  return started_->source();
}

bool StartedWork::wait(milliseconds timeout) {
  const bool is_limited = timeout > kNoTimeout;
  // A collective ends by itself when its time is over; a message's time is that of its waits.
  const bool is_message = started_->kind != Started::Kind::collective;
  const milliseconds limit = is_limited ? timeout : what_.timeout;
  const auto until = is_limited || is_message ? Clock::now() + limit : Clock::time_point::max();
  if (!group_->wait(*started_, until)) throw_late(limit, group_->cancel(*started_));
  note_end();
  if (const auto error = started_->error()) std::rethrow_exception(error);
  return true;
}

void StartedWork::abort() { group_->abort(place_of_program()); }

void StartedWork::throw_late(milliseconds limit, bool is_over) const {
  fail(what_.name + " #" + std::to_string(what_.sequence) + " on rank " + std::to_string(rank_) +
       ": timed out, it was not complete within " + std::to_string(limit.count()) + " ms" +
       (is_over ? "; no message came" : "; it goes on"));
}

c10::intrusive_ptr<c10::ivalue::Future> StartedWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  const c10::IValue out = value();
  future_ = c10::make_intrusive<c10::ivalue::Future>(out.type());
  when_complete([future = future_, started = started_, out] {
    if (const auto error = started->error()) {
      future->setErrorIfNeeded(error);
    } else {
      future->markCompleted(out);
    }
  });
  return future_;
}

c10::IValue StartedWork::value() const {
  if (what_.list_size == 0) return what_.out;
  std::vector<std::vector<at::Tensor>> lists;
  for (std::size_t i = 0; i < what_.out.size(); ++i) {
    if (i % what_.list_size == 0) lists.emplace_back();
    lists.back().push_back(what_.out[i]);
  }
  return lists;
}

void StartedWork::when_complete(std::function<void()> then) {
  auto self = c10::intrusive_ptr<StartedWork>::reclaim_copy(this);
  group_->when_complete(started_, [self = std::move(self), then = std::move(then)] {
    self->note_end();
    then();
  });
}

void StartedWork::note_end() {
  std::call_once(noted_, [this] {
    if (what_.ended) what_.ended();
    finish(started_->error());
  });
}

// ---- Several. ----

WorksTogether::WorksTogether(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool WorksTogether::isCompleted() {
  bool all = true;
  for (const auto& work : works_) all = work->isCompleted() && all;
  return all;
}

bool WorksTogether::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr WorksTogether::exception() const {
  for (const auto& work : works_) {
    if (const auto error = work->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> WorksTogether::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

/// Waits for all, whatever becomes of any.
bool WorksTogether::wait(milliseconds timeout) {
  std::exception_ptr first;
  for (const auto& work : works_) {
    try {
      work->wait(timeout);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  return true;
}

void WorksTogether::abort() {
  for (const auto& work : works_) work->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> WorksTogether::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  run_beside([future = future_, self = c10::intrusive_ptr<WorksTogether>::reclaim_copy(this)] {
    try {
      self->wait(kNoTimeout);
      future->markCompleted(c10::IValue(self->result()));
    } catch (...) {
      future->setErrorIfNeeded(std::current_exception());
    }
  });
  return future_;
}

}  // namespace dlaunch::torch_backend
