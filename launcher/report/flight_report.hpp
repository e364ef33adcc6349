#pragma once

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Whether any rank in any of these documents has ever recorded a call.
bool has_calls(const std::vector<std::string>& documents);
/// Whether they tell of every rank of the world.
bool is_complete(const std::vector<std::string>& documents);

/// The agents' answers to "flight", brought together: one document with all ranks in their order,
/// and "divergence", the first call in which they went apart: it has one number in one
/// communicator, but is not the same call ("mismatch"), or was not made by all its ranks
/// ("absent"). The records concerned have "diverges": true. Documents that are none, or are there
/// twice, are left
/// out; "missing" are the ranks of nodes that did not answer.
std::string merge_flight(const std::vector<std::string>& documents);

/// The agents' answers to "status", brought together; all of one job. As text for people, or JSON.
std::string status_text(const std::vector<std::string>& documents);
std::string merge_status(const std::vector<std::string>& documents);

/// A merged flight as a page of its own that draws it: ranks as rows, calls as boxes, waiting
/// marked, to be zoomed and moved.
std::string timeline_html(const std::string& merged_flight);

}  // namespace dlaunch::launcher
