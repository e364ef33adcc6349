#include "collectives/c/c_api.hpp"

#include <exception>
#include <span>
#include <vector>

/// Collectives, started, and what was started.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Communicator;

/// Puts what `begin` starts into the caller's place.
template <class Begin>
dl_status start(dl_comm* comm, dl_work** work, Begin&& begin,
                const char* call = __builtin_FUNCTION()) noexcept {
  return guarded_on(
      comm,
      [&] {
        auto& started = place(work, "work");
        started = new dl_work(begin(comm->comm));
      },
      call);
}

/// Null where the handle is.
std::vector<dlaunch::Work*> pointers_to(dl_work* const* works, std::size_t count) {
  require(works != nullptr || count == 0,
          "'works' is a null pointer for " + std::to_string(count) + " works");
  std::vector<dlaunch::Work*> pointers;
  for (dl_work* work : std::span(works, count)) {
    pointers.push_back(work != nullptr ? &work->work : nullptr);
  }
  return pointers;
}

}  // namespace

dl_status dl_start_barrier(dl_comm* comm, dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) { return c.start_barrier(options_of(options)); });
}

dl_status dl_start_broadcast(dl_comm* comm, dl_view inout, int root, dl_work** work,
                             const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_broadcast(view_of(inout), root, options_of(options));
  });
}

dl_status dl_start_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root,
                          dl_reduction reduction, dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_reduce(view_of(in), view_of(out), root, reduction_of(reduction),
                          options_of(options));
  });
}

dl_status dl_start_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_all_reduce(view_of(inout), reduction_of(reduction), options_of(options));
  });
}

dl_status dl_start_all_gather(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_all_gather(view_of(in), view_of(out), options_of(options));
  });
}

dl_status dl_start_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                                dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_all_gather_v(view_of(in), view_of(out), counts_of(comm, counts),
                                options_of(options));
  });
}

dl_status dl_start_gather(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_work** work,
                          const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_gather(view_of(in), view_of(out), root, options_of(options));
  });
}

dl_status dl_start_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                            int root, dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_gather_v(view_of(in), view_of(out), counts_of(comm, counts), root,
                            options_of(options));
  });
}

dl_status dl_start_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_work** work,
                           const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_scatter(view_of(in), view_of(out), root, options_of(options));
  });
}

dl_status dl_start_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                             int root, dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_scatter_v(view_of(in), view_of(out), counts_of(comm, counts), root,
                             options_of(options));
  });
}

dl_status dl_start_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out,
                                  dl_reduction reduction, dl_work** work,
                                  const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_reduce_scatter(view_of(in), view_of(out), reduction_of(reduction),
                                  options_of(options));
  });
}

dl_status dl_start_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                    const size_t* counts, dl_reduction reduction, dl_work** work,
                                    const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_reduce_scatter_v(view_of(in), view_of(out), counts_of(comm, counts),
                                    reduction_of(reduction), options_of(options));
  });
}

dl_status dl_start_all_to_all(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_all_to_all(view_of(in), view_of(out), options_of(options));
  });
}

dl_status dl_start_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts,
                                dl_view out, const size_t* out_counts, dl_work** work,
                                const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_all_to_all_v(view_of(in), counts_of(comm, in_counts), view_of(out),
                                counts_of(comm, out_counts), options_of(options));
  });
}

dl_status dl_start_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                        dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_scan(view_of(in), view_of(out), reduction_of(reduction), options_of(options));
  });
}

dl_status dl_start_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                          dl_work** work, const dl_options* options) {
  return start(comm, work, [&](Communicator& c) {
    return c.start_exscan(view_of(in), view_of(out), reduction_of(reduction), options_of(options));
  });
}

dl_status dl_work_wait(dl_work* work) {
  return guarded_on(work, [&] { work->work.wait(); });
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

void dl_work_free(dl_work* work) { delete work; }
