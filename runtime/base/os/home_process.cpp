#include "runtime/base/os/home_process.hpp"

#include <pthread.h>

namespace dlaunch {

std::atomic<std::uint32_t> HomeProcess::forks_{0};

/// Counts in every child, before fork(2) returns there. It fails for want of memory only, when the
/// program is loaded.
const int HomeProcess::counted_ =
    ::pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });

}  // namespace dlaunch
