#include "rendezvous/rounds/rounds.hpp"

#include "rendezvous/rounds/door.hpp"
#include "rendezvous/rounds/judgement.hpp"
#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dlaunch::rendezvous {

/// A job, and what each event does to it.
struct Rounds::State : JobState {
  void on(const Join& e);
  void on(const Leave& e);
  void on(const Disconnected& e);
  void on(const Heartbeat& e);
  void on(const WorkerFailed& e);
  void on(const WorkerLeft& e);
  void on(const WorkersEnded& e);
  void on(const CallsMade& e);
  void on(const TookPlace& e) { at_work(e.session, e.epoch); }
  void on(const Tick& e);
  void on(const StopJob& e) { stop(e); }
  void on(const DrainJob& e) { drain(e); }
  void on(const EvictNode& e) { put_out(e); }

  // ---- Coming ----
  void join_again(const Node& node, const Join& e);
  void come_in(const Join& e, bool adopts);
  void welcome(const Node& node);
  void turn_away_second_jobs();
  std::string break_text(const Node& n) const { return standstill.break_text(rules, *n.gone); }

  // ---- An epoch that began before this rendezvous did ----
  void yield_to(const Join& e);
  void take_up(const Holding& held);
  void adopt(const Node& node, const Holding& held);
  void all_are_back();
  void give_up_awaited();

  /// The node's place. Null where its message changes nothing: it is about another epoch, or the
  /// node's workers have ended, or the job has.
  const Participant* at_work(Session session, std::uint64_t of_epoch);

  std::optional<Takeover> taken_over;  ///< Until the first event.
};

Finish Finish::for_lost_node(std::string sentence) {
  return {exit_code::node_lost, std::nullopt, std::move(sentence), std::nullopt, Cause::node_lost};
}

Rounds::Rounds(std::uint64_t last_epoch, Incarnation incarnation, std::string name,
               std::optional<Hosting> hosting)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->numbers = EpochNumbers(last_epoch, incarnation);
  if (!hosting) return;
  state_->quorum.emplace();
  state_->taken_over = std::move(hosting->taken_over);
}
Rounds::~Rounds() = default;
Rounds::Rounds(Rounds&&) noexcept = default;
Rounds& Rounds::operator=(Rounds&&) noexcept = default;

Effects Rounds::step(const Event& event, Clock::time_point now) {
  Effects effects = begin_step(event, now);
  if (!unfinished()) return effects;
  state_->finish_seating();
  std::ranges::move(state_->announcer.take(), std::back_inserter(effects));
  return effects;
}

bool Rounds::unfinished() const { return state_->seating.has_value(); }

Effects Rounds::go_on(std::size_t nodes) {
  state_->go_on(nodes);
  return state_->announcer.take();
}

Effects Rounds::begin_step(const Event& event, Clock::time_point now) {
  State& s = *state_;
  s.finish_seating();
  s.past.reset();
  const auto last_event = std::exchange(s.now, std::max(s.now, now));
  if (const auto slept = s.standstill.notice(s.rules, last_event, s.now)) s.forgive(*slept);
  if (const auto from = std::exchange(s.taken_over, std::nullopt)) s.take_over(*from);
  std::visit([&s](const auto& e) { s.on(e); }, event);
  s.standstill.expect(s.next_deadline());
  return s.announcer.take();
}

std::optional<Clock::time_point> Rounds::next_deadline() const { return state_->next_deadline(); }
std::uint64_t Rounds::epoch() const { return state_->numbers.epoch(); }
std::uint64_t Rounds::incarnation() const { return state_->numbers.incarnation(); }
bool Rounds::has_had(std::uint64_t incarnation) const {
  return state_->numbers.has_had(incarnation);
}
bool Rounds::knows(Session session) const { return state_->nodes.find(session) != nullptr; }
bool Rounds::finished() const { return state_->finished(); }
JobStatus Rounds::status() const { return state_->status(); }

// ---- Coming ----

