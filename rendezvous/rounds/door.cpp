#include "rendezvous/rounds/door.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {
namespace {

/// Limits that keep a world's size an int.
constexpr int workers_max = 32'767;
constexpr int nodes_max = 65'536;
/// A limit that keeps the number, which grows by one for each round, from wrapping.
constexpr std::uint64_t epoch_max = std::uint64_t{1} << 62;

constexpr const char* no_use = "it has no restart left with which to replace one";

/// Finds rules that make no sense, whoever brings them.
std::optional<std::string> find_nonsense(const Join& e) {
  const auto number = [](int n) { return std::to_string(n); };
  const JobRules& rules = e.rules;
  if (e.offer.id.empty()) return "a node without an id cannot join; give it a --node-id";
  const std::string name = "node " + e.offer.id;
  if (e.offer.workers < 1 || e.offer.workers > workers_max) {
    return name + " offers " + number(e.offer.workers) + " workers; 1 to " + number(workers_max) +
           " are possible";
  }
  if (rules.nodes_min < 1 || rules.nodes_max < rules.nodes_min || rules.nodes_max > nodes_max) {
    return name + " asks for " + number(rules.nodes_min) + " to " + number(rules.nodes_max) +
           " nodes (--nnodes); 1 to " + number(nodes_max) + " are possible";
  }
  if (rules.spares < 0 || rules.spares > nodes_max) {
    return name + " asks for " + number(rules.spares) + " spares (--spares); 0 to " +
           number(nodes_max) + " are possible";
  }
  if (rules.max_restarts < 0) return name + " asks for a negative --max-restarts";
  const auto zero = Clock::duration::zero();
  if (rules.liveness.lease <= zero || rules.liveness.reconnect_grace < zero ||
      rules.join_timeout < zero || rules.last_call < zero || rules.restart_window < zero ||
      rules.restart_backoff.first < zero || rules.restart_backoff.longest < zero) {
    return name + " has a timeout that is negative, or a lease of none";
  }
  if (e.offer.rank_hint && (*e.offer.rank_hint < 0 || *e.offer.rank_hint >= rules.nodes_max)) {
    return name + " asks for node rank " + number(*e.offer.rank_hint) +
           " (--node-rank); the job's " + plural(rules.nodes_max, "node") +
           (rules.nodes_max == 1 ? " has" : " have") + " the ranks 0 to " +
           number(rules.nodes_max - 1);
  }
  if (!e.holding) return std::nullopt;
  const Holding& held = *e.holding;
  const bool sound = held.epoch > 0 && held.epoch <= epoch_max && held.attempt >= 0 &&
                     held.node_count >= 1 && held.node_count <= rules.nodes_max &&
                     held.node_rank >= 0 && held.node_rank < held.node_count &&
                     held.first_rank >= 0 && held.world_size >= e.offer.workers &&
                     held.first_rank <= held.world_size - e.offer.workers;
  if (!sound)
    return name + " claims a place in an epoch that cannot be; stop it, and start it again";
  return std::nullopt;
}

/// The first rule in which a node differs although all nodes must share it.
std::optional<std::string> find_difference(const std::string& id, const JobRules& theirs,
                                           const JobRules& job, const std::string& job_from) {
  const std::string asks = "node " + id + " asks for ";
  const std::string has = ", this job has ";
  const std::string from = " (node " + job_from + ")";
  if (theirs.nodes_min != job.nodes_min || theirs.nodes_max != job.nodes_max) {
    const bool same_noun = theirs.nodes_max != 1 && job.nodes_max != 1;
    std::string ours = nodes_text(job);
    if (same_noun) ours.resize(ours.size() - std::string_view(" nodes").size());
    return asks + nodes_text(theirs) + has + ours + from;
  }
  if (theirs.spares != job.spares) {
    return asks + "--spares " + std::to_string(theirs.spares) + has + std::to_string(job.spares) +
           from;
  }
  if (theirs.max_restarts != job.max_restarts) {
    return asks + "--max-restarts " + std::to_string(theirs.max_restarts) + has +
           std::to_string(job.max_restarts) + from;
  }
  if (theirs.restart_window != job.restart_window) {
    return asks + "--restart-window " + duration_text(theirs.restart_window) + has +
           duration_text(job.restart_window) + from;
  }
  if (theirs.restart_backoff != job.restart_backoff) {
    const auto text = [](const RestartBackoff& backoff) {
      return duration_text(backoff.first) + " to " + duration_text(backoff.longest);
    };
    return asks + "--restart-backoff " + text(theirs.restart_backoff) + has +
           text(job.restart_backoff) + from;
  }
  if (theirs.continue_on_failure != job.continue_on_failure) {
    const auto name = [](bool goes_on) { return goes_on ? "continue" : "stop"; };
    return asks + "--on-failure " + name(theirs.continue_on_failure) + has +
           name(job.continue_on_failure) + from;
  }
  return std::nullopt;
}

Refuse refusal(Session session, Errc code, std::string why) {
  return {session, code, exit_code::usage, std::move(why)};
}

}  // namespace

