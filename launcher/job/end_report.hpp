#pragma once

#include "launcher/job/core/supervisor.hpp"
#include "launcher/job/history.hpp"
#include "launcher/job/job_deadline.hpp"
#include "launcher/plan/plan.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <dlaunch/error.hpp>

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// How an attempt ended on this node, in the terms of the job; what is known of its ranks is the
/// caller's to add.
/// `host` and `start_problem` tell of workers that could not be started.
rendezvous::WorkersEnded report_of(const Ended& end, const Assignment& assignment,
                                   const std::string& host, const std::string& start_problem);

/// How the job ended, as this node tells it: `code` is the job's, which may have failed elsewhere,
/// or before anything was started here. `left` tells that the user stopped this node.
JobEnd job_end(const Ended& last, int code, bool left, bool never_began);

/// "rank 0 exited with 0, 20 s ago, and rank 1 still runs". `elsewhere` names the first one to end
/// where that was another node's.
std::string straggler_sentence(const TellStragglers& told, int first_rank,
                               const std::string& elsewhere);
/// The same, with what becomes of the attempt.
std::string straggler_outlook(const TellStragglers& told, const JobSpec& spec);

/// "rank 3 never became ready: ... within 60 s".
std::string unready_sentence(const TellUnready& told, int first_rank, Clock::duration limit);

/// "stopping: ranks 0-1 still run; Ctrl-C again kills them, or wait 29 s"; with 0 for a signal,
/// where nobody else stops them, and with one that does not kill when it comes again: "stopping:
/// rank 1 still runs; it is killed in 25 s". `left`: of --shutdown-timeout; once it is over they
/// are being killed, and the sentence is empty.
std::string stopping_sentence(int signal_number, const std::vector<int>& ranks,
                              Clock::duration left);

/// "the deadline 2026-11-23T14:00:00Z has come".
std::string deadline_sentence(WallClock::time_point at);
/// "the job ends in 60 s, at its deadline 2026-11-23T14:00:00Z".
std::string deadline_notice(WallClock::time_point at, WallClock::duration left);
/// "the deadline is put off to 2026-11-23T14:01:30Z: a worker needs 90 s", and whether that is
/// less.
std::string put_off_sentence(const PutOff& put_off, Clock::duration wanted);
/// "; ranks 0-3 are told by SIGUSR1", or that no worker of this node was.
std::string told_text(int signal_number, const std::vector<int>& ranks);

/// "; all workers are started again (restart 1 of 3)".
std::string restart_text(int attempt, const JobSpec& spec);

/// The ranks that have not ended.
std::vector<int> ranks_running(const std::vector<pid_t>& pids, int first_rank);

}  // namespace dlaunch::launcher