void Rounds::State::on(const Join& e) {
  const Node* known = nodes.find(e.session);
  if (finished()) {
    if (known) return put(*finish_said);
    return put(Refuse{e.session, Errc::refused, exit_code::usage,
                      "the job is over: " + finish_said->sentence});
  }
  if (auto no = barred(e.session)) return put(std::move(*no));
  if (known) {
    const Participant* holds = member(e.session);
    const bool dropped = holds && holds->confirmed && !holds->ended && !e.holding;
    if (!dropped) return join_again(*known, e);
    // An earlier rendezvous had given the node up, and it has ended its workers since.
    forget_place(e.session);
    lose({{e.session, "it gave up its place in epoch " + std::to_string(numbers.epoch())}});
    return on(e);
  }
  if (auto no = Door::nonsense(e)) return put(std::move(*no));
  const Door door(*this);
  const bool musters =
      muster && e.holding &&
      muster->last() == LastEpoch{e.holding->incarnation, e.holding->epoch, e.holding->node_count};
  const bool adopts = e.holding && !musters && door.adoptable(*e.holding);
  if (adopts) yield_to(e);
  if (auto no = door.objection(e)) return put(std::move(*no));
  if (e.holding) numbers.see(e.holding->epoch);
  if (musters) {
    quorum->came(e.session, e.holding->epoch);
    muster->came(e.session);
    current().note_rank(e.offer.id, e.holding->node_rank);
    return come_in(e, false);
  }
  if (e.holding && !adopts) return evict(e.session, e.holding->epoch);
  if (course.draining && !adopts) {
    return put(Refuse{e.session, Errc::refused, exit_code::unreachable,
                      name_text() + " is " + *course.draining + ": no node is let in"});
  }
  forget_place(e.session);
  if (adopts) {
    if (auto no = door.contradiction(e)) return put(std::move(*no));
  }
  come_in(e, adopts);
}

void Rounds::State::come_in(const Join& e, bool adopts) {
  given_up.erase(e.session);
  if (!course.rules_from) {
    rules = e.rules;
    course.rules_from = e.offer.id;
  }
  Losses gone;
  for (const Node* node : nodes.predecessors(e.offer)) {
    gone.emplace_back(node->session, node->offer.id == e.offer.id
                                         ? "it was started again"
                                         : "node " + e.offer.id + " has come in its place");
  }
  // A process that was replaced cannot go on elsewhere.
  for (const auto& [session, why] : gone) forget_place(session);
  const Node& node = nodes.insert({e.session, e.offer, now}, rules);
  if (!gone.empty()) lose(gone);
  if (finished() || member(e.session)) return;
  if (adopts) return adopt(node, *e.holding);
  if (epoch()) return welcome(node);
  note_launch(e.offer);
  consider_gathering(e.session);
}

/// Takes a node between two rounds: it is used at once if there is room, else it waits.
void Rounds::State::welcome(const Node& node) {
  const Epoch& running_epoch = *epoch();
  const bool awaits = !running_epoch.back().awaited.empty();
  const bool room = running_epoch.node_count() < rules.nodes_max;
  // An epoch that has begun to end is let end.
  if (running() && room && running_epoch.ends().empty() && !awaits && !course.draining) {
    return begin_end(EndCause::arrival, "node " + node.offer.id + " joins");
  }
  const std::string name_of_epoch = "epoch " + std::to_string(running_epoch.number());
  std::string text = "waiting: ";
  if (!running()) {
    text += "the workers of " + name_of_epoch + " are being stopped";
  } else if (awaits) {
    text += "the rendezvous was started again, and the nodes of " + name_of_epoch +
            " are coming back to it";
  } else if (course.draining) {
    text += "the job is " + *course.draining;
  } else if (room) {
    text += "the first workers of the job have ended already";
  } else if (rules.spares > 0) {
    const int waiting = nodes.count() - static_cast<int>(running_epoch.members().size());
    stand("node " + node.offer.id + " is a spare (" + std::to_string(waiting) + " of " +
          std::to_string(rules.spares) + "): it takes the place of a node that is lost");
    return turn_away_second_jobs();
  } else {
    const int count = running_epoch.node_count();
    text += "the job runs with " + (count == 1 ? "one node" : "all " + plural(count, "node"));
    text += replaceable() ? "; you are next if one is lost"
                          : ", and it has no restart left with which to replace one";
  }
  put(Standing{node.session, std::move(text)});
  turn_away_second_jobs();
}

void Rounds::State::turn_away_second_jobs() {
  for (Refuse& no : Door(*this).second_jobs()) {
    nodes.remove(no.to);
    put(std::move(no));
  }
}

/// Answers a node after a reconnect: messages that may have been lost are sent again.
void Rounds::State::join_again(const Node& node, const Join& e) {
  const bool was_member = member(e.session) != nullptr;
  heard(e.session);
  const bool is_member = member(e.session) != nullptr;
  if (finished() || was_member != is_member) return;
  if (!announcer.standing().empty()) put(Standing{node.session, announcer.standing()});
  const Participant* place = member(node.session);
  if (!place || place->ended) return;
  const bool knows = e.holding && e.holding->epoch == epoch()->number();
  // The node has not received its admission, and workers of an earlier epoch are in the way.
  if (e.holding && !knows) return evict(node.session, e.holding->epoch);
  if (knows) epoch()->confirm(node.session);
  if (!knows) put(Admit{node.session, epoch()->admission_of(*place)});
  for (RanksLost& loss : epoch()->told_again(node.session)) put(std::move(loss));
  if (place->order) put(*place->order);
}

