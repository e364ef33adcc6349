#include "launcher/job/core/seat_core.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher::seat {
namespace {

using namespace std::chrono_literals;

using Outcome = rendezvous::WorkersEnded::Outcome;

/// A rendezvous that is not there yet is normal while a job starts, and so is a short interruption.
constexpr auto silent_trouble = 2s;

/// Departures in one epoch that the rendezvous is told at most; it would pass on no more.
constexpr auto departures_max = 16;

StopOrder::Manner manner_of(rendezvous::Stop::Cause cause) {
  switch (cause) {
    case rendezvous::Stop::Cause::failure:
      return StopOrder::Manner::report_first;
    case rendezvous::Stop::Cause::membership:
      return StopOrder::Manner::at_once;
    case rendezvous::Stop::Cause::evicted:
      return StopOrder::Manner::kill;
  }
  return StopOrder::Manner::at_once;
}

template <class One>
bool is(const rendezvous::Event& event) {
  return std::holds_alternative<One>(event);
}

}  // namespace

Effects SeatCore::step(const Event& event, Clock::time_point now) {
  now_ = now;
  if (is_over()) return {};
  // The agent's own words cause no call back into the agent.
  if (!std::holds_alternative<Said>(event) && !std::holds_alternative<Withdrawn>(event)) {
    note_stall();
  }
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

/// Notes that this process or its machine stood still: others may have given this node up
/// meanwhile, and later messages are read with that in mind.
void SeatCore::note_stall() {
  if (now_ < next_beat_ || now_ - next_beat_ < rules_.job.liveness.doubtful_after()) return;
  stalled_until_ = now_;
  next_beat_ = Clock::time_point::max();
  Holding* held = holding();
  if (!held) return;
  held->stall = "this node stood still for " + age_text(now_ - beaten_);
  say(held->stall);
}

// ---- The connection ----

void SeatCore::on(const Welcomed& e) {
  if (!std::exchange(told_trouble_, {}).empty()) say("connected to " + peer_);
  if (is_coming()) {
    offer_ = e.offer;
    state_ = Waiting{};
  }
  join();
  const Holding* held = holding();
  if (!held) return;
  tell_place();
  if (holding()->end) holding()->end->told = false;
  for (const auto& what : held->told) tell(what);
  effects_.push_back(Reconnected{});
}

void SeatCore::on(const Trouble& e) {
  const auto lasted = tried_for(e.since);
  const std::string text = e.sentence + (e.hint.empty() ? "" : "; " + e.hint);
  if (!holding() && !moving_ && !has_successor() && lasted >= rules_.job.join_timeout) {
    return on(rendezvous::Refuse{0, Errc::unreachable, exit_code::unreachable,
                                 text + "; tried for " + duration_text(rules_.job.join_timeout)});
  }
  if (host_is_lost(e)) return lose_host(e);
  if (has_waited_to_report(e)) return finish_unreported(e);
  if (lasted < silent_trouble || told_trouble_ == e.sentence) return;
  tell_trouble(e.sentence, text);
}

void SeatCore::tell_trouble(const std::string& sentence, const std::string& whole) {
  told_trouble_ = sentence;
  say(whole + outlook());
  if (holding() && holding()->end) holding()->end->told = true;
}

/// What becomes of this node while there is no connection.
std::string SeatCore::outlook() const {
  const Holding* held = std::get_if<Holding>(&state_);
  if (!held || moving_) return "; it is tried again";
  if (!held->end) return "; the workers go on, and it is tried again";
  const bool gives_up = held->end->exit_code && !held->hosted;
  return "; " + held->end->text + ", and it is tried again" +
         (gives_up ? ", for up to " + duration_text(rules_.job.join_timeout) : "");
}

void SeatCore::on(const Due& e) {
  auto pause = rules_.heartbeat;
  if (e.trouble && host_is_lost(*e.trouble)) {
    lose_host(*e.trouble);
    if (is_over()) return;
  } else if (e.trouble && has_waited_to_report(*e.trouble)) {
    return finish_unreported(*e.trouble);
  } else if (e.trouble && holding() && holding()->hosted) {
    // Wake in time to give the host up: the next try to connect may be seconds away.
    const auto left = host_patience() - tried_for(e.trouble->since);
    pause = std::clamp<Clock::duration>(left, 1ms, pause);
  }
  if (e.trouble && !e.trouble->sentence.empty() && holding() && holding()->end) {
    const bool is_news = !holding()->end->told && tried_for(e.trouble->since) >= silent_trouble;
    if (is_news) tell_trouble(e.trouble->sentence, e.trouble->sentence);
  }
  tell(rendezvous::Heartbeat{});
  beaten_ = now_;
  next_beat_ = now_ + pause;
  effects_.push_back(Wake{next_beat_});
}

/// How long there has been no connection while this node was awake to make one.
Clock::duration SeatCore::tried_for(Clock::time_point since) const {
  return now_ - std::max(since, stalled_until_);
}

Clock::duration SeatCore::host_patience() const {
  const auto& liveness = rules_.job.liveness;
  return moving_ ? liveness.successor_patience() : liveness.lease;
}

bool SeatCore::host_is_lost(const Trouble& trouble) const {
  const Holding* held = std::get_if<Holding>(&state_);
  const bool by_node = held ? held->hosted : moving_ || has_successor();
  return by_node && tried_for(trouble.since) >= host_patience();
}

/// A node without a place is a spare, and follows the others.
bool SeatCore::has_successor() const {
  if (hosts_ || succession_.order.empty() || !rules_.job.outlives_host()) return false;
  const Holding* held = std::get_if<Holding>(&state_);
  if (!held) return std::holds_alternative<Waiting>(state_);
  // One of two nodes cannot tell a lost host from a cut line.
  constexpr int nodes_least = 3;
  return held->workers != Holding::Workers::evicted && held->place.epoch == succession_.epoch &&
         held->place.node_count >= nodes_least;
}

bool SeatCore::has_stalled(const Trouble& trouble) const {
  const Holding* held = std::get_if<Holding>(&state_);
  return held && !held->stall.empty() &&
         trouble.since <= stalled_until_ + rules_.job.liveness.lease;
}

/// The workers are ended first: their store is gone.
void SeatCore::lose_host(const Trouble& trouble) {
  if (moving_ && hosts_) {
    return finish(rendezvous::Finish::for_lost_node(moving_->why + "; then " + trouble.sentence),
                  false);
  }
  if (moving_) {
    say("no node hosts the job there: " + trouble.sentence);
    ++moving_->at;
    return move_on();
  }
  if (!has_successor() || has_stalled(trouble)) return finish_without_host(trouble);
  moving_ =
      Moving{succession_.order, 0, "the node that hosts the job is lost: " + trouble.sentence};
  if (Holding* held = holding()) {
    if (held->host) tell_ranks_of_host("node " + held->host->id + " is lost: " + trouble.sentence);
    effects_.push_back(LoseStore{moving_->why});
    if (held->workers == Holding::Workers::at_work) {
      effects_.push_back(Order{held->place.epoch, StopOrder::Manner::report_first});
    }
  }
  say(moving_->why);
  move_on();
}

/// Turns to the next successor, which may be this node.
void SeatCore::move_on() {
  const Holding* held = holding();
  if (moving_->at >= moving_->order.size()) {
    return finish(rendezvous::Finish::for_lost_node(moving_->why + "; no other node hosts it"),
                  false);
  }
  const rendezvous::Successor& next = moving_->order[moving_->at];
  told_trouble_.clear();
  if (held && next.node_rank == held->place.node_rank) {
    hosts_ = true;
    say("this node hosts the job from now on, at " + next.address);
    const auto patience = rules_.job.liveness.comes_back_within();
    effects_.push_back(HostHere{{held->place, offer_.id, rules_.job, moving_->why, patience}});
  } else {
    peer_ = "the rendezvous at " + next.address;
    say("the job is to go on at " + next.address + ", on the node of rank " +
        std::to_string(next.node_rank));
    effects_.push_back(GoTo{next.address});
  }
}

/// A rendezvous that a node hosts counts which epoch each node goes by.
void SeatCore::tell_place() {
  const Holding* held = holding();
  if (held && (held->hosted || hosts_) && rules_.job.outlives_host()) {
    tell(rendezvous::TookPlace{0, held->place.epoch});
  }
}

void SeatCore::tell_ranks_of_host(const std::string& why) {
  const Holding& held = *holding();
  effects_.push_back(rendezvous::RanksLost{held.place.epoch, held.host->first_rank,
                                           held.host->workers, held.host->host,
                                           Departure::because(why)});
}

void SeatCore::finish_without_host(const Trouble& trouble) {
  const Holding& held = *holding();
  const std::string since =
      has_stalled(trouble) ? held.stall + ", and the job went on without it; " : "";
  if (held.host) {
    tell_ranks_of_host(since + "node " + held.host->id + " is lost: " + trouble.sentence);
  }
  finish(rendezvous::Finish::for_lost_node(
             since + "the node that hosts the job is lost: " + trouble.sentence),
         false);
}

SeatCore::Holding::End SeatCore::end_of(const rendezvous::WorkersEnded& e) const {
  Holding::End end{.text = "all workers here have ended", .at = now_};
  const auto name = [this](int rank) {
    return "rank " + std::to_string(rank) + " on " + offer_.host;
  };
  const auto cause = judge(e.facts);
  const std::string why = cause ? sentence_of(*cause, name) : e.sentence;
  if (e.outcome == Outcome::succeeded) {
    end.text += " with 0";
  } else {
    if (!why.empty()) end.text += " (" + why + ")";
    const bool failed = e.outcome != Outcome::stopped && e.exit_code != 0;
    end.exit_code = failed ? e.exit_code : exit_code::unreachable;
  }
  return end;
}

/// Whether workers here have failed, and for too long no rendezvous could be told. A node that
/// hosts has a limit of its own.
bool SeatCore::has_waited_to_report(const Trouble& trouble) const {
  const Holding* held = std::get_if<Holding>(&state_);
  return held && held->end && held->end->exit_code && !held->hosted && !moving_ &&
         tried_for(std::max(trouble.since, held->end->at)) >= rules_.job.join_timeout;
}

void SeatCore::finish_unreported(const Trouble& trouble) {
  const Holding::End& end = *holding()->end;
  finish({*end.exit_code, std::nullopt,
          end.text + ", and the rendezvous could not be told within " +
              duration_text(rules_.job.join_timeout) + ": " + trouble.sentence},
         false);
}

// ---- What the agent says ----

void SeatCore::on(const Said& e) {
  if (const auto* leave = std::get_if<rendezvous::Leave>(&e.what)) {
    tell(rendezvous::Leave{0, leave->exit_code, leave->reason, hosts_, leave->ends_job});
    return on(Withdrawn{});
  }
  Holding* held = holding();
  const auto told = !held ? 0 : std::ranges::count_if(held->told, [&](const auto& what) {
    return what.index() == e.what.index();
  });
  if (is<rendezvous::WorkerLeft>(e.what) && (!held || told >= departures_max)) return;
  tell(e.what);
  if (!held) return;
  // Only the first failure is kept: the others need no more.
  if (!is<rendezvous::WorkerFailed>(e.what) || told == 0) held->told.push_back(e.what);
  if (!is<rendezvous::WorkersEnded>(e.what)) return;
  const bool evicted = held->workers == Holding::Workers::evicted;
  held->workers = Holding::Workers::ended;
  if (evicted) return join_anew();
  held->end = end_of(std::get<rendezvous::WorkersEnded>(e.what));
  // The user hears at once that nobody can be told, though not from within this call.
  if (!told_trouble_.empty()) effects_.push_back(Wake{now_});
}

void SeatCore::on(const Withdrawn&) {
  state_ = Over{};
  effects_.push_back(Close{});
}

void SeatCore::join() {
  const auto place = holding() ? std::optional(holding()->place) : std::nullopt;
  tell(rendezvous::Join{0, offer_, rules_.job, place});
}

/// This node's ranks are others' now.
void SeatCore::join_anew() {
  state_ = Waiting{};
  join();
}

// ---- What the rendezvous says ----

void SeatCore::on(const rendezvous::Admitted& e) {
  const auto& a = e.admission;
  if (Holding* held = holding()) {
    // The admission is repeated after a reconnect.
    if (held->place.incarnation == a.incarnation && held->place.epoch >= a.epoch) return;
    if (held->workers != Holding::Workers::ended) {
      // This node was given up meanwhile and has joined again, but workers of an earlier epoch are
      // still here: they go first, then it joins once more.
      held->workers = Holding::Workers::evicted;
      return effects_.push_back(Order{held->place.epoch, StopOrder::Manner::kill});
    }
  }
  state_ = Holding{.place = a, .host = e.host, .hosted = e.hosted && !hosts_};
  moving_.reset();
  tell_place();
  effects_.push_back(rendezvous::Admit{0, a});
}

/// With an epoch of another host a node that waits there has come to it.
void SeatCore::on(const rendezvous::Succession& e) {
  if (e.epoch < succession_.epoch) return;
  if (!holding() && e.epoch > succession_.epoch) moving_.reset();
  succession_ = e;
}

void SeatCore::on(const rendezvous::Stop& e) {
  Holding* held = holding();
  if (e.cause == rendezvous::Stop::Cause::evicted) {
    // This node may have been given up between two epochs, or before it heard of its first.
    if (!held) return join_anew();
    say(e.reason);
    if (held->workers == Holding::Workers::ended) return join_anew();
    held->workers = Holding::Workers::evicted;
  } else if (!held || e.epoch != held->place.epoch) {
    return;
  }
  effects_.push_back(Order{e.epoch, manner_of(e.cause)});
}

void SeatCore::on(const rendezvous::RanksLost& e) {
  if (holding() && holding()->place.epoch == e.epoch) effects_.push_back(e);
}

void SeatCore::finish(rendezvous::Finish end, bool judged) {
  state_ = Over{};
  effects_.push_back(Finished{std::move(end), judged});
}

}  // namespace dlaunch::launcher::seat
