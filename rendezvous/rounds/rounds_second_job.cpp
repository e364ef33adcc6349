#include "rendezvous/rounds/rounds_state.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {
namespace {

constexpr const char* no_use = "it has no restart left with which to replace one";

}  // namespace

/// One scheduler's job started it and all the others, or it had a rank in the last epoch: it is of
/// this job, whatever else it says.
bool Rounds::State::is_ours(const NodeOffer& offer) const {
  const bool together = launch && launch->start != 0 && launch->start == offer.launch.start;
  return together || rank_of.contains(offer.id);
}

/// It runs something else. While the nodes of a first round gather, or where they differ among
/// each other, that says nothing: a launch may give each node arguments of its own.
std::optional<std::string> Rounds::State::of_second_job(const NodeOffer& offer) const {
  const bool known = begun && launch && launch->line != 0 && offer.launch.line != 0;
  if (!known || launch->line == offer.launch.line) return std::nullopt;
  if (launch->start != 0 && launch->start == offer.launch.start) return std::nullopt;
  return "its nodes were started by another command line";
}

/// All places are taken, and none can become free.
std::optional<std::string> Rounds::State::useless(const NodeOffer& offer) const {
  const bool full = phase == Phase::running && broken == 0 && awaited.empty();
  if ((!full && phase != Phase::stopping) || replaceable() || is_ours(offer) ||
      !predecessors(offer).empty()) {
    return std::nullopt;
  }
  return no_use;
}

/// As many wait as there are places: that is no longer a few spares.
void Rounds::State::turn_away_second_job() {
  if (phase != Phase::running || !awaited.empty()) return;
  std::vector<std::pair<Session, std::string>> others;
  int waiting = 0;
  for (const auto& [session, node] : nodes) {
    if (node.member() || is_ours(node.offer)) continue;
    ++waiting;
    if (const auto why = of_second_job(node.offer)) {
      others.emplace_back(session, *why);
    } else if (!replaceable() && broken == 0) {
      others.emplace_back(session, no_use);
    }
  }
  if (members >= rules.nodes_max && waiting >= rules.nodes_max) {
    others.clear();
    for (const auto& [session, node] : nodes) {
      if (node.member() || is_ours(node.offer)) continue;
      others.emplace_back(session, "as many more have come, which is a job of their own");
    }
  }
  for (const auto& [session, why] : others) {
    put(second_job(session, why));
    remove(session);
  }
}

Refuse Rounds::State::second_job(Session session, const std::string& why) const {
  return {session, Errc::refused, exit_code::usage,
          job_here() + ", and " + why + "; end it first, or give another job another --rdzv-id"};
}

/// "the job 'red' has run for 12 min on 2 nodes, a and b".
std::string Rounds::State::job_here() const {
  std::vector<std::pair<int, std::string>> by_rank;
  for (const auto& [session, node] : nodes) {
    const auto had = rank_of.find(node.offer.id);
    if (had != rank_of.end()) by_rank.emplace_back(had->second, node.offer.id);
  }
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<std::string> names;
  names.reserve(by_rank.size());
  for (auto& [rank, id] : by_rank) names.push_back(std::move(id));
  std::string text = name.empty() ? "the job" : "the job '" + name + "'";
  text += " has run for " + age_text(now - begun.value_or(now));
  if (names.empty()) return text;
  return text + " on " + plural(static_cast<int>(names.size()), "node") + ", " + list_text(names);
}

/// The usual reason for two nodes of one name in a job that runs is that it was started twice.
std::string Rounds::State::or_another_job() const {
  return begun ? "; " + job_here() + ": another job needs another --rdzv-id" : "";
}

/// A first round takes nodes of different command lines, but says so.
void Rounds::State::note_launch(const NodeOffer& offer) {
  if (begun) return;
  const bool one_line = launch && launch->line != 0;
  learn_launch(offer);
  if (!one_line || launch->line != 0) return;
  put(Standing{0, "node " + offer.id + " was started by another command line than node " +
                      rules_from + "; another job needs another --rdzv-id"});
}

/// Only what all of them say is known of them.
void Rounds::State::learn_launch(const NodeOffer& offer) {
  if (!launch) {
    launch = offer.launch;
    return;
  }
  if (launch->line != offer.launch.line) launch->line = 0;
  if (launch->start != offer.launch.start) launch->start = 0;
}

}  // namespace dlaunch::rendezvous
