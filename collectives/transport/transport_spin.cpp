#include "collectives/transport/message/spin_times.hpp"
#include "collectives/transport/transport.hpp"

#include <sched.h>

namespace dlaunch::transport {

bool Transport::has_processors(int ranks_here) {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 && ranks_here <= CPU_COUNT(&set);
}

/// Takes the message from its connection, whatever else happens on others meanwhile.
bool Transport::take_from(InChannel& channel, Receive& receive) {
  const auto take = [&] {
    if (!channel.take(receive)) return false;
    inbox_.note_taken(receive.from, receive.header);
    return true;
  };
  if (take()) return true;
  // Neither other threads nor what is still to be sent are kept waiting.
  if (!spins_ || progress_lock_.are_shared() || !is_flushed()) return false;
  for (const auto until = Clock::now() + spin_time; Clock::now() < until;) {
    if (take()) return true;
    if (channel.ended() || channel.held() || progress_lock_.are_wanted()) return false;
  }
  return false;
}

bool Transport::look_for(int from) {
  InChannel* channel = ins_.find(from);
  if (!spins_ || channel == nullptr || channel->ended() || channel->held() ||
      progress_lock_.are_shared()) {
    return false;
  }
  sending_.clear();
  for (const auto& [to, out] : outs_) {
    if (!out->has_work()) continue;
    // A channel that is not open is for step().
    if (out->state() != OutChannel::State::open) return false;
    sending_.push_back(out.get());
  }
  const auto until = Clock::now() + spin_time;
  do {
    bool moved = channel->pump(inbox_, on_control_);
    for (OutChannel* out : sending_) moved = out->pump() || moved;
    if (moved) return true;
  } while (!progress_lock_.are_wanted() && Clock::now() < until);
  return false;
}

}  // namespace dlaunch::transport
