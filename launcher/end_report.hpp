#pragma once

#include "launcher/history.hpp"
#include "launcher/plan.hpp"
#include "launcher/supervisor.hpp"
#include "rendezvous/rounds.hpp"

#include <string>

namespace dlaunch::launcher {

/// How an attempt ended on this node, in the terms of the job: global ranks, this epoch.
/// `root_cause` is a sentence about the rank to blame.
rendezvous::WorkersEnded report_of(const Ended& end, const Assignment& assignment,
                                   const std::string& root_cause);

/// How the job ended, as this node tells it: `code` is the job's, which may have failed elsewhere,
/// or before anything was started here. `left` tells that the user stopped this node.
JobEnd job_end(const Ended& last, int code, bool left, bool never_began);

}  // namespace dlaunch::launcher
