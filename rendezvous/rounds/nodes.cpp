#include "rendezvous/rounds/nodes.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace dlaunch::rendezvous {

const Node* Nodes::find(Session session) const {
  const auto found = nodes_.find(session);
  return found == nodes_.end() ? nullptr : &found->second;
}

const Node* Nodes::with_id(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : find(found->second);
}

const Node* Nodes::with_rank_hint(int rank) const {
  const auto found = by_hint_.find(rank);
  return found == by_hint_.end() ? nullptr : find(found->second);
}

std::vector<const Node*> Nodes::predecessors(const NodeOffer& offer) const {
  std::vector<const Node*> found;
  const Node* same_id = with_id(offer.id);
  const Node* same_rank = offer.rank_hint ? with_rank_hint(*offer.rank_hint) : nullptr;
  if (same_id) found.push_back(same_id);
  if (same_rank && same_rank != same_id) found.push_back(same_rank);
  return found;
}

std::string Nodes::names() const {
  std::vector<std::string_view> names;
  names.reserve(nodes_.size());
  for (const auto& [id, session] : by_id_) names.push_back(id);
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), names_shown_max));
  std::partial_sort(names.begin(), names.begin() + shown, names.end(), natural_less);
  return listed(names, names_shown_max);
}

std::string Nodes::missing_ranks(const JobRules& rules) const {
  if (rules.elastic() || by_hint_.size() != nodes_.size()) return "";
  std::vector<std::string> missing;
  for (int rank = 0; rank < rules.nodes_max; ++rank) {
    if (!by_hint_.contains(rank)) missing.push_back(std::to_string(rank));
  }
  if (missing.empty()) return "";
  return (missing.size() == 1 ? "; missing node rank " : "; missing node ranks ") +
         list_text(missing);
}

const Node& Nodes::insert(Node node, const JobRules& rules) {
  const Session session = node.session;
  by_id_[node.offer.id] = session;
  if (node.offer.rank_hint) by_hint_[*node.offer.rank_hint] = session;
  check_by(deadline_after(rules.liveness.lease, node.last_heard));
  node.kernel_hash = std::hash<std::string>()(node.offer.share.kernel);
  node.memory_hash = std::hash<std::string>()(node.offer.share.memory);
  return nodes_.emplace(session, std::move(node)).first->second;
}

Node Nodes::remove(Session session) {
  Node node = std::move(nodes_.extract(session).mapped());
  if (node.gone) --broken_;
  // Its successor may already have this id.
  const auto id = by_id_.find(node.offer.id);
  if (id->second == session) by_id_.erase(id);
  if (node.offer.rank_hint) {
    const auto hint = by_hint_.find(*node.offer.rank_hint);
    if (hint->second == session) by_hint_.erase(hint);
  }
  return node;
}

bool Nodes::hear(Session session, Clock::time_point now) {
  Node& node = nodes_.at(session);
  node.last_heard = now;
  if (!node.gone) return false;
  node.gone.reset();
  node.awaited_until = {};
  --broken_;
  return true;
}

void Nodes::disconnect(Session session, const JobRules& rules, Clock::time_point now) {
  const auto found = nodes_.find(session);
  if (found == nodes_.end() || found->second.gone) return;
  found->second.gone = now;
  ++broken_;
  check_by(std::min(deadline_after(rules.liveness.lease, found->second.last_heard),
                    deadline_after(rules.liveness.reconnect_grace, now)));
}

std::vector<const Node*> Nodes::find_overdue(const JobRules& rules, Clock::time_point now) {
  std::vector<const Node*> overdue;
  if (!lease_check_ || *lease_check_ > now) return overdue;
  lease_check_.reset();
  for (const auto& [session, node] : nodes_) {
    auto end = deadline_after(rules.liveness.lease, node.last_heard);
    if (node.gone) {
      end = std::min(end, deadline_after(rules.liveness.reconnect_grace, *node.gone));
      end = std::max(end, node.awaited_until);
    }
    if (end > now) {
      check_by(end);
    } else {
      overdue.push_back(&node);
    }
  }
  return overdue;
}

void Nodes::forgive(Clock::duration slept, Clock::time_point now) {
  for (auto& [session, node] : nodes_) {
    node.last_heard = std::min(now, deadline_after(slept, node.last_heard));
    if (node.gone) node.gone = std::min(now, deadline_after(slept, *node.gone));
  }
  if (lease_check_) lease_check_ = deadline_after(slept, *lease_check_);
}

void Nodes::await_broken(Clock::time_point until) {
  for (auto& [session, node] : nodes_) {
    if (node.gone) node.awaited_until = until;
  }
}

void Nodes::check_by(Clock::time_point when) {
  lease_check_ = lease_check_ ? std::min(*lease_check_, when) : when;
}

}  // namespace dlaunch::rendezvous
