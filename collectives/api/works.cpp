#include "runtime/base/deadline.hpp"

#include <dlaunch/work.hpp>

#include <algorithm>

/// Several started calls.
namespace dlaunch {
namespace {

/// The pause between looks at several calls, whose ends this thread need not hear of.
constexpr auto look_interval = std::chrono::microseconds(200);

std::vector<Work*> pointers_to(std::span<Work> works) {
  std::vector<Work*> pointers;
  pointers.reserve(works.size());
  for (Work& work : works) pointers.push_back(&work);
  return pointers;
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
  const auto is_call = [](const Work* work) { return work != nullptr && !work->is_empty(); };
  // The Works are waited for in turn, so that the messages of all communicators move.
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

std::vector<std::size_t> wait_some(std::span<Work* const> works, Clock::duration limit) {
  std::vector<std::size_t> complete;
  if (!wait_any(works, limit)) return complete;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const bool is_call = works[i] != nullptr && !works[i]->is_empty();
    if (is_call && works[i]->test()) complete.push_back(i);
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
  bool are_complete = true;
  for (Work* const work : works) are_complete = (work == nullptr || work->test()) && are_complete;
  return are_complete;
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
