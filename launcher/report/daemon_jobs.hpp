#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// A dlaunchd's JSON of all its jobs (/api/v1/jobs), and of one, as tables for people. Nullopt for
/// what is no such JSON. Pure.
std::optional<std::string> daemon_jobs_text(std::string_view json);
std::optional<std::string> daemon_job_text(std::string_view json);

}  // namespace dlaunch::launcher
