#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/watch/inquiries.hpp"
#include "launcher/watch/stuck_watch.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/departure.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// Looks at what the workers of all nodes of a job do: asks the other nodes' agents. Node rank 0's
/// agent says, once and for all of them, that a call is stuck. One thread: that of `io`.
class JobWatch {
 public:
  using Say = std::function<void(const std::string& sentence)>;
  using Roster = std::vector<rendezvous::Admission::Entry>;

  /// `respond` knows what this node has to say of its ranks.
  JobWatch(boost::asio::io_context& io, Inquiries::Respond respond, Say say);

  /// A new epoch. `roster` is node rank 0's alone.
  void begin(QuestionLine& line, const Assignment& assignment, Roster roster);
  /// Ranks of another node will not come back.
  void lost(const rendezvous::RanksLost& lost);
  /// A call that this node's ranks wait in is stuck: node rank 0 is to look.
  void ring();
  /// What goes between this node's agent and the others.
  Inquiries& inquiries() { return inquiries_; }
  /// The call that is stuck now, as it was said; empty if none is, or on another node than rank 0.
  const std::string& stuck() const { return epoch_.stuck; }

 private:
  void look();
  void look_at(Clock::time_point when);
  void judge(const Inquiries::Answers& answers);
  void tell(CallWait wait, const Inquiries::Answers& answers);
  void add_silent(StuckCall& stuck, const Inquiries::Answers& answers) const;

  const Say say_;
  boost::asio::steady_timer timer_, ring_timer_;
  struct Epoch {
    std::uint64_t number = 0;  ///< Answers of an older one are not judged.
    int world_size = 0, nodes = 1;
    Roster roster = {};
    std::map<int, Departure> lost = {};  ///< By rank.
    StuckJudge judge = {};
    std::string stuck = {};
    bool looking = false;  ///< Or about to.
  };
  Epoch epoch_;
  Clock::time_point next_look_{};
  Inquiries inquiries_;
};

}  // namespace dlaunch::launcher
