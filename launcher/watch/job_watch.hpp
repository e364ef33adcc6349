#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/watch/core/stuck_core.hpp"
#include "launcher/watch/inquiries.hpp"
#include "rendezvous/rounds/rounds.hpp"

#include <functional>
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
  void lost(const rendezvous::RanksLost& lost) { step(lost); }
  /// A call that this node's ranks wait in is stuck.
  void notice() { step(stuck::Noticed{}); }
  /// The questions and answers between this node's agent and the others.
  Inquiries& inquiries() { return inquiries_; }
  /// The sentence about the call that is stuck now; empty if none is, and on nodes other than rank
  /// 0.
  const std::string& stuck() const { return core_.stuck(); }

 private:
  void step(const stuck::Event& event);
  void execute(const stuck::Rest&);
  void execute(const stuck::TellNode0& effect);
  void execute(const stuck::List& effect);
  void execute(const stuck::Describe& effect);
  void execute(const stuck::TellAgain& effect);
  void execute(const stuck::LookLater& effect);
  void execute(const stuck::Say& effect) { say_(effect.sentence); }

  const Say say_;
  stuck::StuckCore core_;
  boost::asio::steady_timer tell_timer_, look_timer_;
  Inquiries inquiries_;
};

}  // namespace dlaunch::launcher
