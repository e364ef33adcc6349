#pragma once

#include "launcher/plan.hpp"
#include "launcher/supervisor.hpp"
#include "rendezvous/rounds.hpp"

#include <string>

namespace dlaunch::launcher {

/// How an attempt ended on this node, in the terms of the job: global ranks, this epoch.
/// `root_cause` is a sentence about the rank to blame.
rendezvous::WorkersEnded report_of(const Ended& end, const Assignment& assignment,
                                   const std::string& root_cause);

}  // namespace dlaunch::launcher
