#pragma once

#include "rendezvous/service/actions.hpp"
#include "rendezvous/service/messages.hpp"
#include "rendezvous/service/questions.hpp"
#include "rendezvous/service/refusal_log.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/base/flat_map.hpp"
#include "runtime/store/server/handler_memory.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

/// The inside of Service, for the files that implement it and nobody else: service.cpp turns
/// messages of connections into events, service_jobs.cpp carries out the effects, service_time.cpp
/// keeps time, service_limits.cpp chooses the connections that have to go, service_status.cpp shows
/// the state.
namespace dlaunch::rendezvous {

/// An agent's last report about its ranks' calls.
struct CallsKnown {
  std::shared_ptr<const std::vector<RankCalls>> calls;  ///< Null: none in this epoch.
  Clock::time_point told;
  store::MemoryCharge charge;  ///< What the memory budget counts of it.
};

/// An agent process that has joined a job.
struct Member {
  store::ConnectionId connection = 0;  ///< 0: not connected now.
  std::string node;
  int workers = 0;
  std::uint64_t epoch = 0;  ///< The last one it was admitted to.
  int node_rank = 0;        ///< In that epoch.
  bool evicted = false;     ///< It was given up, and is to join anew.
  Clock::time_point heard;  ///< When it was last heard, as the rounds know it.
  CallsKnown calls;
  store::MemoryCharge offer;       ///< What the memory budget counts of its offer,
  store::MemoryCharge calls_made;  ///< and of the calls that its ranks had made, in this epoch.
};

/// Names go into logs, sentences and file names.
bool is_name(std::string_view text);

/// What the rounds have decided, as far as they have said it. The effects before `next` are carried
/// out.
struct Decision {
  Effects effects;
  std::uint64_t epoch_before = 0;  ///< The job's epoch before them.
  std::size_t next = 0;
  bool whole = true;  ///< None has failed.
};

struct Job {
  std::string name;
  std::uint64_t incarnation = 0;
  Rounds rounds;
  FlatMap<Session, Member> members;
  bool broken = false;      ///< The rounds have failed half way.
  std::uint64_t key = 0;    ///< The number of the key that its nodes prove; 0: none.
  std::uint64_t epoch = 0;  ///< That of `space`; 0: none yet.
  int world_size = 0;
  int attempt = 0;
  store::SpaceId space = store::no_space;
  Questions questions;            ///< Those of the epoch.
  std::uint64_t stopping = 0;     ///< The epoch that is stopping, for the log.
  std::optional<HostPlace> host;  ///< The place of the agent in whose process this is.
  /// Addresses at which nodes of the epoch would host, by node rank.
  std::map<int, std::string> successors;
  /// Set if it was being drained when an earlier service ended; it is drained again once its nodes
  /// come back.
  std::optional<std::string> drained_before;

  /// Why no node may be left: "node n1 was evicted by operator 'ann'". Empty once one has joined.
  std::string evicted;

  Clock::time_point deserted;  ///< When a node's connection was last lost, or the node left.
  std::optional<message::Finished> finished;
  /// Its entry for State::ended while it is not there, so that ending takes no memory.
  std::list<Job*> entry;
  std::list<Job*>::iterator entry_at;
  Clock::time_point forget;                    ///< When a finished job is forgotten.
  std::optional<Clock::time_point> scheduled;  ///< As in State::deadlines.
  /// Its place there while it is not scheduled, so that scheduling it takes no memory.
  std::set<std::pair<Clock::time_point, Job*>>::node_type place;
  /// Set while not all that the rounds have decided last is carried out.
  std::optional<Decision> decision;
  /// When something is looked at again that failed, for want of memory say.
  Clock::time_point looks_again = Clock::time_point::max();
};

/// A welcomed connection.
struct Caller {
  Session session = 0;  ///< 0: a tool.
  std::string job;
  bool joined = false;
};

/// A message that is written in the turn of the node that it is for.
template <class Message>
class Late final : public store::LateMessage {
 public:
  explicit Late(Message message) : message_(std::move(message)) {}
  wire::Type type() const override { return Message::type; }
  void encode(Bytes& out) const override { message::encode(out, message_); }

 private:
  const Message message_;
};

struct Service::State final : store::Host, std::enable_shared_from_this<State> {
  State(boost::asio::io_context& context, ServiceRules allowed, Log to, JobJournal* keep);

  // ---- What connections say ----

  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId who,
                                             const wire::Hello& hello) override;
  void on_message(store::ConnectionId who, const wire::FrameHeader& header,
                  BytesView payload) override;
  void on_other_version(store::ConnectionId who, std::uint32_t theirs) override;
  void on_closed(store::ConnectionId who, bool goodbye) override;

