#include "rendezvous/service/service_state.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::rendezvous {
namespace {

/// The least limit of contributors to a barrier or all_gather. Usually there are as many as ranks;
/// in a small world, where they cost little, a program may have more, such as threads of its ranks.
constexpr int contributors_least = 4096;

/// So many effects are carried out as soon as they are decided, and so many at once later.
constexpr std::size_t effects_first = 64, effects_at_once = 16;

/// 0: all nodes of the job.
template <class Effect>
Session to_whom(const Effect& effect) {
  if constexpr (requires { effect.to; }) return effect.to;
  return 0;
}

}  // namespace

Job* Service::State::find(std::string_view name) {
  const auto found = jobs.find(name);
  return found == jobs.end() ? nullptr : &found->second;
}

Job* Service::State::find_settled(std::string_view name) {
  Job* const job = find(name);
  if (job != nullptr) carry_out(*job);
  return job;
}

void Service::State::step(Job& job, const Event& event, Clock::time_point now) {
  carry_out(job);
  if (job.broken && !job.finished) return give_up(job, "for want of memory");
  try {
    job.decision = Decision{job.rounds.begin_step(event, now), job.epoch};
  } catch (const std::exception& failure) {
    return give_up(job, failure.what());
  }
  job.incarnation = job.rounds.incarnation();
  if (!carry_out(job, effects_first)) return;
  try {
    server.go_on_in_turns(job.name);
  } catch (const std::exception&) {  // Without memory for turns they are carried out now.
    carry_out(job);
  }
}

bool Service::State::on_turn(const std::string& name) {
  Job* const job = find(name);
  if (job == nullptr || carry_out(*job, effects_at_once)) return job != nullptr;
  arm();
  return false;
}

bool Service::State::carry_out(Job& job, std::size_t count) {
  while (job.decision && count > 0) {
    Decision& decision = *job.decision;
    if (decision.next < decision.effects.size()) {
      carry_out_next(job, decision);
      --count;
    } else if (job.rounds.unfinished()) {
      const std::size_t nodes = std::min(count, effects_at_once);
      try {
        decision.effects = job.rounds.go_on(nodes);
      } catch (const std::exception& failure) {
        job.decision.reset();
        give_up(job, failure.what());
        break;
      }
      decision.next = 0;
      count -= nodes;
    } else {
      conclude(job, *std::exchange(job.decision, std::nullopt));
    }
  }
  return job.decision.has_value();
}

void Service::State::carry_out_next(Job& job, Decision& decision) {
  std::visit(
      [&](auto& what) {
        try {
          apply(job, what);
        } catch (const std::exception& failure) {  // For want of memory, say.
          decision.whole = false;
          lose_touch(job, to_whom(what), failure.what());
        }
      },
      decision.effects[decision.next++]);
}

void Service::State::conclude(Job& job, const Decision& carried_out) {
  bool whole = carried_out.whole;
  if (job.epoch != carried_out.epoch_before) {
    // Nodes that were lost before this epoch do not come back.
    erase_if(job.members, [&](const auto& entry) {
      return entry.second.connection == 0 && entry.second.epoch != job.epoch;
    });
  }
  try {
    forget_departed(job);
    end_if_deserted(job);
  } catch (const std::exception&) {
    whole = false;
  }
  job.looks_again = Clock::time_point::max();
  whole ? schedule(job) : look_again(job);
}

/// A decision that was made half could be a wrong one, or never come: nobody is to wait for it.
void Service::State::give_up(Job& job, const char* why) noexcept {
  job.broken = true;
  try {
    apply(job, Finish{exit_code::internal, std::nullopt,
                      std::string("the rendezvous could not decide how it goes on: ") + why});
    job.looks_again = Clock::time_point::max();
    schedule(job);
  } catch (const std::exception& failure) {
    lose_touch(job, 0, failure.what());
    look_again(job);
  }
}

