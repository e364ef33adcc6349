#include "rendezvous/daemon/snapshots.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::rendezvous {

using namespace std::chrono_literals;

namespace {

constexpr auto age_max = 1s;
constexpr auto answer_time_max = 2s;
/// The number of nodes after which agents get their turn.
constexpr std::size_t nodes_a_turn = 256;

/// A failure in a turn of the loop is handed to the readers, and ends nothing else.
void add_some_jobs(boost::asio::io_context& loop, const Service& service,
                   const std::shared_ptr<DaemonStatus>& status, const Snapshots::Take& take) try {
  for (std::size_t nodes = 0; nodes < nodes_a_turn; ++nodes) {  // A job without nodes counts, too.
    auto job =
        service.job_after(status->jobs.empty() ? std::string_view() : status->jobs.back().job);
    if (!job) return take(std::move(*status));
    nodes += job->status.nodes.size();
    status->jobs.push_back(*std::move(job));
  }
  boost::asio::post(
      loop, [&loop, &service, status, take] { add_some_jobs(loop, service, status, take); });
} catch (const std::exception&) {
  take(std::current_exception());
}

}  // namespace

void add_jobs(boost::asio::io_context& loop, const Service& service, DaemonStatus status,
              Snapshots::Take take) {
  add_some_jobs(loop, service, std::make_shared<DaemonStatus>(std::move(status)), take);
}

struct Snapshots::State {
  State(boost::asio::io_context& serving, Look how) : loop(serving), look(std::move(how)) {}

  static void look_for(const std::shared_ptr<State>& self);
  void take(Seen seen);

  boost::asio::io_context& loop;
  const Look look;
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<const DaemonStatus> latest;
  std::shared_ptr<const DaemonStatus> outdated;  ///< To be freed by readers, as that takes time.
  std::optional<Clock::time_point> asked;        ///< Since then the loop owes an answer.
  std::exception_ptr failure;                    ///< The failure of the last one.
  bool stopped = false;
};

void Snapshots::State::look_for(const std::shared_ptr<State>& self) {
  std::exception_ptr failure;
  try {
    return self->look([self](Seen seen) { self->take(std::move(seen)); });
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  // The handler is over: from here on the reader's thread alone holds the exception.
  self->take(std::move(failure));
}

void Snapshots::State::take(Seen seen) {
  std::shared_ptr<const DaemonStatus> made;
  if (auto* status = std::get_if<DaemonStatus>(&seen)) {
    made = std::make_shared<const DaemonStatus>(std::move(*status));
  }
  const std::lock_guard guard(mutex);
  if (made) {
    outdated = std::exchange(latest, std::move(made));
  } else {
    failure = std::get<std::exception_ptr>(std::move(seen));
  }
  asked.reset();
  changed.notify_all();
}

Snapshots::Snapshots(boost::asio::io_context& loop, Look look)
    : state_(std::make_shared<State>(loop, std::move(look))) {}

std::shared_ptr<const DaemonStatus> Snapshots::get() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto now = Clock::now();
  if (state.latest && now - state.latest->now < age_max) return state.latest;
  if (!state.asked) {
    boost::asio::post(state.loop, [shared = state_] { State::look_for(shared); });
    state.asked = now;
    state.failure = nullptr;
  }
  const auto answered = [&] { return state.stopped || !state.asked; };
  state.changed.wait_until(lock, *state.asked + answer_time_max, answered);
  const auto freed = std::exchange(state.outdated, nullptr);
  auto seen = state.asked ? nullptr : state.latest;
  const auto failure = state.asked ? nullptr : state.failure;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
  return seen;
}

void Snapshots::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
}

}  // namespace dlaunch::rendezvous
