#pragma once

#include <dlaunch/export.hpp>

#include <chrono>

namespace dlaunch {

/// Tells the launcher that the job goes on. As soon as one rank of a job has said so, nothing else
/// counts as progress for `dlaunch --stall-timeout`: the job is ended where no rank says it again
/// in time. So call it where work is done, once a step, say, and not on a thread that only waits.
///
/// False where nobody listens: without a launcher, or where it was not asked for a limit. Takes a
/// few microseconds and never waits. From any thread; it reads the environment (getenv).
DLAUNCH_API bool report_progress() noexcept;

/// Asks the launcher not to end the job before so long from now: to save what was computed takes
/// longer than until the deadline (`dlaunch --deadline`). All nodes put it off, as far as
/// `--deadline-latest` allows, never beyond the end that the scheduler has told. What was granted
/// before stays. To be called before the deadline, on one rank or on all.
///
/// False where nobody listens, or the launcher has not read what it was told before; else true,
/// which does not say that there is so much time: the launcher says where there is less. Never
/// waits. From any thread; it reads the environment (getenv).
DLAUNCH_API bool extend_deadline(std::chrono::milliseconds time) noexcept;

}  // namespace dlaunch