// ---- An epoch that began before this rendezvous did ----

/// The nodes of a job that runs go before those that came while its rendezvous was away.
void Rounds::State::yield_to(const Join& e) {
  if (gathering() || e.holding->incarnation != numbers.incarnation()) {
    return start_over(e.holding->incarnation);
  }
  for (const Node* node : nodes.predecessors(e.offer)) {
    const Session session = node->session;
    if (member(session)) continue;
    const std::string id = nodes.remove(session).offer.id;
    put(Refuse{session, Errc::refused, exit_code::usage,
               "node " + id + " stands in the place of node " + e.offer.id + " on " + e.offer.host +
                   ", which has come back" + Door(*this).or_another_job()});
  }
}

/// Takes up the epoch of a node that holds one; members of an older epoch have to go.
void Rounds::State::take_up(const Holding& held) {
  if (epoch()) {
    for (const auto& [session, stale] : epoch()->members()) {
      nodes.remove(session);
      evict(session, stale.place.epoch);
    }
  }
  begin(Epoch(held, deadline_after(rules.liveness.comes_back_within(), now)));
  numbers.take_up(held.epoch);
  course.attempt = held.attempt;
  stand("the rendezvous was started again; waiting for the " + plural(held.node_count, "node") +
        " of epoch " + std::to_string(held.epoch));
}

void Rounds::State::adopt(const Node& node, const Holding& held) {
  if (gathering() || held.epoch > epoch()->number()) take_up(held);
  const auto& order = epoch()->take_back(node, held).order;
  course.launch.learn(node.offer.launch);
  if (order) put(*order);
  const auto& awaited = epoch()->back().awaited;
  if (awaited.empty()) return all_are_back();
  const int here = epoch()->node_count() - static_cast<int>(awaited.size());
  put(Standing{node.session, std::to_string(here) + " of the " +
                                 plural(epoch()->node_count(), "node") + " of epoch " +
                                 std::to_string(held.epoch) + " are back; waiting for the others"});
}

void Rounds::State::all_are_back() {
  if (!running()) return;
  const int count = epoch()->node_count();
  stand("epoch " + std::to_string(epoch()->number()) + " goes on with " +
        (count == 1 ? "its node" : "all " + plural(count, "node")));
  turn_away_second_jobs();
  const auto waiting = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const auto& entry) { return !member(entry.first); });
  if (waiting != nodes.end()) welcome(waiting->second);
}

void Rounds::State::give_up_awaited() {
  const int count = static_cast<int>(epoch()->back().awaited.size());
  const std::string text = plural(count, "node") + " of epoch " +
                           std::to_string(epoch()->number()) +
                           " did not come back to the rendezvous";
  current().note_loss({now, text});
  tell_lost(epoch()->lose_awaited(text));
  if (!rules.continue_on_failure) return begin_end(EndCause::loss, text);
  epoch()->count_as_failed(0, text);
  judge_if_over();
}

// ---- Going ----

void Rounds::State::on(const Heartbeat& e) {
  if (nodes.find(e.session)) return heard(e.session);
  const auto silent = given_up.find(e.session);
  if (silent == given_up.end() || silent->second.told || finished()) return;
  // A node that only waited goes on waiting: it has been told nothing else.
  if (silent->second.waiting) {
    const Join again = *silent->second.waiting;
    given_up.erase(silent);
    return on(again);
  }
  evict(e.session, silent->second.epoch);
}

void Rounds::State::on(const Disconnected& e) { nodes.disconnect(e.session, rules, now); }

void Rounds::State::on(const Leave& e) {
  if (!nodes.find(e.session) || finished()) return;
  forget_place(e.session);
  const Node node = nodes.remove(e.session);
  const auto place = epoch() ? epoch()->remove(e.session) : std::nullopt;
  // A node that goes while others work never does so with success.
  const int code = e.exit_code != 0 ? e.exit_code : exit_code::node_lost;
  const bool for_all = e.ends_job && (place || gathering());
  const std::string reason = for_all ? e.reason + " (node " + node.offer.id + ")"
                                     : "node " + node.offer.id + " left: " + e.reason;
  if (e.closes || for_all) {
    return finish(epoch() ? judge_at_once(*epoch(), code, reason)
                          : Finish{code, std::nullopt, reason});
  }
  if (const Gathering* round = gathering()) {
    if (!round->first() && nodes.count() < rules.nodes_min) {
      return finish({code, std::nullopt, reason});
    }
    note_leaving();
    return consider_gathering();
  }
  // A node whose workers have ended is needed for a restart only.
  const bool working = place && !place->ended;
  const bool needed = working || (place && epoch()->ending());
  if (!place) tell_spare_gone(reason);
  if (needed) epoch()->take_leave(code, reason);
  if (needed) note_leaving();
  if (working) begin_end(EndCause::leave, reason);
}

