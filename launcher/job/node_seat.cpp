#include "launcher/job/node_seat.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace dlaunch::launcher {
namespace {

namespace message = rendezvous::message;
using namespace std::chrono_literals;

/// A rendezvous that is not there yet is normal while a job starts, and so is a short interruption.
constexpr auto silent_trouble = 2s;

/// Of an epoch; more are not passed on either.
constexpr std::size_t departures_max = 16;

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

int exit_code_of(const Error& error) {
  switch (error.errc()) {
    case Errc::unreachable:
    case Errc::timeout:
    case Errc::peer_lost:
      return exit_code::unreachable;
    case Errc::unauthenticated:
      return exit_code::authentication;
    case Errc::aborted:
    case Errc::mismatch:
    case Errc::refused:
    case Errc::misuse:
    case Errc::revoked:
    case Errc::unsupported:
    case Errc::version:
    case Errc::internal:
      break;
  }
  return exit_code::usage;
}

}  // namespace

NodeSeat::NodeSeat(boost::asio::io_context& io, Options options, MakeOffer make_offer,
                   SeatListener& listener)
    : rules_(options.rules),
      interval_(options.heartbeat),
      hosts_(options.hosts),
      peer_name_(std::move(options.name)),
      make_offer_(std::move(make_offer)),
      host_instead_(std::move(options.host_instead)),
      hosting_problem_(std::move(options.hosting_problem)),
      listener_(listener),
      heartbeat_(io),
      uplink_(io, std::move(options.uplink), *this) {}

void NodeSeat::join() {
  uplink_.start();
  beat();
}

void NodeSeat::tell(const auto& said) {
  Bytes payload;
  message::encode(payload, said);
  uplink_.tell(std::decay_t<decltype(said)>::type, payload);
}

void NodeSeat::beat() {
  note_stall();
  // The next try to connect may be seconds away.
  auto pause = interval_;
  if (const auto trouble = uplink_.trouble()) {
    if (host_is_lost(trouble->since)) return finish_without_host(trouble->sentence);
    const auto left = rules_.liveness.lease - tried_for(trouble->since);
    if (epoch_ && epoch_->hosted) pause = std::clamp<Clock::duration>(left, 1ms, pause);
  }
  if (uplink_.connected()) tell(message::Heartbeat{});
  beaten_ = Clock::now();
  next_beat_ = beaten_ + pause;
  heartbeat_.expires_at(next_beat_);
  heartbeat_.async_wait([this](auto error) {
    if (!error && !over_) beat();
  });
}

/// This process was stopped, or its machine, and others may have given it up meanwhile. What comes
/// next is to be read with that in mind.
void NodeSeat::note_stall() {
  const auto now = Clock::now();
  if (now < next_beat_ || now - next_beat_ < rules_.liveness.doubtful_after()) return;
  stalled_until_ = now;
  next_beat_ = Clock::time_point::max();
  if (!epoch_) return;
  epoch_->stall = "this node stood still for " + age_text(now - beaten_);
  listener_.on_standing(epoch_->stall);
}

/// For how long there is no connection, as far as this node was awake to make one.
Clock::duration NodeSeat::tried_for(Clock::time_point since) const {
  return Clock::now() - std::max(since, stalled_until_);
}

// ---- What the agent says ----

void NodeSeat::worker_failed(const rendezvous::WorkerFailed& how) {
  if (epoch_ && !epoch_->failure) epoch_->failure = how;
  tell(message::told(how, Clock::now()));
}

void NodeSeat::worker_left(std::uint64_t epoch, int rank) {
  if (!epoch_ || epoch_->departures.size() >= departures_max) return;
  epoch_->departures.push_back({epoch, rank});
  tell(epoch_->departures.back());
}

void NodeSeat::calls_made(const rendezvous::CallsMade& calls) {
  std::vector<message::CallsMade> made{{calls.epoch, {}}};
  for (const auto& communicator : calls.communicators) {
    if (made.back().communicators.size() == message::communicators_max) {
      made.push_back({calls.epoch, {}});
    }
    made.back().communicators.push_back(communicator);
  }
  for (const auto& each : made) tell(each);
  if (epoch_) epoch_->calls = std::move(made);
}

void NodeSeat::workers_ended(const rendezvous::WorkersEnded& how) {
  if (epoch_) epoch_->end = how;
  tell(message::told(how, Clock::now()));
  if (epoch_ && epoch_->evicted) join_anew();
}

/// What we held is others' now.
void NodeSeat::join_anew() {
  epoch_.reset();
  join_now();
}

void NodeSeat::leave(int exit_code, const std::string& reason) {
  tell(message::Leave{exit_code, reason, hosts_});
  withdraw();
}

void NodeSeat::withdraw() {
  over_ = true;
  heartbeat_.cancel();
  uplink_.close();
}

// ---- What the rendezvous says ----

void NodeSeat::on_welcome(const wire::Welcome& welcome) {
  note_stall();
  job_ = welcome.job;
  if (!std::exchange(trouble_, {}).empty()) {
    listener_.on_standing("connected to " + peer_name_);
  }
  try {
    if (!offer_) offer_ = make_offer_(uplink_.local_address());
  } catch (const Error& error) {
    return finish(exit_code_of(error), error.what());
  }
  join_now();
  if (!epoch_) return;
  if (epoch_->failure) tell(message::told(*epoch_->failure, Clock::now()));
  for (const auto& departure : epoch_->departures) tell(departure);
  for (const auto& calls : epoch_->calls) tell(calls);
  if (epoch_->end) tell(message::told(*epoch_->end, Clock::now()));
  listener_.on_reconnected();
}