std::optional<Refuse> Door::nonsense(const Join& e) {
  auto why = find_nonsense(e);
  return why ? std::optional(refusal(e.session, Errc::misuse, std::move(*why))) : std::nullopt;
}

std::optional<Refuse> Door::objection(const Join& e) const {
  if (job_.course.rules_from) {
    if (auto why = find_difference(e.offer.id, e.rules, job_.rules, *job_.course.rules_from)) {
      return refusal(e.session, Errc::mismatch, std::move(*why));
    }
  }
  if (!e.holding) {
    if (auto why = of_second_job(e.offer)) return second_job(e.session, *why);
  }
  if (auto why = taken(e.offer)) {
    return refusal(e.session, Errc::refused, *why + or_another_job());
  }
  if (!e.holding && is_useless(e.offer)) return second_job(e.session, no_use);
  if (!e.holding && is_one_too_many(e.offer)) {
    return second_job(e.session, "its " + plural(job_.rules.spares, "spare") +
                                     (job_.rules.spares == 1 ? " is" : " are") + " here already");
  }
  return std::nullopt;
}

/// Whether another node has its id or its rank.
std::optional<std::string> Door::taken(const NodeOffer& offer) const {
  const Node* other = job_.nodes.with_id(offer.id);
  if (other && !other->absent(job_.rules, job_.now)) {
    return "there is a node " + offer.id + " already, on " + other->offer.host +
           "; give this one another --node-id";
  }
  if (!offer.rank_hint) return std::nullopt;
  other = job_.nodes.with_rank_hint(*offer.rank_hint);
  if (!other || other->absent(job_.rules, job_.now)) return std::nullopt;
  return "node rank " + std::to_string(*offer.rank_hint) + " is taken by node " + other->offer.id +
         " on " + other->offer.host + "; give node " + offer.id + " another --node-rank";
}

// ---- A second job under the same id ----

/// Whether the node surely belongs to this job: one scheduler's job started it and all the others,
/// or it had a rank in the last epoch.
bool Door::is_ours(const NodeOffer& offer) const {
  return job_.course.launch.is_together(offer.launch) || job_.legacy().rank_of.contains(offer.id);
}

/// Why the node is of a second job: it runs another command line. That means nothing while the
/// nodes of a first round gather, or if they already differ: a launch may give each node its own
/// arguments.
std::optional<std::string> Door::of_second_job(const NodeOffer& offer) const {
  if (!job_.course.begun || !job_.course.launch.is_other_line(offer.launch)) return std::nullopt;
  return "its nodes were started by another command line";
}

/// Whether all places are taken and none can become free.
bool Door::is_useless(const NodeOffer& offer) const {
  const Epoch* epoch = job_.epoch();
  if (!epoch || job_.finished()) return false;
  const bool is_full = job_.nodes.broken() == 0 && epoch->back().awaited.empty();
  return (is_full || epoch->ending()) && !job_.replaceable() && !is_ours(offer) &&
         job_.nodes.predecessors(offer).empty();
}

bool Door::is_one_too_many(const NodeOffer& offer) const {
  const JobRules& rules = job_.rules;
  return rules.spares > 0 && job_.epoch() && job_.nodes.broken() == 0 && !is_ours(offer) &&
         job_.nodes.count() >= rules.nodes_max + rules.spares &&
         job_.nodes.predecessors(offer).empty();
}