void Rounds::State::on(const Tick& e) {
  if (finished() || is_mute(e)) return;
  Losses overdue;
  for (const Node* node : nodes.find_overdue(rules, now)) {
    overdue.emplace_back(node->session, node->gone
                                            ? break_text(*node)
                                            : "silent for " + silence_text(now - node->last_heard));
  }
  if (!overdue.empty()) lose(overdue);
  if (finished()) return;
  if (gathering()) return consider_gathering();
  const auto& until = epoch()->back().until;
  if (until && *until <= now) give_up_awaited();
}

// ---- What becomes of workers ----

const Participant* Rounds::State::at_work(Session session, std::uint64_t of_epoch) {
  if (!nodes.find(session)) return nullptr;
  heard(session);  // Its return may have closed a round.
  if (finished() || !epoch() || of_epoch != epoch()->number()) return nullptr;
  if (quorum) quorum->heard_of(session, of_epoch);
  return epoch()->confirm(session);
}

void Rounds::State::on(const WorkerFailed& e) {
  const Participant* place = at_work(e.session, e.epoch);
  const auto news = place ? epoch()->take_failure(*place, e) : std::nullopt;
  if (!news) return;
  tell_lost({*news});
  if (rules.continue_on_failure || epoch()->ending()) return;
  const auto verdict = epoch()->find_cause();
  if (verdict && !epoch()->is_open(*verdict)) {
    return begin_end(EndCause::failure, epoch()->text_of(*verdict), e.session);
  }
  // The blamed node's connection to us may be broken as well.
  if (e.fact.claim && e.fact.claim->fault == Fault::lost && !e.fact.claim->ranks.empty()) {
    const Participant* blamed = epoch()->with_rank(e.fact.claim->ranks.front());
    const Node* node = blamed ? nodes.find(blamed->session) : nullptr;
    if (node && node->gone) return lose({{node->session, break_text(*node)}});
  }
  begin_end(EndCause::failure, epoch()->name_of_rank(e.fact.rank) + " " + text_of(news->how),
            e.session);
}

void Rounds::State::on(const WorkerLeft& e) {
  const Participant* place = at_work(e.session, e.epoch);
  if (!place) return;
  if (auto news = epoch()->take_exit(*place, e.rank)) put(std::move(*news));
}

void Rounds::State::on(const WorkersEnded& e) {
  using Outcome = WorkersEnded::Outcome;
  if (!nodes.find(e.session)) {
    // A node that was given up joins anew, now that its workers are gone. One that was told so
    // before does it by itself; told twice, it would join twice, and hear twice how things stand.
    const auto silent = given_up.find(e.session);
    const bool told = silent != given_up.end() && silent->second.told;
    if (told) given_up.erase(silent);
    if (!told && !finished()) evict(e.session, e.epoch);
    return;
  }
  if (muster && muster->ended(e.session)) {
    nodes.hear(e.session, now);
    return finished() ? void() : consider_gathering();
  }
  const Participant* place = at_work(e.session, e.epoch);
  if (!place) return;
  const WorkersEnded& end = epoch()->take_end(e);
  if (end.outcome == Outcome::stopped && !epoch()->ending()) {
    const std::string text = "epoch " + std::to_string(e.epoch) +
                             " was being stopped when the rendezvous was started again";
    current().note_loss({now, text});
    return begin_end(EndCause::loss, text);
  }
  const bool failed = end.outcome == Outcome::spawn_failed ||
                      (end.outcome == Outcome::failed && !rules.continue_on_failure);
  // Judging takes longer, the more ranks have failed.
  if (!failed || epoch()->ending()) return judge_if_over();
  const auto verdict = epoch()->find_cause();
  begin_end(EndCause::failure,
            verdict && end.sentence.empty() ? epoch()->text_of(*verdict)
                                            : end.sentence + " (node " + place->id + ")",
            e.session);
}

void Rounds::State::on(const CallsMade& e) {
  if (at_work(e.session, e.epoch)) epoch()->take_calls(e);
}

}  // namespace dlaunch::rendezvous
