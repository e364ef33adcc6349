#include "launcher/subcommands/find_jobs.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/error.hpp>

#include <optional>

namespace dlaunch::launcher {

std::vector<std::string> FoundJobs::jobs() const {
  std::vector<std::string> names;
  for (const auto& found : launchers) {
    // The launchers are sorted by job.
    if (names.empty() || names.back() != found.entry.job) names.push_back(found.entry.job);
  }
  return names;
}

std::string FoundJobs::none(const std::string& job) const {
  return "no job " + (job.empty() ? "" : in_quotes(job) + " ") + "of this user runs on this host" +
         (looked_in.empty() ? "" : " (looked in " + looked_in + ")");
}

FoundJobs find_jobs(const std::string& command, const std::string& job) {
  FoundJobs found;
  std::optional<StatusFolder> folder;
  try {
    folder.emplace(false);
  } catch (const Error&) {
    return found;  // No launcher of this user has ever made one.
  }
  found.looked_in = folder->path();
  for (const auto& place : folder->places()) {
    if (!job.empty() && place.job != job) continue;
    try {
      found.launchers.push_back({ask_entry(*folder, place), place});
    } catch (const Error& error) {
      // A killed launcher leaves its place behind, which is no problem.
      if (error.errc() == Errc::unreachable) continue;
      found.problems += command + ": " + error.what() + "\n";
    }
  }
  return found;
}

std::variant<FoundJobs, EarlyExit> find_one_job(const std::string& command,
                                                const std::string& job) {
  FoundJobs found = find_jobs(command, job);
  if (found.launchers.empty()) {
    return EarlyExit{exit_code::unreachable,
                     found.problems + command + ": " + found.none(job) + "\n"};
  }
  if (found.jobs().size() > 1) {
    return EarlyExit{exit_code::usage, found.problems + command +
                                           ": several jobs run here; name one\n" +
                                           list_text(found.list(), WallClock::now())};
  }
  return found;
}

}  // namespace dlaunch::launcher
