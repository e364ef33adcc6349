#pragma once

#include "launcher/request/options.hpp"
#include "runtime/base/secret/secret.hpp"

#include <optional>

namespace dlaunch::launcher {

/// The key of the job, from where the options say its secret is; nullopt where they say nothing.
/// Throws Error{misuse} with what to do, and Error{timeout} where a descriptor does not end.
std::optional<Key> read_job_key(const Options& options);

}  // namespace dlaunch::launcher
