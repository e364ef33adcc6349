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

/// What the workers of a part inherit: our environment with the variables of --env, and a PWD that
/// is where they run.
std::vector<std::string> inherited_by(const Part& part, std::span<const std::string> environment);

/// What all workers of a part share: the inherited environment without flag variables and without
/// what an outer launcher left behind, and the variables that are equal for all of them.
std::vector<std::string> common_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment);

/// The variables of this worker alone (RANK and the like), to be appended to the common part. No
/// name occurs in both.
std::vector<std::string> worker_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment, int local_rank,
                                            std::string_view error_file);

/// The devices of CUDA_VISIBLE_DEVICES up to the first one that there is not, and none where one
/// stands there twice, as CUDA reads it; or "0".."gpus-1" where it is unset.
std::vector<std::string> visible_gpus(const Machine& machine,
                                      std::span<const std::string> environment);

/// For a worker whose pipe ends in a terminal, which it cannot know: the variables by which
/// programs are told to use colours all the same. None where the user has set NO_COLOR or any of
/// them.
void append_colour_variables(std::vector<std::string>& own, std::span<const std::string> inherited);

/// False where the user has said by NO_COLOR, CLICOLOR=0 or FORCE_COLOR=0 that no colours are
/// wanted.
bool wants_colours(std::span<const std::string> environment);

/// False where $TERM says that a terminal cannot take back what it shows, and knows no colours.
bool terminal_redraws(std::span<const std::string> environment);

}  // namespace dlaunch::launcher
