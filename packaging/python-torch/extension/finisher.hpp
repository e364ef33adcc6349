#pragma once

#include <functional>

namespace dlaunch::torch_backend {

/// Runs `job` on a thread of its own kind, soon. For what completes futures: their callbacks are
/// the program's, and may wait for other calls, which the library's threads that end calls must
/// not. A job that waits keeps no other one waiting, up to a limit of threads. Jobs throw nothing.
void run_beside(std::function<void()> job);

}  // namespace dlaunch::torch_backend
