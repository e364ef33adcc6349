#pragma once

#include "launcher/pmi/core/program.hpp"
#include "launcher/request/job_spec.hpp"

#include <string>

namespace dlaunch::launcher {

/// The protocols that dlaunch offers the ranks: as --mpi says, or as their file shows, an
/// executable or an interpreter's script. `file` is empty where there is none.
pmi::Speech mpi_offer(const JobSpec& spec, const Part& part, const std::string& file);

}  // namespace dlaunch::launcher
