#pragma once

#include <csignal>

/// The signals between a front and its agent.
namespace dlaunch::launcher {

/// Sent to the agent by the kernel when its front has died.
inline int front_lost_signal() { return SIGRTMIN + 4; }
/// Carries a signal from the front to the agent, its number as the value. Signals that come to the
/// agent directly are not obeyed: a service manager sends one to every process of ours, and it
/// must count once. (This kind also queues: two of a number stay two.)
inline int handed_on_signal() { return SIGRTMIN + 5; }

}  // namespace dlaunch::launcher
