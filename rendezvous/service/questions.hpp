#pragma once

#include "rendezvous/service/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::rendezvous {

/// The open questions of one epoch's nodes to each other. Pure: it reads no clock, and sends
/// nothing itself.
class Questions {
 public:
  /// Open at one time; more are answered with no_more at once.
  static constexpr std::size_t open_max = 64;
  /// The most answers that wait for room at their asker; more are dropped.
  static constexpr std::size_t held_bytes_max = 256u << 20;
  /// The most answers sent to an asker that it has not acknowledged; one at least.
  static constexpr std::size_t unread_bytes_max = 4u << 20;
  static constexpr Clock::duration patience_max = std::chrono::seconds(10);

  struct Send {
    Session to = 0;
    std::variant<message::Asked, message::Answered> what;
  };
  using Sends = std::vector<Send>;
  /// Ranks of nodes.
  using Nodes = std::map<Session, int>;

  /// `nodes`: those of the epoch. What this asker asked under that number before is forgotten.
  Sends ask(Session asker, const message::Ask& ask, const Nodes& nodes, Clock::time_point now);
  Sends answer(Session from, message::Answer answer);
  Sends taken(Session asker, const message::AnswerTaken& taken);
  /// This node is connected again: what it was asked may have been lost.
  Sends back(Session node) const;
  /// Keeps only these nodes, which still have a part in the epoch.
  Sends keep(const std::function<bool(Session)>& is_there);
  Sends tick(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct Open {
    Session asker = 0;
    std::uint64_t number = 0;  ///< The asker's.
    Clock::time_point deadline;
    message::Asked asked;
    Nodes waiting = {};  ///< Nodes that have not answered.
    std::deque<message::Answered> held = {};
    /// Lengths of answers that were sent and not acknowledged.
    std::deque<std::size_t> unread = {};
    std::size_t unread_bytes = 0;
  };
  using Place = std::map<std::uint64_t, Open>::iterator;

  Place find(Session asker, std::uint64_t number);
  void forget(Place open);
  void settle(Place open, Sends& out);

  std::map<std::uint64_t, Open> open_;  ///< By our number.
  std::uint64_t next_ = 1;
  std::size_t held_bytes_ = 0;
};

}  // namespace dlaunch::rendezvous
