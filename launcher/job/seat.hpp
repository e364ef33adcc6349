#pragma once

#include "launcher/job/core/supervisor.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "rendezvous/service/messages.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace dlaunch::launcher {

/// Tells an agent what is decided about its job's rounds. Called on the agent's thread, never from
/// within a call of Seat.
class SeatListener {
 public:
  virtual ~SeatListener() = default;
  /// The round is closed: the workers are to be started.
  virtual void on_admitted(const rendezvous::Admission& admission) = 0;
  /// The workers of this epoch are to be ended; then WorkersEnded is told.
  virtual void on_order(std::uint64_t epoch, StopOrder::Manner manner) = 0;
  /// Ranks of another node will not come back.
  virtual void on_ranks_lost(const rendezvous::RanksLost& lost) = 0;
  /// The epoch's store is gone with the node that hosted it; the job may go on at another one.
  virtual void on_store_lost(const std::string& why) = 0;
  /// Another node's agent asks ours.
  virtual void on_asked(const rendezvous::message::Asked& asked) = 0;
  virtual void on_answered(const rendezvous::message::Answered& answered) = 0;
  /// Questions to other nodes may have been lost with a connection.
  virtual void on_reconnected() = 0;
  /// A sentence for the user.
  virtual void on_standing(const std::string& sentence) = 0;
  /// The job is over, for the reason in the sentence, which is empty where none need be given.
  /// `judged`: the end was judged from all nodes' facts; else this node has no part in the job any
  /// more.
  virtual void on_finished(const rendezvous::Finish& end, bool judged) = 0;
};

/// This node's seat in its job: behind it is the rendezvous, here or elsewhere.
class Seat {
 public:
  virtual ~Seat() = default;
  virtual void join() = 0;
  /// Tells the rendezvous that a worker has failed, or has left while others run; the ranks' calls
  /// and ends; or that this node goes, though its workers may still be ending.
  virtual void tell(const rendezvous::Event& what) = 0;
};

}  // namespace dlaunch::launcher
