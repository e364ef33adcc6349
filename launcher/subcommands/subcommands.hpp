#pragma once

#include "launcher/request/subcommand_words.hpp"
#include "runtime/base/text/options.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// A subcommand that starts no job. `run` returns the text that is still to be printed, and the
/// exit code.
struct Subcommand {
  std::string_view name;
  EarlyExit (*run)(std::span<const std::string> arguments);
  const OptionTable& (*options)();
};

/// All of them.
std::span<const Subcommand> subcommands();
/// The one of that name; nullptr for none.
const Subcommand* find_subcommand(std::string_view name);

/// `dlaunch ctl jobs | job ID | stop ID | drain [ID] | resume | remove ID | evict ID NODE`: shows a
/// dlaunchd's jobs over HTTP, and acts on them as an operator. Ends with 1 where dlaunchd does not
/// do it.
EarlyExit run_ctl(std::span<const std::string> arguments);
const OptionTable& ctl_options();
/// The first words behind `dlaunch ctl`.
std::vector<SubcommandWords> ctl_words();

/// `dlaunch doctor [--peer HOST:PORT] [--json]`: looks for what makes jobs fail on this host. Ends
/// with 1 where it finds a problem.
EarlyExit run_doctor(std::span<const std::string> arguments);
const OptionTable& doctor_options();

/// `dlaunch drain [JOB] [--timeout TIME]`: this host leaves a live job of this user in order, and
/// the others hear why.
EarlyExit run_drain(std::span<const std::string> arguments);
const OptionTable& drain_options();

/// `dlaunch logs [JOB] [--rank R,R-R] [--follow] [--since TIME] [--stdout] [--stderr] [--dir DIR]`:
/// shows what the ranks of a live job of this user, or of one that has ended, have written to their
/// log files on this host.
EarlyExit run_logs(std::span<const std::string> arguments);
const OptionTable& logs_options();

/// `dlaunch ps [--json]`: lists the live jobs of this user on this host.
EarlyExit run_ps(std::span<const std::string> arguments);
const OptionTable& ps_options();

/// `dlaunch stack [JOB] [--rank R,R-R] [--short] [--timeout TIME]`: shows the stacks of a live
/// job's ranks on this host.
EarlyExit run_stack(std::span<const std::string> arguments);
const OptionTable& stack_options();

/// `dlaunch status [JOB] [--json] [--flight] [--timeline FILE] [--watch TIME]`: finds the live jobs
/// of this user on this host, and asks their agents. With --watch it prints, and returns when the
/// jobs have ended.
EarlyExit run_status(std::span<const std::string> arguments);
const OptionTable& status_options();

/// `dlaunch stop [JOB] [--signal NAME] [--timeout TIME]`: ends a live job of this user that has a
/// node on this host, and waits for its launchers here.
EarlyExit run_stop(std::span<const std::string> arguments);
const OptionTable& stop_options();

}  // namespace dlaunch::launcher
