#include "collectives/transport/links.hpp"

#include <sched.h>

namespace dlaunch::transport {
namespace {

/// About what it costs to sleep and to be woken.
constexpr auto spin_time = std::chrono::microseconds(50);

}  // namespace

bool Links::has_processors(int ranks_here) {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 && ranks_here <= CPU_COUNT(&set);
}

bool Links::look_for(int from) {
  const auto& channel = in_[static_cast<std::size_t>(from)];
  if (!spins_ || !channel || channel->ended() || channel->held()) return false;
  // Neither other threads nor what is still to be sent are kept waiting.
  if (turns_.are_shared() || !is_flushed()) return false;
  const auto until = Clock::now() + spin_time;
  do {
    if (channel->pump(inbox_, on_control_)) return true;
  } while (Clock::now() < until);
  return false;
}

}  // namespace dlaunch::transport
