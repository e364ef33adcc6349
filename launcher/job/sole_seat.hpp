#pragma once

#include "launcher/job/seat.hpp"
#include "rendezvous/service/incarnation.hpp"

#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// The seat of a node that is its job's only one: the same rounds as everywhere, in this process.
class SoleSeat final : public Seat {
 public:
  SoleSeat(boost::asio::io_context& io, rendezvous::NodeOffer offer, rendezvous::JobRules rules,
           SeatListener& listener);

  void join() override;
  void tell(const rendezvous::Event& what) override;

 private:
  void step(const rendezvous::Event& event);
  void wait_out_pause();
  bool is_pausing() const;
  void deliver(const rendezvous::Admit& e) { listener_.on_admitted(e.admission); }
  void deliver(const rendezvous::Refuse& e);
  void deliver(const rendezvous::Stop& e);
  void deliver(const rendezvous::RanksLost&) {}  // Ours; the workers have been told.
  void deliver(const rendezvous::Standing& e);
  void deliver(const rendezvous::Finish& e);

  boost::asio::io_context& io_;
  rendezvous::NodeOffer offer_;
  rendezvous::JobRules rules_;
  SeatListener& listener_;
  rendezvous::Rounds rounds_{0, {.number = rendezvous::new_incarnation()}};
  boost::asio::steady_timer pause_{io_};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  ///< Posted work checks that we live.
};

}  // namespace dlaunch::launcher
