#pragma once

#include <dlaunch/export.hpp>

namespace dlaunch {

/// Tells the launcher that the job goes on. As soon as one rank of a job has said so, nothing else
/// counts as progress for `dlaunch --stall-timeout`: the job is ended where no rank says it again
/// in time. So call it where work is done, once a step, say, and not on a thread that only waits.
///
/// False where nobody listens: without a launcher, or where it was not asked for a limit. Takes a
/// few microseconds and never waits. From any thread; it reads the environment (getenv).
DLAUNCH_API bool report_progress() noexcept;

}  // namespace dlaunch
