#include "rendezvous/rounds/job.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// The most lost nodes that are told so as soon as they speak again; others hear it when they join
/// again or report.
constexpr std::size_t given_up_max = 65'536;
/// The most evicted nodes that are recognised when they come back.
constexpr std::size_t evicted_max = 1024;

/// After a node has left: the time within which others that are leaving, too, say so.
constexpr Clock::duration others_leave_within = std::chrono::seconds(1);

}  // namespace

Phase& JobState::current() {
  return std::visit([](auto& one) -> Phase& { return one; }, phase);
}

const Legacy& JobState::legacy() const {
  return std::visit([](const auto& one) -> const Legacy& { return one.legacy(); }, phase);
}

const Participant* JobState::member(Session session) {
  finish_seating();
  return std::as_const(*this).member(session);
}

const Participant* JobState::member(Session session) const {
  return epoch() ? epoch()->find(session) : nullptr;
}

std::optional<Clock::time_point> JobState::next_deadline() const {
  if (finished()) return std::nullopt;
  // Nothing is due before something can be said again.
  if (mute_since) return deadline_after(rules.liveness.late_tick(), now);
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point>& when) {
    if (when && *when != Clock::time_point::max() && (!next || *when < *next)) next = when;
  };
  consider(nodes.lease_check());
  // While lost nodes are waited for, the round's own deadlines do not count.
  if (gathering() && outvoted_until) {
    consider(outvoted_until);
  } else if (gathering()) {
    for (const auto& deadline : gathering()->deadlines(nodes, rules)) {
      if (!muster || (deadline && *deadline > now)) consider(deadline);
    }
    if (muster && muster->until() > now) consider(muster->until());
  } else {
    consider(epoch()->back().until);
  }
  // Often enough to notice that we stood still ourselves.
  if (!nodes.empty()) consider(deadline_after(rules.liveness.lease / 4, now));
  if (nodes.broken() > 0) consider(deadline_after(rules.liveness.late_tick(), now));
  return next;
}

JobStatus JobState::status() const {
  JobStatus status;
  status.state = finished()    ? JobStatus::State::finished
                 : gathering() ? JobStatus::State::gathering
                 : running()   ? JobStatus::State::running
                               : JobStatus::State::stopping;
  status.epoch = numbers.epoch();
  status.attempt = course.attempt;
  status.nodes_min = rules.nodes_min;
  status.nodes_max = rules.nodes_max;
  if (epoch()) status.world_size = epoch()->world_size();
  status.standing = announcer.standing();
  if (finish_said) status.exit_code = finish_said->exit_code;
  status.draining = course.draining.has_value() && !finished();
  status.nodes.reserve(static_cast<std::size_t>(nodes.count()));
  for (const auto& [session, node] : nodes) {
    NodeStatus line{node.offer.id,      node.offer.host, NodeStatus::State::waiting, {}, 0,
                    node.offer.workers, node.last_heard};
    if (const Participant* one = member(session)) {
      line.node_rank = one->place.node_rank;
      line.first_rank = one->place.first_rank;
      line.state = one->ended   ? NodeStatus::State::ended
                   : one->order ? NodeStatus::State::stopping
                                : NodeStatus::State::running;
    }
    if (node.gone) line.state = NodeStatus::State::silent;
    status.nodes.push_back(std::move(line));
  }
  return status;
}

// ---- What happens to its nodes ----

void JobState::heard(Session session) {
  if (nodes.hear(session, now) && gathering() && !finished()) consider_gathering();
}

void JobState::forgive(Clock::duration lost) {
  nodes.forgive(lost, now);
  std::visit([&](auto& one) { one.forgive(lost); }, phase);
  if (muster) muster->forgive(lost);
  if (outvoted_until) outvoted_until = deadline_after(lost, *outvoted_until);
}

void JobState::evict(Session session, std::uint64_t of_epoch, std::string why) {
  if (given_up.size() >= given_up_max) given_up.erase(given_up.begin());
  given_up[session] = {.epoch = of_epoch, .waiting = std::nullopt, .told = true};
  put(Stop{session, of_epoch, Stop::Cause::evicted,
           std::move(why) + "; its workers are ended, and it joins anew"});
}

