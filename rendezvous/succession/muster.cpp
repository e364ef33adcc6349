#include "rendezvous/succession/muster.hpp"

#include "runtime/base/phrases.hpp"

namespace dlaunch::rendezvous {

Muster::Step Muster::step(const Quorum& quorum, int nodes_here, int nodes_min,
                          Clock::time_point now) const {
  const Quorum::Count count = quorum.of(last_.number);
  const bool enough = count.has_majority() && nodes_here >= nodes_min;
  const bool late = now >= until_;
  if (late && !enough) return Step::give_up;
  const bool all = count.apart <= 1;
  return enough && (all || late) && at_work_.empty() ? Step::close : Step::wait;
}

std::string Muster::text(const Quorum& quorum) const {
  const Quorum::Count count = quorum.of(last_.number);
  return std::to_string(count.nodes - count.apart) + " of the " + plural(count.nodes, "node") +
         " of epoch " + std::to_string(last_.number) + " have come";
}

}  // namespace dlaunch::rendezvous
