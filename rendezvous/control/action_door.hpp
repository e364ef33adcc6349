#pragma once

#include "rendezvous/service/actions.hpp"

#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// The way of an action from the thread that serves the pages to the loop that serves the agents.
/// One at a time: the thread waits for the outcome, and until that is safe.
class ActionDoor {
 public:
  /// Carries out an action. Called on the loop.
  using Act = std::function<ActionOutcome(const Action&)>;

  /// `loop` is the loop that serves, and outlives this.
  ActionDoor(boost::asio::io_context& loop, Act act);
  ~ActionDoor() { stop(); }
  ActionDoor(const ActionDoor&) = delete;
  ActionDoor& operator=(const ActionDoor&) = delete;

  /// Nullopt where the loop has not taken it up within 2 s, and then it never is; at once while the
  /// loop still owes the answer to an earlier one. Throws what `act` has thrown. On the one thread
  /// of the pages.
  std::optional<ActionOutcome> act(Action action);
  /// Nobody waits any more, and nothing is carried out. Any thread.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