  void on_slow_reader(store::ConnectionId who, const std::string& peer);
  void on_failed(store::ConnectionId who, const std::string& sentence);
  /// Counts and logs a connection that was turned away.
  void on_refused(store::RefusalKind kind, std::string sentence);
  RefusalLog::Tell tell_refusal() const;
  /// Warns, now and then, that there is no room for another connection.
  void on_full(const std::string& sentence);
  /// Watches a connection: it has to join a job in time, or, a tool's, must not fall silent.
  void expect(store::ConnectionId who, bool to_join);
  void gone(Job& job, Session session, store::ConnectionId who, bool goodbye);
  std::optional<Refusal> objection(const wire::Hello& hello, const std::string& job) const;
  bool is_crowded(const std::string& job) const;
  /// Why a node may not ask for such times; empty: it may.
  std::string objection(const JobRules& asked) const;
  /// The connection that has been here longest without joining, if it has had the time to; 0: none.
  store::ConnectionId stranger_to_go(Clock::time_point now);
  void dispatch(store::ConnectionId who, const Caller& caller, wire::Type type, BytesView payload);
  void join(store::ConnectionId who, message::Join message);
  /// What is wrong with it, whatever the job.
  std::optional<message::Refused> objection(Session session, const message::Join& message) const;
  /// The refusal of an offer for which there is no room; nullopt if there is. `charge` counts it.
  std::optional<message::Refused> no_room(const Job* job, Session session, const NodeOffer& offer,
                                          store::MemoryCharge& charge);
  /// Whether there is room for what the node tells; its texts are cut.
  bool may_keep(Member& member, message::CallsMade& told);
  std::optional<message::Refused> objection(const Job* job, Session session,
                                            const message::Join& message) const;
  static std::optional<message::Refused> other_key(const Job& job, Session session,
                                                   std::uint64_t key);
  Job& open_job(const std::string& name, const message::Join& message);
  void turn_away(store::ConnectionId who, const std::string& job, const std::string& node,
                 const message::Refused& refusal);
  void joined(store::ConnectionId who, bool is);
  /// The job goes, and its connected nodes have joined no job any more.
  void part_from_members(const Job& job);
  Job* find(std::string_view name);
  /// The same, once all is carried out that its rounds have decided.
  Job* find_settled(std::string_view name);
  std::size_t unfinished() const;
  bool idle() const;
  void call_when_idle();

  // ---- The jobs of earlier services: service_time.cpp ----

  void load_before();
  /// Null: none of that name is known, or it has been opened since.
  const JobRecord* find_before(std::string_view name) const;
  /// True where the node is told that its job has ended, or that it has to wait for those that have
  /// a place in it.
  bool came_after_restart(store::ConnectionId who, const std::string& name, message::Join& join,
                          store::MemoryCharge& charge);
  bool is_early(store::ConnectionId who) const;
  /// A node that came to a job of an earlier service before the nodes that have a place in it.
  struct Early {
    store::ConnectionId connection = 0;
    std::string job;
    message::Join join;
    Clock::time_point until;     ///< The time until which it waits for them.
    store::MemoryCharge charge;  ///< What the memory budget counts of it.
  };
  /// Lets these join now.
  void call_early(const std::function<bool(const Early&)>& which);
  void forget_those_before();
  /// One of its nodes is back in the epoch that was being drained.
  void drain_again(Job& job);

  // ---- Events and effects ----

  /// Has the rounds decide. What thousands have to be told of it is left for the job's turns.
  void step(Job& job, const Event& event, Clock::time_point now);
  bool on_turn(const std::string& job) override;
  /// Carries out so many of the effects that are left; returns whether there are more.
  bool carry_out(Job& job, std::size_t count);
  /// Carries out all that are left: nothing else may happen to the job before.
  void carry_out(Job& job) { carry_out(job, std::numeric_limits<std::size_t>::max()); }
  void carry_out_next(Job& job, Decision& decision);
  /// What follows from effects that are all carried out.
  void conclude(Job& job, const Decision& carried_out);
  /// What has failed for it is looked at again soon.
  void look_again(Job& job) noexcept;
  /// The rounds have failed half way: the job ends.
  void give_up(Job& job, const char* why) noexcept;
  /// An effect for that node, or for all where it is 0, has failed: their connections end.
  void lose_touch(const Job& job, Session to, const char* why) noexcept;
  void apply(Job& job, Admit& effect);
  void apply(Job& job, const Refuse& effect);
  void apply(Job& job, const Stop& effect);
  void apply(Job& job, const RanksLost& effect);
  void apply(Job& job, const Standing& effect);
  void apply(Job& job, const Finish& effect);
  static bool is_deserted(const Job& job);
  /// `left`: the job's end where its last node has just left, and said why.
  void end_if_deserted(Job& job, std::optional<Finish> left = std::nullopt);
  /// If no place is left, gives the place of the job that was deserted first to another. Newcomers
  /// in vain cost little: the jobs are looked at only where one can have become old enough.
  void make_place(Clock::time_point now);
  void begin_epoch(Job& job, std::uint64_t epoch, int world_size);
  std::optional<HostPlace> place_of_host(const Job& job) const;
  void note(LogLine::Level level, LogLine::Event event, const Job& job, std::string sentence) const;

  // ---- What operators ask: actions.cpp ----

  ActionOutcome act(const Action& action);
  ActionOutcome act_on(Job& job, const Action& action);
  ActionOutcome drain_all(const Action& action);
  ActionOutcome back_up(const Action& action);
  ActionOutcome evict(Job& job, const Action& action);

