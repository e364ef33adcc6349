#pragma once

#include "launcher/request/option_table.hpp"

#include <string>
#include <string_view>
#include <variant>

namespace dlaunch::launcher {

/// Options that do not go together, and which of them is to blame.
struct MeetingProblem {
  std::string_view flag;  ///< "nnodes".
  std::string sentence;
};

/// The place where the nodes of a job meet, from the options alone; `named`: --master-addr is the
/// user's own.
std::variant<Meeting, MeetingProblem> meeting_of(const Draft& draft, bool named);

}  // namespace dlaunch::launcher
