#include "launcher/job/node_seat.hpp"

#include "launcher/request/option_values.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <type_traits>
#include <utility>

namespace dlaunch::launcher {
namespace {

namespace message = rendezvous::message;

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
    : peer_name_(options.rules.peer),
      silence_max_(options.rules.job.liveness.silence_max()),
      make_offer_(std::move(make_offer)),
      host_instead_(std::move(options.host_instead)),
      hosting_problem_(std::move(options.hosting_problem)),
      stand_by_(std::move(options.stand_by)),
      take_over_(std::move(options.take_over)),
      listener_(listener),
      timer_(io),
      core_(std::move(options.rules)),
      uplink_(io, std::move(options.uplink), *this) {}

void NodeSeat::join() {
  uplink_.start();
  step(seat::Due{});
}

void NodeSeat::step(const seat::Event& event) {
  for (const auto& effect : core_.step(event, Clock::now())) {
    std::visit([this](const auto& e) { execute(e); }, effect);
  }
}

// ---- What comes over the connection ----

void NodeSeat::on_welcome(const wire::Welcome& welcome) {
  job_ = welcome.job;
  seat::Welcomed welcomed;
  try {
    if (core_.is_coming()) welcomed.offer = make_offer_(uplink_.local_address());
  } catch (const Error& error) {
    return on_refused(error);
  }
  step(welcomed);
}

void NodeSeat::on_trouble(const Error& error, Clock::time_point since) {
  if (core_.is_coming() && host_instead_ && host_instead_()) return;
  const bool hints = core_.is_coming() && hosting_problem_;
  step(seat::Trouble{error.what(), since, hints ? hosting_problem_(error) : ""});
}

/// A stranger may listen by now at the address of the node that should host.
void NodeSeat::on_refused(const Error& error) {
  if (core_.is_moving()) return step(seat::Trouble{error.what(), Clock::time_point{}});
  refuse(exit_code_of(error), error.what());
}

void NodeSeat::refuse(int exit_code, const std::string& reason) {
  step(rendezvous::Refuse{0, Errc::refused, exit_code, reason});
}

template <class Message>
void NodeSeat::take_payload(BytesView payload) {
  if (const auto decoded = message::decode<Message>(payload)) return take(*decoded);
  refuse(exit_code::internal, peer_name_ + " sent what this version cannot read");
}

void NodeSeat::on_push(const wire::FrameHeader& header, BytesView payload) {
  if (over()) return;
  const auto take_if = [&]<class Message>(std::type_identity<Message>) {
    if (header.type == Message::type) take_payload<Message>(payload);
  };
  // Heartbeats and messages of later versions are ignored.
  take_if(std::type_identity<message::Asked>{});
  take_if(std::type_identity<message::Answered>{});
  take_if(std::type_identity<message::Admitted>{});
  take_if(std::type_identity<message::Refused>{});
  take_if(std::type_identity<message::Stopped>{});
  take_if(std::type_identity<message::RanksLost>{});
  take_if(std::type_identity<message::Standing>{});
  take_if(std::type_identity<message::Finished>{});
  take_if(std::type_identity<message::Succession>{});
}

void NodeSeat::take(const message::Admitted& m) {
  hosted_ = m.hosted;
  step(rendezvous::Admitted(m));
}

// ---- Effects ----

void NodeSeat::execute(const seat::Wake& effect) {
  timer_.expires_at(effect.at);
  timer_.async_wait([this](auto error) {
    if (error) return;
    const auto trouble = uplink_.trouble();
    step(trouble ? seat::Due{seat::Trouble{trouble->sentence, trouble->since}} : seat::Due{});
  });
}

void NodeSeat::execute(const seat::Finished& effect) {
  timer_.cancel();
  listener_.on_finished(effect.end, effect.judged);
}

void NodeSeat::execute(const seat::Close&) {
  timer_.cancel();
  uplink_.close();
}

void NodeSeat::execute(const seat::GoTo& effect) {
  const auto read = read_endpoint(effect.address);
  const auto* endpoint = std::get_if<EndpointAsked>(&read);
  if (endpoint == nullptr) {
    return step(seat::Trouble{in_quotes(effect.address) + " is no address", Clock::time_point{}});
  }
  store::Uplink::Target target;
  target.host = endpoint->host;
  target.port = endpoint->port.value_or(0);
  target.silence_max = silence_max_;
  uplink_.move_to(std::move(target));
}

void NodeSeat::execute(const seat::HostHere& effect) {
  store::Uplink::Target target;
  target.connected = take_over_(effect.takeover);
  target.peer_name = "the rendezvous of this node";
  uplink_.move_to(std::move(target));
}

void NodeSeat::execute(const rendezvous::Event& what) {
  std::visit([this](const auto& e) { send(e); }, what);
}

void NodeSeat::send(const rendezvous::Join& e) {
  push(message::Join{e.offer, e.rules, e.holding, DLAUNCH_VERSION});
}

void NodeSeat::send(const rendezvous::WorkerFailed& e) { push(message::told(e, Clock::now())); }

void NodeSeat::send(const rendezvous::WorkersEnded& e) { push(message::told(e, Clock::now())); }

void NodeSeat::send(const rendezvous::TookPlace& e) {
  push(message::Standby{e.epoch, stand_by_ ? stand_by_() : ""});
}

void NodeSeat::send(const rendezvous::CallsMade& e) {
  message::CallsMade part{{0, e.epoch, {}}};
  for (const auto& communicator : e.communicators) {
    if (part.communicators.size() == message::communicators_max) {
      push(part);
      part.communicators.clear();
    }
    part.communicators.push_back(communicator);
  }
  push(part);
}

void NodeSeat::push(const auto& said) {
  Bytes payload;
  message::encode(payload, said);
  uplink_.tell(std::decay_t<decltype(said)>::type, payload);
}

}  // namespace dlaunch::launcher
