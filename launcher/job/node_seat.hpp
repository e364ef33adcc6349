#pragma once

#include "launcher/job/core/seat_core.hpp"
#include "launcher/job/seat.hpp"
#include "launcher/watch/inquiries.hpp"
#include "rendezvous/service/messages.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// The seat of a node among several: its rendezvous is at the other end of the node's one
/// connection. Messages that may have been lost with a broken connection are sent again on the
/// next.
class NodeSeat final : public Seat, public QuestionLine, private store::Uplink::Events {
 public:
  struct Options {
    store::Uplink::Options uplink;
    seat::Rules rules;
    /// Asked at each trouble until the first welcome. True: this node is about to host the
    /// rendezvous itself, and leaves this seat.
    std::function<bool()> host_instead = {};
    /// The reason why this node does not host, to be told with such a trouble; empty: none.
    std::function<std::string(const Error& trouble)> hosting_problem = {};
    /// The address ("host:port") at which this node listens from now on, ready to host in place of
    /// the host; empty if it cannot.
    std::function<std::string()> stand_by = {};
    /// This node hosts from now on, there. A connection to it.
    std::function<unique_fd(const rendezvous::Takeover&)> take_over = {};
  };
  /// Makes this node's offer once a connection stands, whose own address it is given: that is when
  /// it is known where the others can reach us.
  using MakeOffer = std::function<rendezvous::NodeOffer(const Address& own)>;

  NodeSeat(boost::asio::io_context& io, Options options, MakeOffer make_offer,
           SeatListener& listener);

  void join() override;
  void tell(const rendezvous::Event& what) override { step(seat::Said{what}); }
  void say(const rendezvous::message::Ask& ask) override { push(ask); }
  void say(const rendezvous::message::Answer& answer) override { push(answer); }
  void say(const rendezvous::message::AnswerTaken& taken) override { push(taken); }
  /// Sent to a dlaunchd only: no other rendezvous shows it.
  void say(const rendezvous::message::CallsNow& calls) override {
    if (!hosted_) push(calls);
  }
  /// Leaves without a word: nothing is told or heard any more.
  void withdraw() { step(seat::Withdrawn{}); }
  /// The node has left this seat, or lost it.
  bool over() const { return core_.is_over(); }

  store::Uplink& uplink() { return uplink_; }
  /// The job's id, once welcomed.
  const std::string& job() const { return job_; }

 private:
  void on_welcome(const wire::Welcome& welcome) override;
  void on_push(const wire::FrameHeader& header, BytesView payload) override;
  void on_trouble(const Error& error, Clock::time_point since) override;
  void on_refused(const Error& error) override;

  void take(const rendezvous::message::Admitted& m);
  void take(const rendezvous::message::Refused& m) { step(rendezvous::Refuse(m)); }
  void take(const rendezvous::message::Stopped& m) { step(rendezvous::Stop(m)); }
  void take(const rendezvous::message::RanksLost& m) { step(rendezvous::RanksLost(m)); }
  void take(const rendezvous::message::Asked& m) { listener_.on_asked(m); }
  void take(const rendezvous::message::Answered& m) { listener_.on_answered(m); }
  void take(const rendezvous::message::Standing& m) { listener_.on_standing(m.sentence); }
  void take(const rendezvous::message::Finished& m) { step(rendezvous::Finish(m)); }
  void take(const rendezvous::message::Succession& m) { step(rendezvous::Succession(m)); }
  template <class Message>
  void take_payload(BytesView payload);
  void refuse(int exit_code, const std::string& reason);

  void step(const seat::Event& event);
  void execute(const rendezvous::Event& what);
  void execute(const seat::Order& effect) { listener_.on_order(effect.epoch, effect.manner); }
  void execute(const seat::Reconnected&) { listener_.on_reconnected(); }
  void execute(const seat::Wake& effect);
  void execute(const seat::Finished& effect);
  void execute(const seat::Close&);
  void execute(const seat::LoseStore& effect) { listener_.on_store_lost(effect.why); }
  void execute(const seat::GoTo& effect);
  void execute(const seat::HostHere& effect);
  void execute(const rendezvous::Admit& effect) { listener_.on_admitted(effect.admission); }
  void execute(const rendezvous::RanksLost& effect) { listener_.on_ranks_lost(effect); }
  void execute(const rendezvous::Standing& effect) { listener_.on_standing(effect.sentence); }

  void send(const rendezvous::Join& e);
  void send(const rendezvous::Heartbeat&) { push(rendezvous::message::Heartbeat{}); }
  void send(const rendezvous::WorkerFailed& e);
  void send(const rendezvous::WorkerLeft& e) { push(rendezvous::message::WorkerLeft{e}); }
  void send(const rendezvous::WorkersEnded& e);
  void send(const rendezvous::CallsMade& e);
  void send(const rendezvous::TookPlace& e);
  void send(const rendezvous::Leave& e) { push(rendezvous::message::Leave{e}); }
  void send(const auto&) {}  // Events that only a rendezvous can know.
  void push(const auto& message);

  const std::string peer_name_;
  const Clock::duration silence_max_;
  const MakeOffer make_offer_;
  const std::function<bool()> host_instead_;
  const std::function<std::string(const Error&)> hosting_problem_;
  const std::function<std::string()> stand_by_;
  const std::function<unique_fd(const rendezvous::Takeover&)> take_over_;
  SeatListener& listener_;
  boost::asio::steady_timer timer_;
  std::string job_;
  bool hosted_ = true;  ///< By a node of the job.
  seat::SeatCore core_;
  store::Uplink uplink_;
};

}  // namespace dlaunch::launcher
