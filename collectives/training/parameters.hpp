#pragma once

#include "collectives/training/join_group.hpp"

#include <dlaunch/gradient_reducer.hpp>

#include <span>
#include <string>
#include <vector>

namespace dlaunch::training {

/// "parameter 3 'weight'".
std::string name_of(std::span<const Parameter> parameters, std::size_t index);

/// The device on which they lie; -1: host memory.
int device_of(std::span<const Parameter> parameters);

/// Checks that all ranks have the same parameters, buffers and settings, and that they can be
/// trained; otherwise Error{mismatch} or Error{misuse} on all ranks, with the first difference or
/// error. Called by all ranks, with the options of its collectives.
void check_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                      std::span<const TensorView> buffers, const ReducerSettings& settings,
                      const Options& options, const JoinGroup& group);

/// Everyone's views become the root's. Small ones travel together.
void spread(Communicator& communicator, std::span<const TensorView> views, int root,
            const Options& options);

}  // namespace dlaunch::training
