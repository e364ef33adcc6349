#pragma once

#include "launcher/job/core/front_core.hpp"
#include "launcher/output/voice.hpp"

#include <csignal>
#include <functional>

#include <sys/types.h>

namespace dlaunch::launcher {

/// What the front hands its agent.
struct AgentSeat {
  pid_t front = 0;
  sigset_t original_mask{};  ///< The signals blocked when dlaunch was started; for the workers.
  bool children_ignored = false;  ///< SIGCHLD was ignored then; for the workers.
  bool owns_terminal = false;     ///< Descriptor 0 is a terminal, and dlaunch is in its foreground.
};

/// Guards the agent: forks it, hands it every signal, adopts and reaps orphans (as PID 1 must),
/// keeps the terminal, and when the agent is gone kills whatever it left behind. An agent that
/// stands still when the job is to be ended is killed, too. Returns the exit code of dlaunch. To be
/// called before any thread exists; `agent` runs in the child, which exits with what it returns.
/// All signals are blocked from here on, save those that are ignored, which stay so. `voice`: for
/// what the front itself has to say.
int run_front(const FrontRules& rules, const Voice& voice,
              const std::function<int(const AgentSeat&)>& agent);

}  // namespace dlaunch::launcher
