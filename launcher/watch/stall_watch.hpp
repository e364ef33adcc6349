#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/watch/inquiries.hpp"
#include "launcher/watch/progress.hpp"

#include <cstdint>
#include <functional>
#include <optional>
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
  void started();
  /// The attempt is over on this node; with several nodes, others may still ask.
  void stop();
  void declare();
  void suspend(bool suspended);

  /// This node's answer, without the sentence of what its ranks do.
  NodeProgress progress() const;

 private:
  void look_later();
  void ask_after(Clock::duration time);
  void ask();
  void judge(const Inquiries::Answers& answers);

  const Setting setting_;
  boost::asio::steady_timer look_timer_, ask_timer_;
  std::optional<ProgressClock> clock_;  ///< Unset until the workers have been started.
  std::uint64_t epoch_ = 0;             ///< Answers of an older one are not judged.
  int nodes_ = 1;
  bool decides_ = false;
};

}  // namespace dlaunch::launcher
