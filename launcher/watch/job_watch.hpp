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

/// Watches the workers of all nodes of a job by asking the other nodes' agents. If a call is stuck,
/// node rank 0's agent says so once, for all nodes. One thread: that of `io`.
class JobWatch {
 public:
  using Say = std::function<void(const std::string& sentence)>;
  using Roster = std::vector<rendezvous::Admission::Entry>;

  /// `respond` gives this node's answers about its ranks.
  JobWatch(boost::asio::io_context& io, Inquiries::Respond respond, Say say);

  /// A new epoch. `roster` is node rank 0's alone.
  void begin(QuestionLine& line, const Assignment& assignment, Roster roster);
  /// Ranks of another node will not come back.
  void lost(const rendezvous::RanksLost& lost);
  /// A call that this node's ranks wait in is stuck: node rank 0 is to look.
  void ring();
  /// The questions and answers between this node's agent and the others.
  Inquiries& inquiries() { return inquiries_; }
  /// The sentence about the call that is stuck now; empty if none is, and on nodes other than rank
  /// 0.
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
    bool looking = false;  ///< A look is under way or about to begin.
  };
  Epoch epoch_;
  Clock::time_point next_look_{};
  Inquiries inquiries_;
};

}  // namespace dlaunch::launcher