/// The rounds go on from what they have decided, so those that have to know of it come back and
/// ask.
void Service::State::lose_touch(const Job& job, Session to, const char* why) noexcept {
  for (const auto& [session, member] : job.members) {
    if (to == 0 || session == to) server.fail(member.connection);
  }
  try {
    note(LogLine::Level::error, LogLine::Event::other, job,
         std::string("not all nodes could be told what was decided, and those come back for it: ") +
             why);
  } catch (const std::exception&) {  // The server counts them.
  }
}

bool Service::State::is_deserted(const Job& job) {
  return !job.finished && std::ranges::none_of(job.members, [](const auto& entry) {
    return entry.second.connection != 0;
  });
}

/// Ends a job that has no connected node if none is waited for, or none has a reason to come back.
/// Otherwise the rounds would wait for ever, or for as long as a node once asked for. The next node
/// to come begins a new job with its own rules.
void Service::State::end_if_deserted(Job& job, std::optional<Finish> left) {
  const bool never_began = job.epoch == 0 && rules.only_job.empty();
  if (!is_deserted(job) || (job.rounds.next_deadline() && !never_began)) return;
  if (left) return apply(job, *left);
  apply(job, Finish::for_lost_node("all its nodes have gone" +
                                   (job.evicted.empty() ? "" : "; " + job.evicted)));
}

void Service::State::make_place(Clock::time_point now) {
  if (unfinished() < rules.jobs_max) return;
  if (now < next_place) return;
  Job* longest = nullptr;
  for (auto& [name, job] : jobs) {
    if (!is_deserted(job)) continue;
    if (longest == nullptr || job.deserted < longest->deserted) longest = &job;
  }
  // A job that is deserted from now on has its time, too.
  next_place = (longest == nullptr ? now : longest->deserted) + rules.deserted_max;
  if (longest == nullptr || now < next_place) return;
  apply(*longest,
        Finish::for_lost_node("all its nodes have gone, and another job needs its place"));
  schedule(*longest);
}

// ---- Effects ----

void Service::State::apply(Job& job, Admit& effect) {
  const auto member = job.members.find(effect.to);
  if (member == job.members.end()) return;
  Admission& admission = effect.admission;
  if (admission.epoch != job.epoch) {
    begin_epoch(job, admission.epoch, admission.world_size);
    ++totals.rounds_closed;
    if (std::exchange(job.attempt, admission.attempt) < admission.attempt) ++totals.restarts;
    note(LogLine::Level::info, LogLine::Event::epoch, job,
         "epoch " + std::to_string(admission.epoch) + ", attempt " +
             std::to_string(admission.attempt) + ": " + plural(admission.node_count, "node") +
             ", " + plural(admission.world_size, "rank"));
  }
  member->second.epoch = admission.epoch;
  member->second.node_rank = admission.node_rank;
  // A member that is not connected now is seated when it comes back.
  if (member->second.connection == 0) return;
  server.seat(member->second.connection, job.space);
  tell_late(member->second.connection,
            message::Admitted{{!rules.only_job.empty(), std::move(admission), job.host}});
}

void Service::State::begin_epoch(Job& job, std::uint64_t epoch, int world_size) {
  if (journal != nullptr) journal->epoch_closed(job.name, epoch);
  store::Limits limits = rules.limits;
  limits.contributors = std::max(contributors_least, world_size);
  const store::SpaceId space =
      journal == nullptr
          ? server.add_space(epoch, limits)
          : server.add_space(epoch, limits, journal->space(job.name, job.incarnation, epoch));
  const store::SpaceId before = std::exchange(job.space, space);
  const std::uint64_t epoch_before_it = std::exchange(job.epoch, epoch);
  job.world_size = world_size;
  server.drop_space(before, "the epoch " + std::to_string(epoch_before_it) + " is over");
  send(job, job.questions.keep([](Session) { return false; }));
  job.host = place_of_host(job);
  job.successors.clear();
  for (auto& [session, member] : job.members) {
    member.calls = {};
    member.calls_made = {};
  }
}