void JobState::give_up(const Node& node, const std::optional<Participant>& member) {
  if (given_up.size() >= given_up_max) given_up.erase(given_up.begin());
  GivenUp& entry = given_up[node.session] = {};
  if (member) {
    entry.epoch = member->place.epoch;
  } else if (muster && muster->is_here(node.session)) {
    entry.epoch = muster->last().number;
  } else {
    entry.waiting = Join{node.session, node.offer, rules, std::nullopt};
  }
}

void JobState::lose(const Losses& whom) {
  finish_seating();
  std::vector<RanksLost> losses;
  std::string first;
  for (const auto& [session, why] : whom) {
    const Node node = nodes.remove(session);
    const auto member = epoch() ? epoch()->remove(session) : std::nullopt;
    give_up(node, member);
    if (quorum) quorum->lost(session);
    if (muster) muster->gone(session);
    const std::string text = "node " + node.offer.id + " is lost: " + why;
    // Nobody loses a worker with a spare, but the next round may miss it.
    if (!member && epoch()) {
      tell_spare_gone(text);
      continue;
    }
    current().note_loss({now, text});
    if (!member || member->ended) continue;
    if (losses.empty()) first = text;
    losses.push_back(epoch()->lose(*member, node.last_heard, text));
    if (rules.continue_on_failure) epoch()->count_as_failed(session, text);
  }
  if (gathering()) return lacks_spares() ? give_up_for_loss() : consider_gathering();
  if (losses.empty()) return;
  tell_lost(std::move(losses));
  if (!rules.continue_on_failure) return begin_end(EndCause::loss, first);
  stand(first);
  judge_if_over();
}

void JobState::tell_spare_gone(const std::string& how) {
  if (rules.spares > 0 && !finished()) stand(how + "; it was a spare");
}

void JobState::put_out(const EvictNode& order) {
  if (finished() || !nodes.find(order.session)) return;
  if (evicted.size() >= evicted_max) evicted.erase(evicted.begin());
  evicted[order.session] = order.reason;
  // The evicted node hears first, since the news to the others may end the job.
  put(*barred(order.session));
  lose({{order.session, order.reason}});
  given_up.erase(order.session);
}

std::optional<Refuse> JobState::barred(Session session) const {
  if (const auto out = evicted.find(session); out != evicted.end()) {
    return Refuse{session, Errc::refused, exit_code::node_lost, "this node was " + out->second};
  }
  return std::nullopt;
}

/// Whether the spares are lost, too, and no other node can take the lost ones' places.
bool JobState::lacks_spares() const {
  const bool waits =
      muster || rules.elastic() || course.restarts.has_one(rules, course.attempt, now);
  return rules.spares > 0 && !gathering()->first() && !waits && nodes.count() < rules.nodes_min;
}

void JobState::give_up_for_loss() {
  finish(Finish::for_lost_node(legacy().first_loss->reason + "; no spare is left"));
}

/// Whether so many nodes are out of reach that they may go on with another host. Then no round
/// closes here before they are back.
bool JobState::is_outvoted() {
  const auto count = quorum ? quorum->outvoted() : std::nullopt;
  if (!count) {
    outvoted_until.reset();
    return false;
  }
  if (!outvoted_until) outvoted_until = deadline_after(rules.liveness.host_lost_after(), now);
  const auto& loss = legacy().first_loss;
  const std::string why = (loss ? loss->reason + "; " : "") + std::to_string(count->apart) +
                          " of the " + plural(count->nodes, "node") + " of epoch " +
                          std::to_string(count->epoch) +
                          " are out of reach, and may go on without this one";
  if (now >= *outvoted_until) {
    finish(Finish::for_lost_node(why));
  } else {
    stand(why + "; waiting for them");
  }
  return true;
}

void JobState::forget_place(Session session) {
  if (quorum) quorum->forget(session);
  if (muster) muster->gone(session);
}

