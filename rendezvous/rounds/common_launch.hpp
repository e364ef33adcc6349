#pragma once

#include "rendezvous/rounds/rounds.hpp"

namespace dlaunch::rendezvous {

/// The features that all nodes of a job's epochs have in common, by which a node of a second job
/// under the same id is recognised. A feature counts only if all of them have it.
class CommonLaunch {
 public:
  void learn(const Launch& of_a_node) {
    if (!common_) common_ = of_a_node;
    if (common_->line != of_a_node.line) common_->line = 0;
    if (common_->start != of_a_node.start) common_->start = 0;
  }

  bool has_line() const { return common_ && common_->line != 0; }
  /// Whether one scheduler's job started this node and all the others.
  bool is_together(const Launch& launch) const {
    return common_ && common_->start != 0 && common_->start == launch.start;
  }
  /// Whether the node runs another command line.
  bool is_other_line(const Launch& launch) const {
    return has_line() && launch.line != 0 && common_->line != launch.line && !is_together(launch);
  }

 private:
  std::optional<Launch> common_;  ///< Values that differ are 0.
};

}  // namespace dlaunch::rendezvous