/// The place of the node that hosts. If it is lost nobody can report its ranks lost, so the others
/// have to know them.
std::optional<HostPlace> Service::State::place_of_host(const Job& job) const {
  const auto member = std::ranges::find_if(job.members, [this](const auto& entry) {
    return own_agent != 0 && entry.second.connection == own_agent;
  });
  if (member == job.members.end()) return std::nullopt;
  for (const auto& node : job.rounds.status().nodes) {
    if (node.id != member->second.node || !node.node_rank) continue;
    return HostPlace{node.id, node.host, node.first_rank, node.workers};
  }
  return std::nullopt;
}

void Service::State::apply(Job& job, const Refuse& effect) {
  const auto member = job.members.find(effect.to);
  if (member == job.members.end()) return;
  const Member refused = std::move(member->second);
  job.members.erase(member);
  job.deserted = Clock::now();
  joined(refused.connection, false);
  turn_away(refused.connection, job.name, refused.node, message::Refused{effect});
}

void Service::State::apply(Job& job, const Stop& effect) {
  const auto member = job.members.find(effect.to);
  if (member == job.members.end()) return;
  tell_late(member->second.connection, message::Stopped{effect});
  if (effect.cause == Stop::Cause::evicted) {
    ++totals.evictions;
    note(LogLine::Level::warning, LogLine::Event::evicted, job,
         "node " + member->second.node + " was given up: " + effect.reason);
    member->second.epoch = 0;
    member->second.evicted = true;
    server.seat(member->second.connection, store::no_space);
  } else if (std::exchange(job.stopping, effect.epoch) != effect.epoch) {
    note(LogLine::Level::warning, LogLine::Event::stopping, job,
         "epoch " + std::to_string(effect.epoch) + " is stopped: " + effect.reason);
  }
}

void Service::State::apply(Job& job, const RanksLost& effect) {
  const message::RanksLost lost{effect};
  if (effect.to != 0) {
    const auto member = job.members.find(effect.to);
    if (member != job.members.end()) tell(member->second.connection, lost);
    return;
  }
  const std::string who = ranks_text(effect.first_rank, effect.count) + " on " + effect.host;
  const bool left = effect.how.left();  // It is a failure only if somebody waits for them.
  note(left ? LogLine::Level::debug : LogLine::Level::warning,
       left ? LogLine::Event::other : LogLine::Event::lost, job,
       who + (left ? " " : " lost: ") + text_of(effect.how));
  tell_all(job, lost, [&](Session session, const Member& member) {
    return session != effect.except && member.epoch == effect.epoch;
  });
  if (effect.epoch != job.epoch) return;
  // After the news, so that whoever waits in a barrier knows by then who is missing.
  server.lose({effect.first_rank, effect.count}, job.world_size,
              "on " + effect.host + " is lost: " + text_of(effect.how), job.space);
}

void Service::State::apply(Job& job, const Standing& effect) {
  const message::Standing standing{effect};
  if (effect.to == 0) {
    note(LogLine::Level::info, LogLine::Event::standing, job, effect.sentence);
    tell_all(job, standing, [](Session, const Member&) { return true; });
  } else if (const auto member = job.members.find(effect.to); member != job.members.end()) {
    tell(member->second.connection, standing);
  }
}

void Service::State::apply(Job& job, const Finish& effect) {
  if (job.finished) return;
  job.finished = message::Finished{effect};
  ended.splice(ended.end(), job.entry);
  if (journal != nullptr) journal->job_finished(job.name, effect.exit_code);
  job.forget = Clock::now() + rules.remember;
  note(effect.exit_code == 0 ? LogLine::Level::info : LogLine::Level::error,
       LogLine::Event::finished, job,
       "finished with exit code " + std::to_string(effect.exit_code) + ": " + effect.sentence);
  tell_all(job, *job.finished, [](Session, const Member&) { return true; });
  server.drop_space(job.space, "the job is over: " + effect.sentence);
  job.space = store::no_space;
  // A node that was lost in silence is told, too, but not waited for.
  for (const auto& [session, member] : job.members) {
    if (!job.rounds.knows(session)) joined(member.connection, false);
  }
  call_when_idle();
}

