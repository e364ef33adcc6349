#include "launcher/job/sole_seat.hpp"

#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

/// Any number will do: the job has no other session.
constexpr rendezvous::Session own_session = 1;

}  // namespace

SoleSeat::SoleSeat(boost::asio::io_context& io, rendezvous::NodeOffer offer,
                   rendezvous::JobRules rules, SeatListener& listener)
    : io_(io), offer_(std::move(offer)), rules_(rules), listener_(listener) {}

void SoleSeat::join() { tell(rendezvous::Join{own_session, offer_, rules_, {}}); }

void SoleSeat::tell(const rendezvous::Event& what) {
  rendezvous::Event event = what;
  std::visit(
      [](auto& e) {
        if constexpr (requires { e.session; }) e.session = own_session;
      },
      event);
  step(event);
}

void SoleSeat::step(const rendezvous::Event& event) {
  const auto now = Clock::now();
  // A node cannot lose itself: every action of its own renews its lease.
  rounds_.step(rendezvous::Heartbeat{own_session}, now);
  for (auto& effect : rounds_.step(event, now)) {
    boost::asio::post(io_, [this, effect = std::move(effect), alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      std::visit([this](const auto& e) { deliver(e); }, effect);
    });
  }
  wait_out_pause();
}

/// A lone node waits for nothing but a restart's pause, so no other tick is needed.
void SoleSeat::wait_out_pause() {
  pause_.cancel();
  const auto next = rounds_.next_deadline();
  if (!is_pausing() || !next) return;
  pause_.expires_at(*next);
  pause_.async_wait([this, alive = std::weak_ptr(alive_)](auto error) {
    if (!error && !alive.expired()) step(rendezvous::Tick{});
  });
}

bool SoleSeat::is_pausing() const {
  return rounds_.status().state == rendezvous::JobStatus::State::gathering;
}

/// Only the sentence about a pause is news: the user of a lone node sees the rest here.
void SoleSeat::deliver(const rendezvous::Standing& e) {
  if (is_pausing() && e.sentence == rounds_.status().standing) listener_.on_standing(e.sentence);
}

void SoleSeat::deliver(const rendezvous::Refuse& e) {
  listener_.on_finished({e.exit_code, std::nullopt, e.reason}, false);
}

/// This node has already said what its worker did to end the job.
void SoleSeat::deliver(const rendezvous::Finish& e) {
  rendezvous::Finish said = e;
  if (e.cause != rendezvous::Finish::Cause::disagreement) said.sentence.clear();
  listener_.on_finished(said, true);
}

void SoleSeat::deliver(const rendezvous::Stop& e) {
  listener_.on_order(e.epoch, StopOrder::Manner::at_once);
}

}  // namespace dlaunch::launcher
