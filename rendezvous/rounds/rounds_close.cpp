#include "rendezvous/rounds/rounds_state.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// The order of nodes that have no place yet: by hint, then as the scheduler has them, then by
/// name.
bool before(const Node* a, const Node* b) {
  const auto number = [](const std::optional<int>& n) {
    return n.value_or(std::numeric_limits<int>::max());
  };
  const auto& x = a->offer;
  const auto& y = b->offer;
  if (x.rank_hint != y.rank_hint) return number(x.rank_hint) < number(y.rank_hint);
  if (x.scheduler_order != y.scheduler_order) {
    return number(x.scheduler_order) < number(y.scheduler_order);
  }
  return natural_less(x.id, y.id);
}

}  // namespace

void Rounds::State::begin_gathering() {
  static_cast<EpochState&>(*this) = {};
  phase = Phase::gathering;
  last_call.reset();
  join_deadline = deadline_after(rules.join_timeout, first_loss ? first_loss->at : now);
  re_forming = true;
  for (auto& [session, node] : nodes) node.take({});
}

/// From here on, only the ranks that the nodes had are known of the last epoch.
void Rounds::State::begin_epoch() {
  static_cast<EpochState&>(*this) = {};
  phase = Phase::running;
  re_forming = true;
  if (!begun) {
    begun = now;
    launch.reset();  // Some of those who came may be gone.
  }
  first_loss.reset();
  join_deadline.reset();
  last_call.reset();
  leaving_until.reset();
  standing_due.reset();
  rank_of.clear();
}

void Rounds::State::consider_gathering(Session newcomer) {
  if (leaving_until && *leaving_until <= now) leaving_until.reset();
  if (nodes.empty()) {
    last_call.reset();
    if (!re_forming) {
      has_rules = false;  // The next to come brings its own.
      launch.reset();
      join_deadline.reset();
    }
    if (join_deadline && *join_deadline <= now) give_up_gathering();
    return;
  }
  if (!join_deadline) join_deadline = deadline_after(rules.join_timeout, now);
  // A node whose connection broke is back in a moment, or lost.
  const int present = count() - broken;
  if (present >= rules.nodes_max && !leaving_until) return close();
  if (count() < rules.nodes_min) {
    last_call.reset();
    if (*join_deadline <= now) return give_up_gathering();
    return stand_gathering(newcomer);
  }
  const bool calls = elastic() && !re_forming;
  if (calls && !last_call) last_call = deadline_after(rules.last_call, now);
  const bool complete = broken == 0 && (!calls || *last_call <= now);
  if (complete && !leaving_until) return close();
  stand_gathering(newcomer);
}

void Rounds::State::give_up_gathering() {
  const bool first = !re_forming;
  std::string text = first || !first_loss ? "" : first_loss->reason + "; ";
  const std::string within = " within " + duration_text(rules.join_timeout);
  if (nodes.empty()) {
    text += "no node came back" + within;
  } else {
    text += "only " + count_text() + (first ? " came" : " were there") + within + ": " +
            names_here() + missing_ranks();
  }
  finish(!first && first_loss ? exit_code::node_lost : exit_code::ranks_missing, text);
}

/// If there is no room for all, the nodes of the last epoch come first.
std::vector<Node*> Rounds::State::choose() {
  std::vector<std::pair<int, Node*>> candidates;  // Each with the rank it had.
  candidates.reserve(nodes.size());
  for (auto& [session, node] : nodes) {
    if (node.gone) continue;
    const auto had = rank_of.find(node.offer.id);
    candidates.emplace_back(had == rank_of.end() ? std::numeric_limits<int>::max() : had->second,
                            &node);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : before(a.second, b.second);
  });
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(rules.nodes_max)));
  std::vector<Node*> chosen;
  chosen.reserve(candidates.size());
  for (const auto& candidate : candidates) chosen.push_back(candidate.second);
  return chosen;
}

/// A claim is the hint, or the rank a node had, unless another's hint is the same. Claims that fit
/// are honoured and newcomers fill the holes; where the world is too small for a claim, those who
/// have one close up in their order.
std::vector<Node*> Rounds::State::in_rank_order(const std::vector<Node*>& chosen) const {
  std::set<int> hints;
  for (const Node* node : chosen) {
    if (node->offer.rank_hint) hints.insert(*node->offer.rank_hint);
  }
  std::vector<std::pair<int, Node*>> claims;
  std::vector<Node*> newcomers;
  for (Node* node : chosen) {
    const auto had = rank_of.find(node->offer.id);
    if (node->offer.rank_hint) {
      claims.emplace_back(*node->offer.rank_hint, node);
    } else if (had != rank_of.end() && !hints.contains(had->second)) {
      claims.emplace_back(had->second, node);
    } else {
      newcomers.push_back(node);
    }
  }
  std::sort(claims.begin(), claims.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::sort(newcomers.begin(), newcomers.end(), before);
  std::vector<Node*> ordered;
  ordered.reserve(chosen.size());
  auto claim = claims.begin();
  auto newcomer = newcomers.begin();
  while (ordered.size() < chosen.size()) {
    const bool due = claim != claims.end() && claim->first <= static_cast<int>(ordered.size());
    if (due || newcomer == newcomers.end()) {
      ordered.push_back((claim++)->second);
    } else {
      ordered.push_back(*newcomer++);
    }
  }
  return ordered;
}

void Rounds::State::close() {
  const auto chosen = in_rank_order(choose());
  begin_epoch();
  incarnation = use.number;
  epoch = epoch_seen = std::max(epoch, epoch_seen) + 1;
  members = running = static_cast<int>(chosen.size());
  for (const Node* node : chosen) world_size += node->offer.workers;

  std::vector<Admission::Entry> roster;
  roster.reserve(chosen.size());
  int first_rank = 0;
  for (Node* node : chosen) {
    const int node_rank = static_cast<int>(roster.size());
    rank_of[node->offer.id] = node_rank;
    learn_launch(node->offer);
    Admission admission;
    admission.again_for = again_for;
    admission.incarnation = incarnation;
    admission.epoch = epoch;
    admission.attempt = attempt;
    admission.node_rank = node_rank;
    admission.node_count = members;
    admission.first_rank = first_rank;
    admission.local_size = node->offer.workers;
    admission.world_size = world_size;
    admission.store_addresses = chosen.front()->offer.store_addresses;
    roster.push_back({node->offer.id, node->offer.host, first_rank, node->offer.workers,
                      node->offer.store_addresses});
    node->admission = std::move(admission);
    first_rank += node->offer.workers;
  }
  chosen.front()->admission->roster = std::move(roster);
  for (const Node* node : chosen) put(Admit{node->session, *node->admission});
  std::string sentence = "epoch " + std::to_string(epoch) + ": " + plural(members, "node") + ", " +
                         plural(world_size, "worker");
  const int waiting = count() - members;
  if (waiting > 0) sentence += "; " + std::to_string(waiting) + " waiting";
  stand(std::move(sentence));
}

}  // namespace dlaunch::rendezvous
