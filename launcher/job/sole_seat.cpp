#include "launcher/job/sole_seat.hpp"

#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

/// There is nobody to tell it from.
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
  const auto now = Clock::now();
  // A node does not lose itself: no tick is ever given, and it is heard of whenever it acts.
  rounds_.step(rendezvous::Heartbeat{own_session}, now);
  for (auto& effect : rounds_.step(event, now)) {
    boost::asio::post(io_, [this, effect = std::move(effect), alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      std::visit([this](const auto& e) { deliver(e); }, effect);
    });
  }
}

void SoleSeat::deliver(const rendezvous::Refuse& e) {
  listener_.on_finished({e.exit_code, std::nullopt, e.reason}, false);
}

/// This node itself has said what a worker did to end the job.
void SoleSeat::deliver(const rendezvous::Finish& e) {
  rendezvous::Finish said = e;
  if (e.cause != rendezvous::Finish::Cause::disagreement) said.sentence.clear();
  listener_.on_finished(said, true);
}

void SoleSeat::deliver(const rendezvous::Stop& e) {
  listener_.on_order(e.epoch, StopOrder::Manner::at_once);
}

}  // namespace dlaunch::launcher
