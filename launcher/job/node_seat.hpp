#pragma once

#include "launcher/job/seat.hpp"
#include "launcher/watch/inquiries.hpp"
#include "rendezvous/service/messages.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// The seat of a node among several: its rendezvous is at the other end of the node's one
/// connection. What may have been lost with a broken connection is said again on the next.
class NodeSeat final : public Seat, public QuestionLine, private store::Uplink::Events {
 public:
  struct Options {
    store::Uplink::Options uplink;
    rendezvous::JobRules rules;
    Clock::duration heartbeat{};
    bool hosts = false;  ///< The rendezvous is in this process.
    std::string name;    ///< Of the rendezvous, for messages.
    /// Asked at each trouble until the first welcome. True: this node is about to host the
    /// rendezvous itself, and leaves this seat.
    std::function<bool()> host_instead = {};
    /// What keeps this node from that, where such a trouble is told; empty: nothing to say.
    std::function<std::string(const Error& trouble)> hosting_problem = {};
  };
  /// Makes this node's offer once a connection stands, whose own address it is given: that is when
  /// it is known where the others can reach us.
  using MakeOffer = std::function<rendezvous::NodeOffer(const Address& own)>;

  NodeSeat(boost::asio::io_context& io, Options options, MakeOffer make_offer,
           SeatListener& listener);

  void join() override;
  void worker_failed(const rendezvous::WorkerFailed& how) override;
  void worker_left(std::uint64_t epoch, int rank) override;
  void calls_made(const rendezvous::CallsMade& calls) override;
  void workers_ended(const rendezvous::WorkersEnded& how) override;
  void leave(int exit_code, const std::string& reason) override;
  void say(const rendezvous::message::Ask& ask) override { tell(ask); }
  void say(const rendezvous::message::Answer& answer) override { tell(answer); }
  void say(const rendezvous::message::AnswerTaken& taken) override { tell(taken); }
  /// Nobody is told, nothing is heard any more.
  void withdraw();
  /// The node has left this seat, or lost it.
  bool over() const { return over_; }

  store::Uplink& uplink() { return uplink_; }
  /// The job's id, once welcomed.
  const std::string& job() const { return job_; }

 private:
  void on_welcome(const wire::Welcome& welcome) override;
  void on_push(const wire::FrameHeader& header, BytesView payload) override;
  void on_trouble(const Error& error, Clock::time_point since) override;
  void on_refused(const Error& error) override;

  void take(const rendezvous::message::Admitted& m);
  void take(const rendezvous::message::Refused& m);
  void take(const rendezvous::message::Stopped& m);
  void take(const rendezvous::message::RanksLost& m);
  void take(const rendezvous::message::Asked& m) { listener_.on_asked(m); }
  void take(const rendezvous::message::Answered& m) { listener_.on_answered(m); }
  void take(const rendezvous::message::Standing& m);
  void take(const rendezvous::message::Finished& m) { finish(m, true); }
  template <class Message>
  void take_payload(BytesView payload);
  void tell(const auto& message);
  void beat();
  Clock::duration tried_for(Clock::time_point since) const;
  std::string trouble_text(const Error& error) const;
  bool host_is_lost(Clock::time_point since) const;
  void finish_without_host(const std::string& trouble);
  void note_stall();
  void join_now();
  void join_anew();
  void finish(const rendezvous::Finish& end, bool judged);
  void finish(int exit_code, const std::string& sentence) {
    finish({exit_code, std::nullopt, sentence}, false);
  }

  const rendezvous::JobRules rules_;
  const Clock::duration interval_;  ///< Of heartbeats.
  const bool hosts_;
  const std::string peer_name_;
  const MakeOffer make_offer_;
  const std::function<bool()> host_instead_;
  const std::function<std::string(const Error&)> hosting_problem_;
  SeatListener& listener_;
  boost::asio::steady_timer heartbeat_;
  std::string job_;
  std::optional<rendezvous::NodeOffer> offer_;
  /// The epoch whose ranks this node holds, and what it has told of it.
  struct Epoch {
    rendezvous::Holding holding;
    bool hosted = false;  ///< By another node: without it the job is over.
    std::optional<rendezvous::message::HostPlace> host;  ///< That node, as far as it has ranks.
    std::optional<rendezvous::WorkerFailed> failure = std::nullopt;
    std::vector<rendezvous::message::WorkerLeft> departures = {};
    std::vector<rendezvous::message::CallsMade> calls = {};
    std::optional<rendezvous::WorkersEnded> end = std::nullopt;
    std::string stall = {};  ///< "this node stood still for 61 s"; empty where it did not.
    bool evicted = false;    ///< Once the workers are gone, we join anew.
  };
  std::optional<Epoch> epoch_;
  std::string trouble_;  ///< The one that was told last; empty while all is well.
  Clock::time_point beaten_{}, next_beat_ = Clock::time_point::max();
  Clock::time_point stalled_until_{};  ///< When this node last went on after it had stood still.
  bool over_ = false;
  store::Uplink uplink_;
};

}  // namespace dlaunch::launcher