  // ---- What it looks like ----

  NamedJobStatus status_of(const Job& job) const;
  void hear(Job& job, Session from, message::CallsNow told);

  // ---- The successors of this node as the host ----

  void hear(Job& job, Session from, const message::Standby& standby);
  static message::Succession succession_of(const Job& job);

  // ---- What nodes ask each other ----

  bool is_of_epoch(const Job& job, Session session) const;
  void hear(Job& job, Session asker, const message::Ask& ask);
  void hear(Job& job, Session from, message::Answer answer);
  void hear(Job& job, Session asker, const message::AnswerTaken& taken);
  void send(const Job& job, const Questions::Sends& sends);
  /// Ends questions to nodes that are no longer part of the epoch.
  void forget_departed(Job& job);

  template <class Message>
  void tell(store::ConnectionId to, const Message& message) {
    if (to == 0) return;
    server.push(to, Message::type, encoded(message));
  }
  /// Tells one node what many are told at the same time.
  template <class Message>
  void tell_late(store::ConnectionId to, Message message) {
    if (to == 0) return;
    server.push_late(to, std::make_shared<const Late<Message>>(std::move(message)));
  }
  /// Sends to every connected member for which `wanted` holds.
  template <class Message, class Wanted>
  void tell_all(const Job& job, const Message& message, Wanted wanted) {
    const auto late = std::make_shared<const Late<Message>>(message);
    for (const auto& [session, member] : job.members) {
      if (member.connection != 0 && wanted(session, member)) {
        server.push_late(member.connection, late);
      }
    }
  }

  /// Its payload, until the next one is made.
  template <class Message>
  BytesView encoded(const Message& message) {
    constexpr std::size_t kept_bytes_max = 64u << 10;
    if (last_payload.capacity() > kept_bytes_max) Bytes().swap(last_payload);
    last_payload.clear();
    message::encode(last_payload, message);
    return last_payload;
  }

  // ---- Time ----

  /// Tells the rounds which agents were heard meanwhile, and when: a busy agent sends no
  /// heartbeats.
  void refresh(Job& job);
  /// Brings deadlines up to date with this job. Takes no memory.
  void schedule(Job& job) noexcept;
  void forget(Job& job);
  /// Takes it out of all that knows of it, and destroys it.
  void erase(Job& job);
  /// Forgets some finished jobs if there are too many.
  void forget_some();
  /// Closes connections that have not joined in time, and tools that say nothing any more.
  void close_strangers(Clock::time_point now);
  void arm();
  void arm_at(Clock::time_point when);
  void wait_for_time();
  void keep_time();
  void on_time();

  // ---- What it works on ----

  boost::asio::io_context& io;
  ServiceRules rules;
  const Log log;
  JobJournal* const journal;   ///< Null: nothing is kept.
  const std::uint64_t memory;  ///< Stands for the state kept here; a new number after each start.
  store::Server server;
  Bytes last_payload;  ///< That of encoded().
  boost::asio::steady_timer timer;
  store::HandlerMemory time_memory;
  Clock::time_point armed = Clock::time_point::max();  ///< When the timer goes off.

  std::map<std::string, Job, std::less<>> jobs;  ///< A std::map, so that jobs stay in place.
  std::list<Job*> ended;  ///< Those that are finished, in the order in which they ended.
  /// No job is old enough before then to give its place to another.
  Clock::time_point next_place = Clock::time_point::min();
  FlatMap<store::ConnectionId, Caller> callers;
  FlatMap<Session, store::ConnectionId> connected;
  std::size_t agents = 0;             ///< Callers that have joined.
  store::ConnectionId own_agent = 0;  ///< The agent in whose process this is; 0: none.
  std::set<std::pair<Clock::time_point, Job*>> deadlines;
  FlatMap<std::string, std::size_t> connections_of;  ///< Callers of each job.
  /// When agents have to have joined, and when tools have been silent for too long.
  std::deque<std::pair<Clock::time_point, store::ConnectionId>> unjoined, visitors;
  /// The highest numbers of forgotten jobs and of jobs before this service; later ones are higher.
  std::uint64_t epoch_max = 0, incarnation_max = 0;
  std::uint64_t epoch_before = 0;       ///< The highest known from before this service.
  std::uint64_t incarnation_first = 0;  ///< Jobs from before this service have lower ones.
  const Clock::time_point began;        ///< When it was started.
  /// The jobs of earlier services that have not been opened since, and until when they are known.
  std::map<std::string, JobRecord, std::less<>> known_before;
  Clock::time_point forget_before = Clock::time_point::max();
  std::deque<Early> early;
  Totals totals;  ///< Save for the connections and the memory.
  RefusalLog refusals;
  Clock::time_point full_told = Clock::time_point::min();
  Histogram message_times;
  bool draining = false;
  std::optional<std::string> drained_before;  ///< An operator's drain from before this service.
  boost::asio::steady_timer farewell_timer;
  Clock::duration farewell_max{};
  bool farewell = false;  ///< No job runs any more; agents are told, and go.
  std::function<void()> when_idle;
  bool stopped = false;
};

}  // namespace dlaunch::rendezvous
