#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/secret/secret.hpp"

#include <optional>

namespace dlaunch::launcher {

/// The key of the job, from where the options say its secret is; nullopt where they say nothing.
/// Throws Error{misuse} with what to do, and Error{timeout} where a descriptor does not end.
std::optional<Key> read_job_key(const JobSpec& spec);

}  // namespace dlaunch::launcher