void Service::State::note(LogLine::Level level, LogLine::Event event, const Job& job,
                          std::string sentence) const {
  if (log) log({level, job.name, std::move(sentence), true, event, job.epoch, job.attempt});
}

// ---- The successors of this node as the host ----

/// All nodes are told of the first few nodes that are ready.
void Service::State::hear(Job& job, Session from, const message::Standby& standby) {
  if (rules.only_job.empty()) return;
  const auto now = Clock::now();
  job.members[from].heard = now;
  step(job, TookPlace{from, standby.epoch}, now);
  if (standby.epoch != job.epoch || !is_of_epoch(job, from) || standby.address.empty()) return;
  const auto before = job.successors;
  job.successors[job.members[from].node_rank] = standby.address;
  if (job.successors.size() > successors_max) job.successors.erase(--job.successors.end());
  if (job.successors == before) return;
  tell_all(job, succession_of(job), [](Session, const Member&) { return true; });
}

message::Succession Service::State::succession_of(const Job& job) {
  message::Succession succession{{job.epoch, {}}};
  for (const auto& [node_rank, address] : job.successors) {
    succession.order.push_back({node_rank, address});
  }
  return succession;
}

// ---- What nodes ask each other ----

bool Service::State::is_of_epoch(const Job& job, Session session) const {
  const auto member = job.members.find(session);
  return !job.finished && member != job.members.end() && member->second.epoch == job.epoch;
}

void Service::State::hear(Job& job, Session asker, const message::Ask& ask) {
  if (ask.epoch != job.epoch || !is_of_epoch(job, asker)) {
    return send(job, {{asker, message::Answered{ask.number}}});
  }
  Questions::Nodes nodes;
  for (const auto& [session, member] : job.members) {
    if (is_of_epoch(job, session)) nodes.emplace(session, member.node_rank);
  }
  send(job, job.questions.ask(asker, ask, nodes, Clock::now()));
  schedule(job);
}

void Service::State::hear(Job& job, Session from, message::Answer answer) {
  if (answer.epoch == job.epoch) send(job, job.questions.answer(from, std::move(answer)));
}

void Service::State::hear(Job& job, Session asker, const message::AnswerTaken& taken) {
  send(job, job.questions.taken(asker, taken));
}

void Service::State::send(const Job& job, const Questions::Sends& sends) {
  for (const auto& [to, what] : sends) {
    const auto member = job.members.find(to);
    if (member == job.members.end()) continue;
    std::visit([&](const auto& said) { tell(member->second.connection, said); }, what);
  }
}

void Service::State::forget_departed(Job& job) {
  send(job, job.questions.keep([&](Session session) { return is_of_epoch(job, session); }));
}

// ---- The end of all jobs ----

std::size_t Service::State::unfinished() const { return jobs.size() - ended.size(); }

bool Service::State::idle() const { return agents == 0 && unfinished() == 0; }

void Service::State::call_when_idle() {
  if (!draining || !when_idle || unfinished() > 0) return;
  if (idle()) {
    farewell_timer.cancel();
    return boost::asio::post(io, [self = shared_from_this()] {
      if (self->when_idle) std::exchange(self->when_idle, nullptr)();
    });
  }
  if (std::exchange(farewell, true)) return;
  farewell_timer.expires_after(farewell_max);
  farewell_timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->stopped || !self->when_idle) return;
    std::exchange(self->when_idle, nullptr)();
  });
}

}  // namespace dlaunch::rendezvous
