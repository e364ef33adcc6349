#include "rendezvous/service/service.hpp"

#include "rendezvous/service/incarnation.hpp"
#include "rendezvous/service/service_state.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>

#include <boost/asio/post.hpp>

namespace dlaunch::rendezvous {

Service::State::State(boost::asio::io_context& context, ServiceRules allowed, Log to,
                      JobJournal* keep)
    : io(context),
      rules(std::move(allowed)),
      log(std::move(to)),
      journal(keep),
      memory(keep == nullptr ? random_number() : keep->memory()),
      server(context, *this, rules.limits),
      timer(context),
      began(Clock::now()),
      farewell_timer(context) {
  server.on_slow_reader(
      [this](store::ConnectionId who, const std::string& peer) { on_slow_reader(who, peer); });
  server.limit(rules.connections);
  server.on_no_room([this](Clock::time_point now) { return stranger_to_go(now); });
  server.on_full([this](const std::string& sentence) { on_full(sentence); });
  server.on_unproven(
      [this](store::RefusalKind kind, const std::string& sentence) { on_refused(kind, sentence); });
  server.on_failed(
      [this](store::ConnectionId who, const std::string& sentence) { on_failed(who, sentence); });
  if (journal != nullptr) {
    load_before();
    if (auto* const commits = journal->commits()) server.hold_for(*commits);
  }
  if (rules.taken_over) {
    epoch_max = std::max(epoch_max, rules.taken_over->place.epoch);
    incarnation_max = std::max(incarnation_max, rules.taken_over->place.incarnation);
  }
  epoch_before = epoch_max;
  incarnation_first = incarnation_max = new_incarnation(incarnation_max);
}

// ---- Connections ----

std::variant<wire::Welcome, store::Host::Refusal> Service::State::admit(store::ConnectionId who,
                                                                        const wire::Hello& hello) {
  const std::string& name = rules.only_job.empty() ? hello.job : rules.only_job;
  if (auto no = objection(hello, name)) {
    on_refused(is_crowded(name) ? store::RefusalKind::crowded_job : store::RefusalKind::bad_hello,
               "refused " + server.peer_of(who) +
                   (is_name(name) ? ", which came to the job " + name_in_quotes(name) : "") + ": " +
                   no->sentence);
    return std::move(*no);
  }
  // If a later part fails, on_closed() takes back what was done.
  callers[who] = {hello.session, name};
  ++connections_of[name];
  if (hello.session != 0) connected[hello.session] = who;
  Job* job = find(name);
  store::SpaceId space = store::no_space;
  bool stranger = true;
  if (job != nullptr && hello.session == 0) {
    space = job->space;  // A tool looks around.
    stranger = false;
  } else if (job != nullptr) {
    // An agent that comes back goes on where it was.
    if (const auto member = job->members.find(hello.session); member != job->members.end()) {
      stranger = false;
      member->second.connection = who;
      if (member->second.epoch == job->epoch) space = job->space;
    }
  }
  server.seat(who, space);
  server.count_as_stranger(who, stranger);
  // It hears of no job, unless it joins one.
  server.speak_freely(who, job == nullptr && journal != nullptr && !journal->refusal().empty());
  expect(who, hello.session != 0);
  arm();
  return wire::Welcome{.job = name, .epoch = job == nullptr ? 0 : job->epoch, .memory = memory};
}

std::optional<store::Host::Refusal> Service::State::objection(const wire::Hello& hello,
                                                              const std::string& job) const {
  if (hello.member) {
    return Refusal{Errc::refused,
                   "this is the rendezvous, for agents; a rank talks to the agent that started it"};
  }
  if (job.empty()) {
    return Refusal{Errc::refused, "this rendezvous serves many jobs; name yours with --rdzv-id"};
  }
  if (!is_name(job) || (!hello.job.empty() && !is_name(hello.job))) {
    return Refusal{Errc::refused,
                   "a job's name has at most 255 bytes, none of them a control character"};
  }
  if (!rules.only_job.empty() && !hello.job.empty() && hello.job != rules.only_job) {
    return Refusal{Errc::refused, "this rendezvous serves the job " +
                                      name_in_quotes(rules.only_job) + ", not " +
                                      name_in_quotes(hello.job)};
  }
  if (hello.session == 0 && !jobs.contains(job)) {
    return Refusal{Errc::refused, "there is no job " + name_in_quotes(job) + " here"};
  }
  if (is_crowded(job)) {
    return Refusal{Errc::refused, "the job has " + std::to_string(rules.connections_per_job_max) +
                                      " connections already, which is the limit here"};
  }
  const auto other = connected.find(hello.session);
  if (other != connected.end() && callers.at(other->second).job != job) {
    return Refusal{Errc::refused, "this session belongs to another job"};
  }
  return std::nullopt;
}

void Service::State::on_message(store::ConnectionId who, const wire::FrameHeader& header,
                                BytesView payload) {
  const auto found = callers.find(who);
  if (found == callers.end()) return;  // The caller is being let go.
  const auto began_at = Clock::now();
  // Copied, since the action may end the caller.
  const Caller caller = found->second;
  try {
    dispatch(who, caller, header.type, payload);
  } catch (const std::exception&) {
    // It may have been left without anybody.
    if (Job* job = find(caller.job)) look_again(*job);
    arm();
    throw;
  }
  arm();
  message_times.add(Clock::now() - began_at);
}

void Service::State::dispatch(store::ConnectionId who, const Caller& caller, wire::Type type,
                              BytesView payload) {
  // Decodes the message that `act` takes, and acts.
  const auto with = [&]<class Message>(std::type_identity<Message>, auto act) {
    auto decoded = message::decode<Message>(payload);
    if (decoded) return act(std::move(*decoded));
    turn_away(who, caller.job, {},
              {{0, Errc::version, exit_code::configuration,
                "a message of type " + std::to_string(static_cast<unsigned>(type)) +
                    " cannot be read; use the same dlaunch everywhere"}});
  };
  if (type == message::Join::type) {
    with(std::type_identity<message::Join>{}, [&](message::Join m) { join(who, std::move(m)); });
    if (!early.empty() && find_before(caller.job) == nullptr) {
      call_early([&](const Early& each) { return each.job == caller.job; });
    }
    return;
  }
  if (type == message::Heartbeat::type) server.push_ahead(who, type);
  Job* job = find_settled(caller.job);
  const Session session = caller.session;
  if (job == nullptr || !caller.joined || !job->members.contains(session)) return;
  const auto now = Clock::now();
  // The event itself tells the rounds that the node was heard; telling them again later would count
  // from then.
  const auto take = [&](auto event) {
    event.session = session;
    job->members[session].heard = now;
    step(*job, std::move(event), now);
  };
  if (type == message::Heartbeat::type) {
    take(Heartbeat{});
  } else if (type == message::Leave::type) {
    with(std::type_identity<message::Leave>{}, [&](Leave m) {
      const std::string node = job->members[session].node;
      const int code = m.exit_code != 0 ? m.exit_code : exit_code::node_lost;
      const std::string why = "node " + node + " left: " + m.reason;
      take(std::move(m));
      job->members.erase(session);
      job->deserted = now;
      joined(who, false);
      forget_departed(*job);
      end_if_deserted(*job, Finish{code, std::nullopt, why + "; it was the last one"});
      schedule(*job);
    });
  } else if (type == message::WorkerFailed::type) {
    with(std::type_identity<message::WorkerFailed>{},
         [&](const message::WorkerFailed& m) { take(message::heard(m, session, now)); });
  } else if (type == message::WorkerLeft::type) {
    with(std::type_identity<message::WorkerLeft>{}, [&](WorkerLeft m) { take(m); });
  } else if (type == message::CallsMade::type) {
    with(std::type_identity<message::CallsMade>{}, [&](message::CallsMade m) {
      if (may_keep(job->members[session], m)) take(CallsMade(std::move(m)));
    });
  } else if (type == message::WorkersEnded::type) {
    with(std::type_identity<message::WorkersEnded>{},
         [&](const message::WorkersEnded& m) { take(message::heard(m, session, now)); });
  }
  const auto question = [&]<class Message>(std::type_identity<Message> kind) {
    if (type == Message::type) with(kind, [&](Message m) { hear(*job, session, std::move(m)); });
  };
  question(std::type_identity<message::Ask>{});
  question(std::type_identity<message::Answer>{});
  question(std::type_identity<message::AnswerTaken>{});
  question(std::type_identity<message::Standby>{});
  question(std::type_identity<message::CallsNow>{});
}

void Service::State::on_other_version(store::ConnectionId who, std::uint32_t theirs) {
  on_refused(store::RefusalKind::other_version,
             store::other_version_text(server.peer_of(who), theirs));
}

void Service::State::on_closed(store::ConnectionId who, bool goodbye) {
  const auto found = callers.find(who);
  if (found == callers.end()) return;
  const Caller caller = found->second;
  if (caller.joined) --agents;
  callers.erase(found);
  std::erase_if(early, [&](const Early& each) { return each.connection == who; });
  const auto of = connections_of.find(caller.job);
  if (of != connections_of.end() && --of->second == 0) connections_of.erase(of);
  const auto own = connected.find(caller.session);
  if (own != connected.end() && own->second == who) connected.erase(own);
  if (Job* job = find_settled(caller.job)) gone(*job, caller.session, who, goodbye);
  arm();
  call_when_idle();
}

void Service::State::gone(Job& job, Session session, store::ConnectionId who, bool goodbye) {
  const auto member = job.members.find(session);
  // It may have come back on another connection already.
  if (member == job.members.end() || member->second.connection != who) return;
  member->second.connection = 0;
  job.deserted = Clock::now();
  if (job.finished) return;  // The job is over.
  // A node that has no place in the epoch has nothing to come back to: it joins anew.
  if (goodbye || job.epoch == 0 || member->second.epoch != job.epoch) job.members.erase(member);
  const auto now = Clock::now();
  std::optional<Leave> leave;
  try {
    if (goodbye) leave = Leave{session, exit_code::node_lost, "gone without a reason"};
  } catch (const std::bad_alloc&) {  // It counts as lost.
  }
  if (leave) {
    step(job, *std::move(leave), now);
  } else {
    step(job, Disconnected{session}, now);
  }
}

// ---- Joining ----

void Service::State::join(store::ConnectionId who, message::Join message) {
  const Session session = callers[who].session;
  const std::string name = callers[who].job;
  Job* job = find(name);
  server.speak_freely(who, false);
  // The node was cut off for so long that it was given up.
  const bool missed_the_end =
      job != nullptr && message.holding && job->rounds.has_had(message.holding->incarnation);
  if (job != nullptr && job->finished &&
      (job->members.contains(session) || !rules.only_job.empty() || missed_the_end)) {
    joined(who, true);
    job->members[session].connection = who;
    return tell(who, *job->finished);
  }
  store::MemoryCharge charge(rules.limits.memory);
  auto no = objection(session, message);
  if (!no) no = no_room(job, session, message.offer, charge);
  if (!no && job == nullptr && came_after_restart(who, name, message, charge)) return;
  if (!no && (job == nullptr || job->finished)) make_place(Clock::now());
  const std::uint64_t key = server.proved_by(who);
  if (!no) no = objection(job, session, message);
  if (!no && job != nullptr && !job->finished) no = other_key(*job, session, key);
  if (no) {
    server.speak_freely(who, job == nullptr);
    const bool named = is_name(message.offer.id);
    return turn_away(who, name, named ? message.offer.id : std::string(), *no);
  }
  if (job == nullptr || job->finished) job = &open_job(name, message);
  joined(who, true);
  if (job->members.empty() || job->key == 0) job->key = key;
  Member& member = job->members[session];
  member.connection = who;
  member.node = message.offer.id;
  member.workers = message.offer.workers;
  member.offer = std::move(charge);
  const auto now = Clock::now();
  member.heard = now;
  member.evicted = false;
  job->evicted.clear();
  const auto holding = message.holding;
  const std::uint64_t before = job->incarnation;
  step(*job, Join{session, std::move(message.offer), message.rules, holding}, now);
  if (!job->finished && !job->successors.empty()) tell(who, succession_of(*job));
  // After a restart of the service the rounds may take up an epoch that they did not begin.
  if (!holding || job->finished || job->rounds.epoch() != holding->epoch ||
      job->rounds.incarnation() != holding->incarnation) {
    return;
  }
  const auto back = job->members.find(session);
  if (back == job->members.end() || back->second.evicted) return;
  if (job->incarnation != before || job->epoch != holding->epoch) {
    begin_epoch(*job, holding->epoch, holding->world_size);
  }
  back->second.epoch = holding->epoch;
  back->second.node_rank = holding->node_rank;
  server.seat(who, job->space);
  send(*job, job->questions.back(session));
  drain_again(*job);
}

std::optional<message::Refused> Service::State::objection(const Job* job, Session session,
                                                          const message::Join& message) const {
  const auto refused = [](int exit_code, std::string why) {
    return message::Refused{{0, Errc::refused, exit_code, std::move(why)}};
  };
  if (job != nullptr && !job->finished) {
    if (job->members.size() < static_cast<std::size_t>(rules.nodes_per_job_max) ||
        job->members.contains(session)) {
      return std::nullopt;
    }
    return refused(exit_code::unreachable, "the job has " + std::to_string(job->members.size()) +
                                               " nodes already, which is the limit here");
  }
  if (draining && !message.holding) {
    return refused(exit_code::unreachable, "this rendezvous is being drained and takes no new job");
  }
  if (unfinished() >= rules.jobs_max) {
    return refused(exit_code::unreachable, "this rendezvous has " + std::to_string(unfinished()) +
                                               " jobs already, which is the limit");
  }
  if (journal != nullptr && !message.holding) {
    if (const auto why = journal->refusal(); !why.empty()) {
      return refused(exit_code::unreachable, "this rendezvous takes no new job: " + why);
    }
  }
  return std::nullopt;
}

/// A new job, or a new incarnation of a finished one: its epochs go on.
Job& Service::State::open_job(const std::string& name, const message::Join& message) {
  std::uint64_t epoch = epoch_max;
  if (Job* old = find(name)) {
    epoch = old->rounds.epoch();
    erase(*old);
  }
  const std::uint64_t incarnation = incarnation_max = new_incarnation(incarnation_max);
  // If the incarnation began before this service did, later numbers do not count.
  std::optional<std::string> drained;
  if (message.holding && message.holding->incarnation < incarnation_first) {
    const JobRecord* const before = find_before(name);
    epoch = before != nullptr ? 0 : epoch_before;
    if (before != nullptr) drained = before->drained;
  }
  forget_some();
  // No nodes come back to a rendezvous that a node hosts: without that node the job is over.
  const auto return_by = rules.only_job.empty()
                             ? deadline_after(message.rules.liveness.returns_within(), began)
                             : Clock::time_point::min();
  Job& job = jobs[name];
  try {
    job.name = name;
    job.place = deadlines.extract(deadlines.emplace(Clock::time_point::max(), &job).first);
    job.entry_at = job.entry.insert(job.entry.end(), &job);
    job.incarnation = incarnation;
    std::optional<Hosting> hosting;
    if (!rules.only_job.empty()) hosting = Hosting{std::exchange(rules.taken_over, std::nullopt)};
    job.rounds = Rounds(epoch, {incarnation, incarnation_first, return_by, epoch_before}, name,
                        std::move(hosting));
    job.drained_before = drained;
    if (journal != nullptr) journal->job_opened(name, incarnation);
    if (drained && journal != nullptr) journal->drained(name, drained);
  } catch (...) {
    jobs.erase(name);
    throw;
  }
  known_before.erase(name);
  ++totals.jobs_opened;
  return job;
}

void Service::State::turn_away(store::ConnectionId who, const std::string& job,
                               const std::string& node, const message::Refused& refusal) {
  ++totals.refusals;
  tell(who, refusal);
  server.close(who);
  refusals.add_node(job, find(job) != nullptr,
                    (node.empty() ? "a node" : "node " + node) + " was refused: " + refusal.reason,
                    Clock::now(), tell_refusal());
}

void Service::State::joined(store::ConnectionId who, bool is) {
  const auto caller = callers.find(who);
  if (caller == callers.end() || caller->second.joined == is) return;
  caller->second.joined = is;
  server.count_as_stranger(who, !is);
  is ? ++agents : --agents;
  if (!is) expect(who, true);  // Its place is for connections that have joined a job, or will.
}

void Service::State::part_from_members(const Job& job) {
  for (const auto& [session, member] : job.members) joined(member.connection, false);
}

// ---- Service ----

Service::Service(boost::asio::io_context& io, ServiceRules rules, Log log, JobJournal* journal)
    : state_(std::make_shared<State>(io, std::move(rules), std::move(log), journal)) {
  state_->wait_for_time();
}

Service::~Service() { stop(); }

void Service::listen(unique_fd listener, store::Protocols protocols,
                     std::optional<SocketAccess> access) {
  state_->server.listen(std::move(listener), protocols, access);
}

void Service::adopt(unique_fd connected) {
  state_->own_agent = state_->server.adopt(std::move(connected));
}

store::Server& Service::server() { return state_->server; }

void Service::change(const ServiceRules& rules) {
  state_->rules.jobs_max = rules.jobs_max;
  state_->rules.nodes_per_job_max = rules.nodes_per_job_max;
  state_->rules.connections_per_job_max = rules.connections_per_job_max;
  state_->rules.asked_time_max = rules.asked_time_max;
  state_->rules.remember = rules.remember;
}

bool Service::idle() const { return state_->idle(); }

void Service::drain(std::function<void()> when_idle, Clock::duration farewell) {
  state_->farewell_max = farewell;
  state_->draining = true;
  state_->when_idle = std::move(when_idle);
  state_->call_when_idle();
}

void Service::stop() {
  state_->stopped = true;
  state_->timer.cancel();
  state_->farewell_timer.cancel();
  state_->server.stop();
}

}  // namespace dlaunch::rendezvous
