#pragma once

#include "launcher/report/snapshot.hpp"

#include <string>

namespace dlaunch::launcher {

/// Every record of every rank as JSON, with "divergence", the first call in which the ranks went
/// apart: it has one number in one communicator, but is not the same call ("mismatch"), or was not
/// made by all its ranks ("absent"). The records concerned have "diverges": true. "missing" are the
/// ranks of nodes that did not answer.
std::string flight_json(const JobSnapshot& job);

/// What each rank does. As text for people, or a line of JSON.
std::string status_text(const JobSnapshot& job);
std::string status_json(const JobSnapshot& job);

/// The flight as a page of its own that draws it: ranks as rows, calls as boxes, waiting marked, to
/// be zoomed and moved.
std::string timeline_html(const JobSnapshot& job);

}  // namespace dlaunch::launcher
