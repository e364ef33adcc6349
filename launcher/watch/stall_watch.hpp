#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/watch/core/stall_core.hpp"
#include "launcher/watch/inquiries.hpp"

#include <functional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// Looks about once a second whether the ranks of this node go on. On node rank 0 it also asks all
/// nodes when the job may have stalled, and if it has, tells all nodes to end it. One thread: that
/// of `io`.
class StallWatch {
 public:
  struct Setting {
    Clock::duration limit{};  ///< --stall-timeout.
    std::function<std::vector<WorkSigns>()> look;
    /// Asks all nodes, this one included.
    std::function<void(const Question& question, Inquiries::Gathered gathered)> ask_all;
  };
  StallWatch(boost::asio::io_context& io, Setting setting);

  /// Another attempt; its workers are not started yet.
  void begin(const Assignment& assignment);
  void started() { step(stall::Started{}); }
  /// The attempt is over on this node; with several nodes, others may still ask.
  void stop() { step(stall::Stopped{}); }
  void declare() { step(stall::Declared{}); }
  void suspend(bool suspended) { step(stall::Suspended{suspended}); }

  /// This node's answer, without the sentence of what its ranks do.
  NodeProgress progress() const { return core_.progress(Clock::now()); }

 private:
  void step(const stall::Event& event);
  void execute(const stall::Rest&);
  void execute(const stall::LookLater& effect);
  void execute(const stall::AskLater& effect);
  void execute(const stall::Ask& effect);
  void execute(const stall::End& effect);

  const Setting setting_;
  stall::StallCore core_;
  boost::asio::steady_timer look_timer_, ask_timer_;
};

}  // namespace dlaunch::launcher
