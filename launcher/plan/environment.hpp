#pragma once

#include "launcher/machine/machine.hpp"
#include "launcher/request/job_spec.hpp"
#include "launcher/request/variables.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

struct Assignment;

/// The environment that the workers of a part inherit: ours with the variables of --env, and with
/// PWD set to where they run.
std::vector<std::string> inherited_by(const Part& part, std::span<const std::string> environment);

/// The environment that all workers of a part share: the inherited one without variables that stand
/// for options and those that an outer launcher left behind, plus the variables that are equal for
/// all of them.
std::vector<std::string> common_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment);

/// The variables of this worker alone (RANK and the like), to be appended to the common part. No
/// name occurs in both.
std::vector<std::string> worker_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment, int local_rank,
                                            std::string_view error_file);

/// The devices of CUDA_VISIBLE_DEVICES as CUDA reads it: up to the first one that does not exist,
/// and none if one is named twice. If it is unset: "0".."gpus-1".
std::vector<std::string> visible_gpus(const Machine& machine,
                                      std::span<const std::string> environment);

/// The variables that tell programs to use colours although they write to a pipe, for a worker
/// whose pipe ends in a terminal. None where the user has set NO_COLOR or any of them.
void append_colour_variables(std::vector<std::string>& own, std::span<const std::string> inherited);

/// False where the user has said by NO_COLOR, CLICOLOR=0 or FORCE_COLOR=0 that no colours are
/// wanted.
bool wants_colours(std::span<const std::string> environment);

/// False where $TERM says that a terminal cannot take back what it shows, and knows no colours.
bool terminal_redraws(std::span<const std::string> environment);

}  // namespace dlaunch::launcher