/// Refuses nodes when as many wait as there are places: those are no spares any more.
std::vector<Refuse> Door::second_jobs() const {
  if (!job_.running() || !job_.epoch()->back().awaited.empty()) return {};
  std::vector<const Node*> waiting;
  for (const auto& [session, node] : job_.nodes) {
    if (!job_.member(session) && !is_ours(node.offer)) waiting.push_back(&node);
  }
  const int places = job_.rules.nodes_max;
  const int count = static_cast<int>(waiting.size());
  const bool are_a_job =
      job_.epoch()->node_count() >= places && count >= places && count > job_.rules.spares;
  std::vector<Refuse> refused;
  for (const Node* node : waiting) {
    if (are_a_job) {
      refused.push_back(
          second_job(node->session, "as many more have come, which is a job of their own"));
    } else if (const auto why = of_second_job(node->offer)) {
      refused.push_back(second_job(node->session, *why));
    } else if (!job_.replaceable() && job_.nodes.broken() == 0) {
      refused.push_back(second_job(node->session, no_use));
    }
  }
  return refused;
}

Refuse Door::second_job(Session session, const std::string& why) const {
  return refusal(
      session, Errc::refused,
      job_here() + ", and " + why + "; end it first, or give another job another --rdzv-id");
}

/// "the job 'red' has run for 12 min on 2 nodes, a and b".
std::string Door::job_here() const {
  const NodeRanks& rank_of = job_.legacy().rank_of;
  std::vector<std::pair<int, std::string>> by_rank;
  for (const auto& [session, node] : job_.nodes) {
    const auto had = rank_of.find(node.offer.id);
    if (had != rank_of.end()) by_rank.emplace_back(had->second, node.offer.id);
  }
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<std::string> names;
  names.reserve(by_rank.size());
  for (auto& [rank, id] : by_rank) names.push_back(std::move(id));
  const std::string text = job_.name_text() + " has run for " +
                           age_text(job_.now - job_.course.begun.value_or(job_.now));
  if (names.empty()) return text;
  return text + " on " + plural(static_cast<int>(names.size()), "node") + ", " + list_text(names);
}

/// The usual reason for two nodes of one name in a job that runs is that it was started twice.
std::string Door::or_another_job() const {
  return job_.course.begun ? "; " + job_here() + ": another job needs another --rdzv-id" : "";
}

// ---- An epoch that began before this rendezvous did ----

bool Door::adoptable(const Holding& held) const {
  const EpochNumbers& numbers = job_.numbers;
  if (held.incarnation != numbers.incarnation()) {
    const bool too_late = job_.course.begun && job_.now > numbers.return_by();
    return !too_late && numbers.may_return(held);
  }
  const Epoch* epoch = job_.epoch();
  if (!epoch) return job_.gathering()->first() && held.epoch >= numbers.epoch();
  // The first node to come back may have been a stale one.
  if (held.epoch > epoch->number()) return !epoch->back().awaited.empty();
  if (held.epoch < epoch->number()) return false;
  return epoch->back().awaited.contains(held.node_rank) || holder_of(held.node_rank);
}

/// The node that has come back with this rank, and still has it.
const Participant* Door::holder_of(int node_rank) const {
  const auto& back = job_.epoch()->back().places;
  const auto place = back.find(node_rank);
  return place == back.end() ? nullptr : job_.member(place->second.session);
}

std::optional<Refuse> Door::contradiction(const Join& e) const {
  const Holding& held = *e.holding;
  const Epoch* epoch = job_.epoch();
  if (!epoch || held.epoch != epoch->number()) return std::nullopt;
  const std::string claim = "node " + e.offer.id + " claims node rank " +
                            std::to_string(held.node_rank) + " of epoch " +
                            std::to_string(epoch->number());
  if (const Participant* holder = holder_of(held.node_rank)) {
    return refusal(e.session, Errc::mismatch, claim + ", which node " + holder->id + " holds");
  }
  if (held.node_count == epoch->node_count() && held.world_size == epoch->world_size() &&
      held.attempt == job_.course.attempt &&
      epoch->back().has_room(held.node_rank, held.first_rank, e.offer.workers)) {
    return std::nullopt;
  }
  return refusal(e.session, Errc::mismatch,
                 claim + " with ranks that do not fit to the other nodes'");
}

}  // namespace dlaunch::rendezvous