void JobState::take_over(const Takeover& from) {
  const LastEpoch last{from.place.incarnation, from.place.epoch, from.place.node_count};
  rules = from.rules;
  course.rules_from = from.node;
  course.attempt = from.place.attempt;
  course.begun = epoch_begun = now;
  Legacy of_epoch;
  of_epoch.first_loss = Loss{now, from.why};
  phase = Gathering(std::move(of_epoch), from.why, std::nullopt, rules, now);
  quorum->take_over(last.number, last.nodes);
  muster.emplace(last, deadline_after(from.patience, now));
}

/// Whether the round has to wait for the nodes of a lost host's epoch, or has been given up.
bool JobState::holds_muster() {
  const std::string come = muster->text(*quorum);
  switch (muster->step(*quorum, nodes.count(), rules.nodes_min, now)) {
    case Muster::Step::close:
      return false;
    case Muster::Step::wait:
      stand("node " + *course.rules_from + " hosts the job now: " + come);
      return true;
    case Muster::Step::give_up:
      break;
  }
  finish(Finish::for_lost_node(legacy().first_loss->reason + "; only " + come + " to node " +
                               *course.rules_from + ", which hosts the job now: it takes more " +
                               "than half of them, and at least " +
                               std::to_string(rules.nodes_min)));
  return true;
}

/// Most often the same cause makes the other nodes leave, too, moments later: a signal to all nodes
/// of a job does not reach them at once. Until then none of them starts again.
void JobState::note_leaving() {
  if (gathering() && gathering()->first()) return;
  current().note_leaving(deadline_after(others_leave_within, now));
}

/// A first round takes nodes of different command lines, but says so.
void JobState::note_launch(const NodeOffer& offer) {
  if (course.begun) return;
  const bool had_line = course.launch.has_line();
  course.launch.learn(offer.launch);
  if (!had_line || course.launch.has_line()) return;
  put(Standing{0, "node " + offer.id + " was started by another command line than node " +
                      *course.rules_from + "; another job needs another --rdzv-id"});
}

/// Nodes that hear nothing from us close their connections, and try in vain to come back, so nobody
/// is lost in that time. Afterwards they may be in the longest pause between two tries.
bool JobState::is_mute(const Tick& e) {
  const auto& liveness = rules.liveness;
  if (e.held_since && now > deadline_after(liveness.late_tick(), *e.held_since)) {
    if (!mute_since) mute_since = e.held_since;
    return true;
  }
  if (const auto since = std::exchange(mute_since, std::nullopt)) {
    forgive(now - *since);
    nodes.await_broken(deadline_after(liveness.retry_pause_max() + liveness.reconnect_grace, now));
  }
  return false;
}

// ---- From phase to phase ----

void JobState::consider_gathering(Session newcomer) {
  using Step = Gathering::Step;
  if (muster ? holds_muster() : is_outvoted()) return;
  Gathering& round = *gathering();
  switch (round.step(nodes, rules, now)) {
    case Step::idle:
      if (round.first()) course = {};
      return;
    case Step::wait:
      return round.tell(announcer, newcomer, nodes, rules, now);
    case Step::close:
      return close();
    case Step::give_up:
      return finish(round.given_up(nodes, rules));
  }
}

void JobState::close() {
  const auto chosen = rank_order(nodes, legacy().rank_of, rules.nodes_max);
  Seating next(chosen);
  numbers.begin_next();
  Admission common;
  common.incarnation = numbers.incarnation();
  common.epoch = numbers.epoch();
  common.attempt = course.attempt;
  common.again_for = gathering()->again_for();
  begin(next.begin(std::move(common)));
  seating = std::move(next);
  muster.reset();
  if (quorum && rules.outlives_host()) {
    std::vector<Session> sessions;
    for (const Node* node : chosen) sessions.push_back(node->session);
    quorum->begin(numbers.epoch(), sessions);
  }
}

void JobState::go_on(std::size_t count) {
  if (seating) announcer.expect(std::min(count, seating->count()));
  for (; seating && count > 0; --count) {
    if (seating->seat_next(*epoch())) continue;
    if (const Node* node = seating->next_to_tell()) {
      course.launch.learn(node->offer.launch);
      put(Admit{node->session, epoch()->admission_of(*epoch()->find(node->session))});
    } else {
      seating.reset();
      past.reset();
      tell_of_epoch();
    }
  }
}