void NodeSeat::join_now() {
  const auto holding = epoch_ ? std::optional(epoch_->holding) : std::nullopt;
  tell(message::Join{*offer_, rules_, holding, DLAUNCH_VERSION});
}

template <class Message>
void NodeSeat::take_payload(BytesView payload) {
  if (const auto decoded = message::decode<Message>(payload)) return take(*decoded);
  finish(exit_code::internal, peer_name_ + " sent what this version cannot read");
}

void NodeSeat::on_push(const wire::FrameHeader& header, BytesView payload) {
  if (over_) return;
  note_stall();
  const auto take_if = [&]<class Message>(std::type_identity<Message>) {
    if (header.type == Message::type) take_payload<Message>(payload);
  };
  // Besides there are heartbeats, and what a later version may say.
  take_if(std::type_identity<message::Asked>{});
  take_if(std::type_identity<message::Answered>{});
  take_if(std::type_identity<message::Admitted>{});
  take_if(std::type_identity<message::Refused>{});
  take_if(std::type_identity<message::Stopped>{});
  take_if(std::type_identity<message::RanksLost>{});
  take_if(std::type_identity<message::Standing>{});
  take_if(std::type_identity<message::Finished>{});
}

void NodeSeat::take(const message::Admitted& m) {
  const auto& a = m.admission;
  // Said again after a reconnect.
  if (epoch_ && epoch_->holding.incarnation == a.incarnation && epoch_->holding.epoch >= a.epoch) {
    return;
  }
  if (epoch_ && !epoch_->end) {
    // This node was given up meanwhile, and asked anew before it heard of an epoch whose workers
    // are there: these go first, then it asks again.
    epoch_->evicted = true;
    return listener_.on_order(epoch_->holding.epoch, manner_of(rendezvous::Stop::Cause::evicted));
  }
  epoch_ = Epoch{.holding = {a.incarnation, a.epoch, a.attempt, a.node_rank, a.node_count,
                             a.first_rank, a.world_size},
                 .hosted = m.hosted && !hosts_,
                 .host = m.host};
  listener_.on_admitted(a);
}

void NodeSeat::take(const message::Refused& m) { finish(m.exit_code, m.reason); }

void NodeSeat::take(const message::Stopped& m) {
  if (m.cause == rendezvous::Stop::Cause::evicted) {
    // It may have been given up between two epochs, or before it heard of its first.
    if (!epoch_) return join_anew();
    listener_.on_standing(m.reason);
    if (epoch_->end) return join_anew();
    epoch_->evicted = true;
  } else if (!epoch_ || m.epoch != epoch_->holding.epoch) {
    return;
  }
  listener_.on_order(m.epoch, manner_of(m.cause));
}

void NodeSeat::take(const message::RanksLost& m) {
  if (!epoch_ || m.epoch != epoch_->holding.epoch) return;
  listener_.on_ranks_lost(m.first_rank, m.count, m.host, m.how);
}

void NodeSeat::take(const message::Standing& m) { listener_.on_standing(m.sentence); }

void NodeSeat::on_trouble(const Error& error, Clock::time_point since) {
  if (over_) return;
  note_stall();
  if (!offer_ && host_instead_ && host_instead_()) return;
  const auto lasted = tried_for(since);
  if (!epoch_ && lasted >= rules_.join_timeout) {
    return finish(exit_code::unreachable,
                  trouble_text(error) + "; tried for " + duration_text(rules_.join_timeout));
  }
  if (host_is_lost(since)) return finish_without_host(error.what());
  if (lasted < silent_trouble || trouble_ == error.what()) return;
  trouble_ = error.what();
  listener_.on_standing(trouble_text(error) + (epoch_ ? "; the workers go on, and it is tried again"
                                                      : "; it is tried again"));
}

std::string NodeSeat::trouble_text(const Error& error) const {
  const std::string problem = !offer_ && hosting_problem_ ? hosting_problem_(error) : "";
  return error.what() + (problem.empty() ? "" : "; " + problem);
}

bool NodeSeat::host_is_lost(Clock::time_point since) const {
  return epoch_ && epoch_->hosted && tried_for(since) >= rules_.liveness.lease;
}

void NodeSeat::finish_without_host(const std::string& trouble) {
  const auto known = uplink_.trouble();
  const std::string& stall = epoch_->stall;
  const bool stalled =
      !stall.empty() && known && known->since <= stalled_until_ + rules_.liveness.lease;
  const std::string since = stalled ? stall + ", and the job went on without it; " : "";
  if (const auto& host = epoch_->host) {
    listener_.on_ranks_lost(
        host->first_rank, host->workers, host->host,
        Departure::because(since + "node " + host->id + " is lost: " + trouble));
  }
  finish(
      rendezvous::Finish::for_lost_node(since + "the node that hosts the job is lost: " + trouble),
      false);
}

void NodeSeat::on_refused(const Error& error) { finish(exit_code_of(error), error.what()); }

void NodeSeat::finish(const rendezvous::Finish& end, bool judged) {
  if (std::exchange(over_, true)) return;
  heartbeat_.cancel();
  listener_.on_finished(end, judged);
}

}  // namespace dlaunch::launcher
