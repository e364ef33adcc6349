#pragma once

#include "launcher/request/option_table.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// The part of the command line behind a ':': another program, with workers of its own.
struct LaterPart {
  GivenOptions options{option_table()};
  std::vector<std::string> program;
};

/// The whole request: from the command line, variables, a job scheduler and a file.
struct Request {
  GivenOptions options{option_table()};
  bool bench = false;                ///< `dlaunch bench`.
  std::vector<std::string> program;  ///< The program and its arguments; with bench, its options.
  std::vector<LaterPart> later_parts;
  std::optional<std::string> hostfile;  ///< The text of --hostfile.
  std::string scheduler_job;            ///< The scheduler's job of this node and others, if known.
  std::vector<std::string> notes;       ///< Sentences to say once.
};

}  // namespace dlaunch::launcher
