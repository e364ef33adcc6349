#pragma once

/// Our programs' exit codes, besides a worker's own code and 128 + n for a signal. A
/// contract: docs/operations.md lists each with cause and cure.
namespace dlaunch::exit_code {

inline constexpr int failed = 1;           ///< Used where no other code fits.
inline constexpr int usage = 64;           ///< The command line, or a variable that stands for it.
inline constexpr int unreachable = 69;     ///< A host or port that the job needs.
inline constexpr int internal = 70;        ///< A bug in dlaunch, or a resource the system denied.
inline constexpr int state_lost = 74;      ///< dlaunchd cannot write its state.
inline constexpr int preempted = 75;       ///< Stopped by the cluster; start the job again.
inline constexpr int ranks_missing = 76;   ///< Ranks or nodes did not come in time.
inline constexpr int authentication = 77;  ///< A wrong secret.
inline constexpr int configuration = 78;   ///< A configuration file, or state on disk.
inline constexpr int node_lost = 79;
inline constexpr int no_progress = 80;
inline constexpr int disagreement = 81;  ///< Ranks made different calls, and none has noticed.
inline constexpr int cannot_execute = 126;
inline constexpr int not_found = 127;

}  // namespace dlaunch::exit_code
