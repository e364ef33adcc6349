#include "rendezvous/control/action_door.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::rendezvous {

namespace {
constexpr auto answer_time_max = std::chrono::seconds(2);
}  // namespace

struct ActionDoor::State {
  State(boost::asio::io_context& serving, Act how) : loop(serving), act(std::move(how)) {}

  boost::asio::io_context& loop;
  const Act act;
  std::mutex mutex;
  std::condition_variable changed;
  bool posted = false;          ///< The loop has yet to look at what is asked.
  std::optional<Action> asked;  ///< Reset by the loop, or by the end of the wait.
  std::optional<ActionOutcome> outcome;
  std::exception_ptr failure;  ///< Thrown in place of an outcome.
  bool stopped = false;
};

ActionDoor::ActionDoor(boost::asio::io_context& loop, Act act)
    : state_(std::make_shared<State>(loop, std::move(act))) {}

std::optional<ActionOutcome> ActionDoor::act(Action action) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.posted || state.stopped) return std::nullopt;
  boost::asio::post(state.loop, [shared = state_] {
    // Held while it is carried out: the other thread gives up before that, or hears the outcome.
    const std::lock_guard guard(shared->mutex);
    shared->posted = false;
    if (const auto now = std::exchange(shared->asked, std::nullopt)) {
      try {
        shared->outcome = shared->act(*now);
      } catch (const std::exception&) {  // It is for the one who asked, and ends nothing else.
        shared->failure = std::current_exception();
      }
    }
    shared->changed.notify_all();
  });
  // The loop comes to it when this thread waits.
  state.posted = true;
  state.asked = std::move(action);
  state.outcome.reset();
  const auto deadline = Clock::now() + answer_time_max;
  state.changed.wait_until(lock, deadline,
                           [&] { return state.stopped || state.outcome || state.failure; });
  state.asked.reset();
  const auto failure = std::exchange(state.failure, nullptr);
  auto outcome = std::exchange(state.outcome, std::nullopt);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
  if (outcome && outcome->outlives && !outcome->outlives(deadline)) {
    outcome->sentence += "; it is not safe yet, and would be lost with dlaunchd";
  }
  return outcome;
}

void ActionDoor::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->asked.reset();
  state_->changed.notify_all();
}

}  // namespace dlaunch::rendezvous
