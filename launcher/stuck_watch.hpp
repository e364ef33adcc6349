#pragma once

#include "runtime/segment/flight_log.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::launcher {

/// What is known of one worker at one moment. A plain value, save for the ring.
struct RankSight {
  enum class State { running, stopped, ended };
  int rank = 0;
  pid_t pid = 0;  ///< Also of one that has ended.
  State state = State::running;
  bool member = false;  ///< It has joined the world.
  std::string end;      ///< "killed by SIGKILL", "exited with 0"; empty while it runs.
  std::optional<Clock::time_point> ended;
  FlightLog log;
  /// For names in the log; null where there is no shared memory.
  const FlightRing* ring = nullptr;
};

/// Who waits in a call, and who is not there.
struct StuckCall {
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;  ///< 0: a message.
  std::uint64_t turn = 0;      ///< Of the first wait: tells messages apart.
  std::string call;            ///< "all_reduce #5 (sum, f32, 8 elements) [train.cpp:42]".
  Clock::duration waited{};
  std::vector<int> waiting;
  std::vector<std::pair<int, std::string>> absent;  ///< And what each was last seen doing.
  int unknown = 0;                                  ///< Ranks of the group that never used it.
};

/// "all_reduce #5 [train.cpp:42] has been waiting for 5.0 s: ranks 0-2 wait; absent: rank 3 (in no
/// call for 5.2 s, after barrier #4 [train.cpp:40])".
std::string to_string(const StuckCall& stuck);

/// What this rank does, as far as can be seen from outside.
std::string doing_text(const RankSight& rank, Clock::time_point now);

/// Finds calls that wait for longer than `limit`, and says each stuck job once: pure, reads no
/// clock. Whether a call moves is told by the waits' turns, not by what the workers say of the
/// time.
class StuckWatch {
 public:
  explicit StuckWatch(Clock::duration limit) : limit_(limit) {}

  /// A call that has become stuck, or nothing. After one was told, others are told only when it has
  /// gone on.
  std::optional<StuckCall> look(const std::vector<RankSight>& ranks, int world_size,
                                Clock::time_point now);
  /// The call that was told is still stuck.
  bool is_stuck() const { return told_.has_value(); }
  /// A new attempt.
  void forget();

 private:
  using Key = std::pair<int, std::uint64_t>;  ///< Rank and turn.
  const Clock::duration limit_;
  std::map<Key, Clock::time_point> seen_;
  std::optional<Key> told_;
};

/// Two ranks that made different calls of one number, of which one has returned: it cannot tell any
/// more, so this does. nullopt where there is none among the logs' calls.
std::optional<std::string> find_disagreement(const std::vector<RankSight>& ranks);

}  // namespace dlaunch::launcher
