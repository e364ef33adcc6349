#pragma once

#include "rendezvous/rounds/epoch.hpp"

#include <variant>

namespace dlaunch::rendezvous {

/// Another round is formed.
struct GoesOn {
  std::string why;
  bool is_restart = false;  ///< It is one of those that --max-restarts counts.
  bool is_news = false;     ///< Only now it is known for what the epoch has ended.
};
/// What becomes of a job when an epoch is over. Details of ranks are for others to add.
using Judgement = std::variant<GoesOn, Finish>;

/// `attempt` is the epoch's; `nodes_here` counts all that could take part in another round.
Judgement judge(const Epoch& epoch, const JobRules& rules, int attempt, int nodes_here);
/// The node has left that hosts the rendezvous: nobody is left who could wait for the others' ends,
/// or tell them of it.
Finish judge_without_host(const Epoch& epoch, int exit_code, const std::string& reason);

}  // namespace dlaunch::rendezvous
