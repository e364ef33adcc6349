#include "collectives/communicator/work_state.hpp"
#include "runtime/base/deadline.hpp"

#include <dlaunch/work.hpp>

#include <algorithm>

/// Several started calls.
namespace dlaunch {
namespace {

/// The pause between looks at calls of which this thread need not hear that they end.
constexpr auto look_interval = std::chrono::microseconds(200);

std::vector<Work*> pointers_to(std::span<Work> works) {
  std::vector<Work*> pointers;
  pointers.reserve(works.size());
  for (Work& work : works) pointers.push_back(&work);
  return pointers;
}

bool is_call(const Work* work) { return work != nullptr && !work->is_empty(); }

std::optional<std::size_t> first_done(std::span<Work* const> works) {
  const auto found = std::find_if(works.begin(), works.end(),
                                  [](const Work* work) { return is_call(work) && work->done(); });
  if (found == works.end()) return std::nullopt;
  return static_cast<std::size_t>(found - works.begin());
}

/// Null for what is no message, and in a forked child.
MessageWork* message_of(const Work& work) {
  WorkState* const state = WorkState::of(work);
  return state != nullptr && state->is_ours() ? state->message() : nullptr;
}

/// The first of the calls if all of them, none of which is done, are messages that move together;
/// else null.
MessageWork* first_of_one_mesh(std::span<Work* const> works) {
  MessageWork* first = nullptr;
  for (const Work* const work : works) {
    if (!is_call(work)) continue;
    MessageWork* const message = message_of(*work);
    if (message == nullptr || message->mesh() == nullptr) return nullptr;
    if (first != nullptr && message->mesh() != first->mesh()) return nullptr;
    if (first == nullptr) first = message;
  }
  return first;
}

/// Waits for several, whatever becomes of any.
class FirstFailure {
 public:
  void wait(Work& work) {
    try {
      work.wait();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace

std::optional<std::size_t> wait_any(std::span<Work* const> works, Clock::duration limit) {
  const auto until = deadline_after(limit);
  for (std::size_t turn = 0;; ++turn) {
    if (const auto done = first_done(works)) return done;
    if (MessageWork* const message = first_of_one_mesh(works)) {
      message->wait_beside(works, until);
      if (const auto done = first_done(works)) return done;
      if (Clock::now() >= until) return std::nullopt;
      continue;
    }
    // They are waited for in turn, so that the messages of all communicators move.
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

std::vector<std::size_t> wait_some(std::span<Work* const> works, Clock::duration limit) {
  std::vector<std::size_t> complete;
  if (!wait_any(works, limit)) return complete;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (is_call(works[i]) && works[i]->done()) complete.push_back(i);
  }
  return complete;
}

std::vector<std::size_t> wait_some(std::span<Work> works, Clock::duration limit) {
  return wait_some(pointers_to(works), limit);
}

std::optional<std::size_t> test_any(std::span<Work* const> works) {
  return wait_any(works, Clock::duration::zero());
}

std::optional<std::size_t> test_any(std::span<Work> works) { return test_any(pointers_to(works)); }

bool test_all(std::span<Work* const> works) {
  // One message's test moves all of its mesh.
  const transport::Links* moved = nullptr;
  for (Work* const work : works) {
    if (!is_call(work) || work->done()) continue;
    MessageWork* const message = message_of(*work);
    const transport::Links* const mesh = message != nullptr ? message->mesh() : nullptr;
    if (mesh == nullptr || mesh != moved) work->test();
    moved = mesh != nullptr ? mesh : moved;
  }
  return std::all_of(works.begin(), works.end(),
                     [](const Work* work) { return work == nullptr || work->done(); });
}

bool test_all(std::span<Work> works) { return test_all(pointers_to(works)); }

void wait_all(std::span<Work* const> works) {
  FirstFailure first;
  for (Work* const work : works) {
    if (work != nullptr) first.wait(*work);
  }
  first.rethrow();
}

void wait_all(std::span<Work> works) {
  FirstFailure first;
  for (Work& work : works) first.wait(work);
  first.rethrow();
}

}  // namespace dlaunch
