#include "rendezvous/rounds/rounds_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// So that a world's size is an int, whatever is asked for.
constexpr int workers_max = 32'767;
constexpr int nodes_max = 65'536;
/// So that a number that grows by one for each round does not wrap.
constexpr std::uint64_t epoch_max = std::uint64_t{1} << 62;

/// An agent tries to reach a rendezvous that was gone every 5 s, and one try may take as long.
constexpr Clock::duration comes_back_within = std::chrono::seconds(12);

/// Finds rules that make no sense, whoever brings them.
std::optional<std::string> nonsense(const Join& e) {
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
  if (rules.max_restarts < 0) return name + " asks for a negative --max-restarts";
  const auto zero = Clock::duration::zero();
  if (rules.lease <= zero || rules.reconnect_grace < zero || rules.join_timeout < zero ||
      rules.last_call < zero) {
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

/// Which of the rules that all nodes must share are not shared.
std::optional<std::string> disagreement(const std::string& id, const JobRules& theirs,
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
  if (theirs.max_restarts != job.max_restarts) {
    return asks + "--max-restarts " + std::to_string(theirs.max_restarts) + has +
           std::to_string(job.max_restarts) + from;
  }
  if (theirs.continue_on_failure != job.continue_on_failure) {
    const auto name = [](bool goes_on) { return goes_on ? "continue" : "stop"; };
    return asks + "--on-failure " + name(theirs.continue_on_failure) + has +
           name(job.continue_on_failure) + from;
  }
  return std::nullopt;
}

}  // namespace

void Rounds::State::on(const Join& e) {
  Node* known = find(e.session);
  if (phase == Phase::finished) {
    if (known) return put(*finish_said);
    return put(Refuse{e.session, Errc::refused, exit_code::usage,
                      "the job is over: " + finish_said->sentence});
  }
  if (known) {
    const bool dropped = known->confirmed && !known->end && !e.holding;
    if (!dropped) return join_again(*known, e);
    // An earlier rendezvous had given it up, and it has ended its workers since.
    lose({{e.session, "it gave up its place in epoch " + std::to_string(epoch)}});
    return on(e);
  }
  if (auto why = nonsense(e)) {
    return put(Refuse{e.session, Errc::misuse, exit_code::usage, std::move(*why)});
  }
  const bool adopts = e.holding && adoptable(*e.holding);
  if (adopts) yield_to(e);
  if (auto no = objection(e)) return put(std::move(*no));
  if (e.holding) epoch_seen = std::max(epoch_seen, e.holding->epoch);
  if (e.holding && !adopts) return tell_evicted(e.session, e.holding->epoch);
  if (const auto why = adopts ? contradiction(e) : std::nullopt) {
    return put(Refuse{e.session, Errc::mismatch, exit_code::usage, *why});
  }

  lost.erase(e.session);
  if (!std::exchange(has_rules, true)) {
    rules = e.rules;
    rules_from = e.offer.id;
    join_deadline.reset();
  }
  std::vector<std::pair<Session, std::string>> gone;
  for (const Session session : predecessors(e.offer)) {
    gone.emplace_back(session, nodes.at(session).offer.id == e.offer.id
                                   ? "it was started again"
                                   : "node " + e.offer.id + " has come in its place");
  }
  Node newcomer;
  newcomer.session = e.session;
  newcomer.offer = e.offer;
  newcomer.last_heard = now;
  Node& node = insert(std::move(newcomer));
  if (!gone.empty()) lose(gone);
  if (phase == Phase::finished || node.member()) return;
  if (adopts) return adopt(node, *e.holding);
  if (phase != Phase::gathering) return welcome(node);
  note_launch(node.offer);
  consider_gathering(e.session);
}

/// Between two rounds: one more is used at once where there is room, else it waits.
void Rounds::State::welcome(const Node& node) {
  const bool room = members < rules.nodes_max;
  // An epoch that has begun to end is let end.
  if (phase == Phase::running && room && ends.empty() && awaited.empty()) {
    return begin_end(EndCause::arrival, "node " + node.offer.id + " joins");
  }
  std::string text = "waiting: ";
  if (phase == Phase::stopping) {
    text += "the workers of epoch " + std::to_string(epoch) + " are being stopped";
  } else if (!awaited.empty()) {
    text += "the rendezvous was started again, and the nodes of epoch " + std::to_string(epoch) +
            " are coming back to it";
  } else if (room) {
    text += "the first workers of the job have ended already";
  } else {
    text += "the job runs with " + (members == 1 ? "one node" : "all " + plural(members, "node"));
    text += replaceable() ? "; you are next if one is lost"
                          : ", and it has no restart left with which to replace one";
  }
  put(Standing{node.session, std::move(text)});
  turn_away_second_job();
}

/// After a reconnect: whatever may have been lost on the way is said again.
void Rounds::State::join_again(Node& node, const Join& e) {
  const bool was_member = node.member();
  heard(node);
  if (phase == Phase::finished || was_member != node.member()) return;
  if (!standing.empty()) put(Standing{node.session, standing});
  if (!node.member()) return;
  if (node.end) return;
  const bool knows = e.holding && e.holding->epoch == epoch;
  node.confirmed = node.confirmed || knows;
  if (!knows) put(Admit{node.session, *node.admission});
  for (RanksLost loss : repeated) {
    if (loss.except == node.session) continue;
    loss.to = node.session;
    put(std::move(loss));
  }
  if (node.order) put(*node.order);
}

std::optional<Refuse> Rounds::State::objection(const Join& e) const {
  if (has_rules) {
    if (auto why = disagreement(e.offer.id, e.rules, rules, rules_from)) {
      return Refuse{e.session, Errc::mismatch, exit_code::usage, std::move(*why)};
    }
  }
  if (!e.holding) {
    if (auto why = of_second_job(e.offer)) return second_job(e.session, *why);
  }
  if (auto no = claim_objection(e)) return no;
  if (!e.holding) {
    if (auto why = useless(e.offer)) return second_job(e.session, *why);
  }
  return std::nullopt;
}

/// Its id and its rank may be another's.
std::optional<Refuse> Rounds::State::claim_objection(const Join& e) const {
  const auto same_id = by_id.find(e.offer.id);
  if (same_id != by_id.end()) {
    const Node& other = nodes.at(same_id->second);
    if (!absent(other)) {
      return Refuse{e.session, Errc::refused, exit_code::usage,
                    "there is a node " + e.offer.id + " already, on " + other.offer.host +
                        "; give this one another --node-id" + or_another_job()};
    }
  }
  if (!e.offer.rank_hint) return std::nullopt;
  const auto same_rank = by_hint.find(*e.offer.rank_hint);
  if (same_rank != by_hint.end()) {
    const Node& other = nodes.at(same_rank->second);
    if (!absent(other)) {
      return Refuse{e.session, Errc::refused, exit_code::usage,
                    "node rank " + std::to_string(*e.offer.rank_hint) + " is taken by node " +
                        other.offer.id + " on " + other.offer.host + "; give node " + e.offer.id +
                        " another --node-rank" + or_another_job()};
    }
  }
  return std::nullopt;
}

std::vector<Session> Rounds::State::predecessors(const NodeOffer& offer) const {
  std::vector<Session> gone;
  const auto same_id = by_id.find(offer.id);
  if (same_id != by_id.end()) gone.push_back(same_id->second);
  if (offer.rank_hint) {
    const auto same_rank = by_hint.find(*offer.rank_hint);
    if (same_rank != by_hint.end() && (gone.empty() || gone.front() != same_rank->second)) {
      gone.push_back(same_rank->second);
    }
  }
  return gone;
}

bool Rounds::State::absent(const Node& node) const {
  return node.gone || now - node.last_heard > rules.lease / 2;
}

// ---- An epoch that began before this rendezvous did ----

bool Rounds::State::adoptable(const Holding& held) const {
  if (held.incarnation != incarnation) return comes_back(held);
  if (phase == Phase::gathering) return !re_forming && held.epoch >= epoch;
  // A stale node may have been the first to come back.
  if (held.epoch > epoch) return !awaited.empty();
  if (held.epoch < epoch) return false;
  return awaited.contains(held.node_rank) || holder_of(held.node_rank) != nullptr;
}

/// The node that has come back with this rank, and still has it.
const Node* Rounds::State::holder_of(int node_rank) const {
  const auto back = adopted.find(node_rank);
  if (back == adopted.end()) return nullptr;
  const auto node = nodes.find(back->second.session);
  return node != nodes.end() && node->second.member() ? &node->second : nullptr;
}

/// The node is of another incarnation, which does not have to be over: it may have begun at a
/// rendezvous before this one. The later of two such counts.
bool Rounds::State::comes_back(const Holding& held) const {
  const bool ended_here = held.incarnation >= use.first_here && held.incarnation < use.number;
  const bool too_late = begun && now > use.return_by;
  return !ended_here && !too_late && held.epoch >= last_epoch && held.incarnation > taken_up;
}

/// The nodes of a job that runs go before those that came while its rendezvous was away.
void Rounds::State::yield_to(const Join& e) {
  if (phase == Phase::gathering || e.holding->incarnation != incarnation) {
    return start_over(*e.holding);
  }
  for (const Session session : predecessors(e.offer)) {
    if (nodes.at(session).member()) continue;
    const std::string id = nodes.at(session).offer.id;
    remove(session);
    put(Refuse{session, Errc::refused, exit_code::usage,
               "node " + id + " stands in the place of node " + e.offer.id + " on " + e.offer.host +
                   ", which has come back" + or_another_job()});
  }
}

/// All nodes that are here join anew, and are judged by the job that has come back.
void Rounds::State::start_over(const Holding& held) {
  std::vector<Session> here;
  for (const auto& [session, node] : nodes) here.push_back(session);
  for (const Session session : here) {
    const Node node = remove(session);
    tell_evicted(session, node.member() ? epoch : 0,
                 (name.empty() ? "the job" : "the job '" + name + "'") +
                     " was at work when the rendezvous was started again, and its nodes have come "
                     "back");
  }
  static_cast<EpochState&>(*this) = {};
  phase = Phase::gathering;
  re_forming = has_rules = false;
  begun.reset();
  launch.reset();
  first_loss.reset();
  rank_of.clear();
  incarnation = taken_up = held.incarnation;
  epoch = epoch_seen = last_epoch;
}

/// How this claim does not fit to what others of the same epoch have claimed.
std::optional<std::string> Rounds::State::contradiction(const Join& e) const {
  const Holding& held = *e.holding;
  if (phase == Phase::gathering || held.epoch != epoch) return std::nullopt;
  const std::string of_epoch = " of epoch " + std::to_string(epoch);
  const std::string claim =
      "node " + e.offer.id + " claims node rank " + std::to_string(held.node_rank) + of_epoch;
  if (const Node* holder = holder_of(held.node_rank)) {
    return claim + ", which node " + holder->offer.id + " holds";
  }
  const auto next = adopted.upper_bound(held.node_rank);
  const bool fits_next =
      next == adopted.end() || held.first_rank + e.offer.workers <= next->second.first_rank;
  const bool fits_previous =
      next == adopted.begin() ||
      std::prev(next)->second.first_rank + std::prev(next)->second.workers <= held.first_rank;
  if (held.node_count == members && held.world_size == world_size && held.attempt == attempt &&
      fits_next && fits_previous) {
    return std::nullopt;
  }
  return claim + " with ranks that do not fit to the other nodes'";
}

void Rounds::State::begin_adoption(const Holding& held) {
  std::vector<Session> stale;
  for (const auto& [session, node] : nodes) {
    if (node.member()) stale.push_back(session);
  }
  for (const Session session : stale) {
    const auto of_epoch = remove(session).admission->epoch;
    tell_evicted(session, of_epoch);
  }
  begin_epoch();
  epoch = held.epoch;
  attempt = held.attempt;
  world_size = held.world_size;
  members = held.node_count;
  for (int rank = 0; rank < held.node_count; ++rank) awaited.insert(awaited.end(), rank);
  awaited_until =
      deadline_after(std::max(rules.lease + rules.reconnect_grace, comes_back_within), now);
  stand("the rendezvous was started again; waiting for the " + plural(members, "node") +
        " of epoch " + std::to_string(epoch));
}

void Rounds::State::adopt(Node& node, const Holding& held) {
  if (phase == Phase::gathering || held.epoch > epoch) begin_adoption(held);
  Admission admission;
  admission.incarnation = held.incarnation;
  admission.epoch = held.epoch;
  admission.attempt = held.attempt;
  admission.node_rank = held.node_rank;
  admission.node_count = held.node_count;
  admission.first_rank = held.first_rank;
  admission.local_size = node.offer.workers;
  admission.world_size = held.world_size;
  node.admission = std::move(admission);
  node.confirmed = true;
  learn_launch(node.offer);
  rank_of[node.offer.id] = held.node_rank;
  adopted[held.node_rank] = {node.session, held.first_rank, node.offer.workers};
  awaited.erase(held.node_rank);
  ++running;
  if (cause != EndCause::none) {
    node.order = Stop{node.session, epoch, manner_of(cause), cause_reason};
    put(*node.order);
  }
  if (awaited.empty()) return all_are_back();
  put(Standing{node.session, std::to_string(members - static_cast<int>(awaited.size())) +
                                 " of the " + plural(members, "node") + " of epoch " +
                                 std::to_string(epoch) + " are back; waiting for the others"});
}

void Rounds::State::all_are_back() {
  awaited_until.reset();
  if (phase != Phase::running) return;
  stand("epoch " + std::to_string(epoch) + " goes on with all " + plural(members, "node"));
  turn_away_second_job();
  const auto waiting = std::find_if(nodes.begin(), nodes.end(),
                                    [](const auto& entry) { return !entry.second.member(); });
  if (waiting != nodes.end()) welcome(waiting->second);
}

void Rounds::State::give_up_awaited() {
  awaited_until.reset();
  const std::string text = plural(static_cast<int>(awaited.size()), "node") + " of epoch " +
                           std::to_string(epoch) + " did not come back to the rendezvous";
  std::vector<RanksLost> gaps;
  int next = 0;
  const auto gap_until = [&](int rank) {
    if (rank <= next) return;
    gaps.push_back({epoch, next, rank - next, "a lost node", text, 0});
    evidence.facts.lost[next] = rank - next;
  };
  for (const auto& [node_rank, held] : adopted) {
    gap_until(held.first_rank);
    next = held.first_rank + held.workers;
  }
  gap_until(world_size);
  awaited.clear();
  note_loss(text);
  tell_ranks_lost(std::move(gaps));
  if (!rules.continue_on_failure) return begin_end(EndCause::loss, text);
  ends.push_back({0, epoch, WorkersEnded::Outcome::failed, exit_code::node_lost, text});
  judge_if_ended();
}

}  // namespace dlaunch::rendezvous
