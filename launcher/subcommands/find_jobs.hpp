#pragma once

#include "launcher/report/job_list.hpp"
#include "launcher/watch/status_socket.hpp"
#include "runtime/base/text/options.hpp"

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The launchers of this user on this host that have answered, by job and node.
struct FoundJobs {
  struct Found : FoundJob {
    StatusFolder::Place place;
  };
  std::vector<Found> launchers = {};
  /// Sentences, a line each, on launchers that do not answer.
  std::string problems = {};
  std::string looked_in;  ///< A folder; empty where there is none.

  std::vector<FoundJob> list() const { return {launchers.begin(), launchers.end()}; }
  /// The names of the jobs.
  std::vector<std::string> jobs() const;
  /// "no job 'demo' of this user runs on this host (looked in ...)".
  std::string none(const std::string& job) const;
};

/// `job`: only those of that job; empty: all. `command` begins each problem.
FoundJobs find_jobs(const std::string& command, const std::string& job);
/// The launchers of that job, or of the only job if `job` is empty. Else the command's end, which
/// says why there is no such job.
std::variant<FoundJobs, EarlyExit> find_one_job(const std::string& command, const std::string& job);
/// Reads a command line of the table, with a job's name as its only word, into `asked`, and finds
/// the launchers of that job.
template <class Rows, class Asked>
std::variant<FoundJobs, EarlyExit> find_asked_job(const OptionTable& table, const Rows& rows,
                                                  std::span<const std::string> arguments,
                                                  Asked& asked) {
  GivenOptions given(table);
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {.most = 1}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  if (!words.empty()) asked.job = words.front();
  return find_one_job(table.program(), asked.job);
}

}  // namespace dlaunch::launcher
