#include "collectives/c/c_api.hpp"

#include <algorithm>
#include <exception>
#include <span>

/// Started calls.
namespace {

using namespace dlaunch::c_api;

using Pointers = ShortList<dlaunch::Work*, 64>;

/// Each null where its handle is.
Pointers pointers_to(dl_work* const* works, std::size_t count) {
  require(works != nullptr || count == 0,
          [&] { return "'works' is a null pointer for " + std::to_string(count) + " works"; });
  return {std::span(works, count),
          [](dl_work* work) { return work != nullptr ? &work->work : nullptr; }};
}

}  // namespace

dl_status dl_work_wait(dl_work* work) {
  return guarded_on(work, [&] { in_terms_of_c(work->fault, [&] { work->work.wait(); }); });
}

dl_status dl_work_test(dl_work* work, int* done) {
  return guarded_on(work, [&] {
    auto& result = place(done, "done");
    result = work->work.test() ? 1 : 0;
  });
}

dl_status dl_work_wait_for(dl_work* work, int64_t limit_ms, int* done) {
  return guarded_on(work, [&] {
    auto& result = place(done, "done");
    result = work->work.wait_for(duration_of(limit_ms)) ? 1 : 0;
  });
}

dl_status dl_work_wait_any(dl_work* const* works, size_t count, int64_t limit_ms, size_t* index) {
  return guarded([&] {
    auto& result = place(index, "index");
    result = wait_any(pointers_to(works, count), duration_of(limit_ms)).value_or(count);
  });
}

dl_status dl_work_wait_some(dl_work* const* works, size_t count, int64_t limit_ms, size_t* indices,
                            size_t* complete) {
  return guarded([&] {
    auto& result = place(complete, "complete");
    require(indices != nullptr || count == 0, "'indices' is a null pointer");
    const auto found = wait_some(pointers_to(works, count), duration_of(limit_ms));
    std::copy(found.begin(), found.end(), indices);
    result = found.size();
  });
}

dl_status dl_work_test_any(dl_work* const* works, size_t count, size_t* index) {
  return guarded([&] {
    auto& result = place(index, "index");
    result = test_any(pointers_to(works, count)).value_or(count);
  });
}

dl_status dl_work_test_all(dl_work* const* works, size_t count, int* done) {
  return guarded([&] {
    auto& result = place(done, "done");
    result = test_all(pointers_to(works, count)) ? 1 : 0;
  });
}

dl_status dl_work_cancel(dl_work* work, int* cancelled) {
  return guarded_on(work, [&] {
    auto& result = place(cancelled, "cancelled");
    result = work->work.cancel() ? 1 : 0;
  });
}

dl_status dl_work_wait_all(dl_work* const* works, size_t count) {
  return guarded([&] { wait_all(pointers_to(works, count)); });
}

dl_status dl_work_on_complete(dl_work* work, dl_completion completion, void* argument) {
  return guarded_on(work, [&] {
    require(completion != nullptr, "'completion' is a null pointer");
    work->work.on_complete([completion, argument](const std::exception_ptr& error) {
      if (!error) return completion(argument, DL_OK, "");
      try {
        std::rethrow_exception(error);
      } catch (...) {
        const Failure failure = describe("dl_work_on_complete");
        completion(argument, failure.status, failure.message.c_str());
      }
    });
  });
}

int dl_work_done(const dl_work* work) { return work == nullptr || work->work.done() ? 1 : 0; }

dl_status dl_work_order_before(dl_work* work, void* cuda_stream) {
  return guarded_on(work, [&] { work->work.order_before(cuda_stream); });
}

void dl_work_free(dl_work* work) {
  if (work != nullptr && !work->shared) delete work;
}