void JobState::tell_of_epoch() {
  const Epoch& closed = *epoch();
  std::string sentence = "epoch " + std::to_string(closed.number()) + ": " +
                         plural(closed.node_count(), "node") + ", " +
                         plural(closed.world_size(), "worker");
  const int waiting = nodes.count() - closed.node_count();
  if (waiting > 0 && rules.spares > 0) {
    sentence += "; " + plural(waiting, "spare");
  } else if (waiting > 0) {
    sentence += "; " + std::to_string(waiting) + " waiting";
  }
  stand(std::move(sentence));
}

void JobState::begin(Epoch epoch) {
  phase = std::move(epoch);
  epoch_begun = now;
  if (course.begun) return;
  course.begun = now;
  course.launch = {};  // Some of the nodes that came may be gone.
}

void JobState::begin_end(EndCause why, const std::string& reason, Session told_by) {
  if (!epoch()->ending()) {
    stand(reason);
    std::vector<Stop> orders = epoch()->begin_end({why, reason, now, told_by});
    announcer.expect(orders.size());
    for (Stop& order : orders) put(std::move(order));
  }
  judge_if_over();
}

void JobState::judge_if_over() {
  if (!epoch()->over()) return;
  const bool has_restart = course.restarts.has_one(rules, course.attempt, now);
  auto judgement = judge(*epoch(), rules, has_restart && !course.draining, nodes.count());
  if (auto* end = std::get_if<Finish>(&judgement)) {
    const bool would_go_on =
        course.draining && has_restart &&
        std::holds_alternative<GoesOn>(judge(*epoch(), rules, true, nodes.count()));
    if (would_go_on) stand("no further epoch begins: the job is " + *course.draining);
    return finish(std::move(*end));
  }
  gather(std::get<GoesOn>(std::move(judgement)));
}

void JobState::gather(GoesOn next) {
  if (course.draining) {
    const auto& left = epoch()->left();
    const std::string why = (left ? left->reason : next.why) +
                            "; no further epoch begins: the job is " + *course.draining;
    return finish(left ? Finish{left->exit_code, std::nullopt, why} : Finish::for_lost_node(why));
  }
  std::optional<RestartPause> pause;
  if (next.is_restart) {
    ++course.attempt;
    pause = course.restarts.spend(rules, epoch_begun, epoch()->ending()->at, now);
  }
  if (next.is_news) stand(next.why);
  Legacy of_epoch = current().release();
  Gathering round(std::move(of_epoch), std::move(next.why), std::move(pause), rules, now);
  past = std::move(*epoch());
  phase = std::move(round);
  consider_gathering();
}

void JobState::finish(Finish end) {
  if (end.verdict && epoch()) end.details = epoch()->details_of(end.verdict->rank());
  finish_said = end;
  announcer.finish(std::move(end));
}

void JobState::stop(const StopJob& order) {
  if (finished()) return;
  finish(epoch() ? judge_at_once(*epoch(), order.exit_code, order.reason)
                 : Finish{order.exit_code, std::nullopt, order.reason});
}

void JobState::drain(const DrainJob& order) {
  if (!running() || course.draining) return;
  course.draining = order.reason;
  stand("the job is " + order.reason + "; it goes on to the end of epoch " +
        std::to_string(epoch()->number()));
}

void JobState::start_over(std::uint64_t incarnation) {
  while (!nodes.empty()) {
    const Session session = nodes.begin()->first;
    evict(session, member(session) ? numbers.epoch() : 0,
          name_text() +
              " was at work when the rendezvous was started again, and its nodes have "
              "come back");
    nodes.remove(session);
  }
  phase = Gathering();
  course = {};
  numbers.return_to(incarnation);
}

void JobState::tell_lost(std::vector<RanksLost> losses) {
  for (auto& loss : epoch()->worth_telling(std::move(losses), rules.continue_on_failure)) {
    put(std::move(loss));
  }
}

}  // namespace dlaunch::rendezvous
