#include "launcher/job/core/seat_core.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher::seat {
namespace {

using namespace std::chrono_literals;

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
  // The agent hears nothing from within what it says.
  if (!std::holds_alternative<Said>(event) && !std::holds_alternative<Withdrawn>(event)) {
    note_stall();
  }
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

/// This process was stopped, or its machine, and others may have given it up meanwhile. What comes
/// next is to be read with that in mind.
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
  if (!std::exchange(told_trouble_, {}).empty()) say("connected to " + rules_.peer);
  if (is_coming()) {
    offer_ = e.offer;
    state_ = Waiting{};
  }
  join();
  const Holding* held = holding();
  if (!held) return;
  for (const auto& what : held->told) tell(what);
  effects_.push_back(Reconnected{});
}

void SeatCore::on(const Trouble& e) {
  const auto lasted = tried_for(e.since);
  const std::string text = e.sentence + (e.hint.empty() ? "" : "; " + e.hint);
  if (!holding() && lasted >= rules_.job.join_timeout) {
    return on(rendezvous::Refuse{0, Errc::unreachable, exit_code::unreachable,
                                 text + "; tried for " + duration_text(rules_.job.join_timeout)});
  }
  if (host_is_lost(e)) return finish_without_host(e);
  if (lasted < silent_trouble || told_trouble_ == e.sentence) return;
  told_trouble_ = e.sentence;
  say(text + (holding() ? "; the workers go on, and it is tried again" : "; it is tried again"));
}

void SeatCore::on(const Due& e) {
  auto pause = rules_.heartbeat;
  if (e.trouble && host_is_lost(*e.trouble)) return finish_without_host(*e.trouble);
  // The next try to connect may be seconds away.
  if (e.trouble && holding() && holding()->hosted) {
    const auto left = rules_.job.liveness.lease - tried_for(e.trouble->since);
    pause = std::clamp<Clock::duration>(left, 1ms, pause);
  }
  tell(rendezvous::Heartbeat{});
  beaten_ = now_;
  next_beat_ = now_ + pause;
  effects_.push_back(Wake{next_beat_});
}

/// For how long there is no connection, as far as this node was awake to make one.
Clock::duration SeatCore::tried_for(Clock::time_point since) const {
  return now_ - std::max(since, stalled_until_);
}

bool SeatCore::host_is_lost(const Trouble& trouble) {
  return holding() && holding()->hosted && tried_for(trouble.since) >= rules_.job.liveness.lease;
}

void SeatCore::finish_without_host(const Trouble& trouble) {
  const Holding held = std::move(*holding());
  const bool stalled =
      !held.stall.empty() && trouble.since <= stalled_until_ + rules_.job.liveness.lease;
  const std::string since = stalled ? held.stall + ", and the job went on without it; " : "";
  if (const auto& host = held.host) {
    const std::string why = since + "node " + host->id + " is lost: " + trouble.sentence;
    effects_.push_back(rendezvous::RanksLost{held.place.epoch, host->first_rank, host->workers,
                                             host->host, Departure::because(why)});
  }
  finish(rendezvous::Finish::for_lost_node(
             since + "the node that hosts the job is lost: " + trouble.sentence),
         false);
}

// ---- What the agent says ----

void SeatCore::on(const Said& e) {
  if (const auto* leave = std::get_if<rendezvous::Leave>(&e.what)) {
    tell(rendezvous::Leave{0, leave->exit_code, leave->reason, rules_.hosts, leave->ends_job});
    return on(Withdrawn{});
  }
  Holding* held = holding();
  const auto told = !held ? 0 : std::ranges::count_if(held->told, [&](const auto& what) {
    return what.index() == e.what.index();
  });
  if (is<rendezvous::WorkerLeft>(e.what) && (!held || told >= departures_max)) return;
  tell(e.what);
  if (!held) return;
  // The first failure is what the others have to hear of.
  if (!is<rendezvous::WorkerFailed>(e.what) || told == 0) held->told.push_back(e.what);
  if (!is<rendezvous::WorkersEnded>(e.what)) return;
  const bool evicted = held->workers == Holding::Workers::evicted;
  held->workers = Holding::Workers::ended;
  if (evicted) join_anew();
}

void SeatCore::on(const Withdrawn&) {
  state_ = Over{};
  effects_.push_back(Close{});
}

void SeatCore::join() {
  const auto place = holding() ? std::optional(holding()->place) : std::nullopt;
  tell(rendezvous::Join{0, offer_, rules_.job, place});
}

/// What we held is others' now.
void SeatCore::join_anew() {
  state_ = Waiting{};
  join();
}

// ---- What the rendezvous says ----

void SeatCore::on(const Admitted& e) {
  const auto& a = e.admission;
  if (Holding* held = holding()) {
    // Said again after a reconnect.
    if (held->place.incarnation == a.incarnation && held->place.epoch >= a.epoch) return;
    if (held->workers != Holding::Workers::ended) {
      // This node was given up meanwhile, and asked anew before it heard of an epoch whose workers
      // are there: these go first, then it asks again.
      held->workers = Holding::Workers::evicted;
      return effects_.push_back(Order{held->place.epoch, StopOrder::Manner::kill});
    }
  }
  state_ = Holding{.place = a, .host = e.host, .hosted = e.hosted && !rules_.hosts};
  effects_.push_back(rendezvous::Admit{0, a});
}

void SeatCore::on(const rendezvous::Stop& e) {
  Holding* held = holding();
  if (e.cause == rendezvous::Stop::Cause::evicted) {
    // It may have been given up between two epochs, or before it heard of its first.
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
