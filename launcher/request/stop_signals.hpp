#pragma once

#include <algorithm>
#include <csignal>
#include <vector>

namespace dlaunch::launcher {

/// The signals to end the job that have come so far. Only the same signal again says that somebody
/// has lost patience. Another one may have another sender, such as a scheduler's SIGTERM after
/// Ctrl-C, and takes nothing of the time that the workers have to save their work.
class StopSignals {
 public:
  enum class Turn {
    first,    ///< The job is to end.
    another,  ///< Of a kind that had not come yet: the workers get it, too.
    again,    ///< A kind that had come: nobody wants to wait any longer.
    /// SIGHUP, when the job was to end anyway: it says that a terminal is gone, or comes behind
    /// systemd's SIGTERM (SendSIGHUP=yes). A closing terminal may send it twice, as kernel and
    /// shell both do. It is nothing new, and would end a worker that catches only the first.
    hangup,
  };

  Turn take(int number) {
    const bool first = seen_.empty();
    const bool known = std::ranges::count(seen_, number) > 0;
    if (!known) seen_.push_back(number);
    if (first) return Turn::first;
    if (number == SIGHUP) return Turn::hangup;
    return known ? Turn::again : Turn::another;
  }

 private:
  std::vector<int> seen_;
};

/// Whether dlaunch kills what still runs when the signal comes again.
inline bool kills_when_repeated(int number) { return number != SIGHUP; }

}  // namespace dlaunch::launcher
