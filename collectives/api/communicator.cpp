#include "collectives/call/core/flight_words.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/table_in_use.hpp"

#include <numeric>
#include <utility>

namespace dlaunch {
namespace {

/// The root communicator of every world has the same id; the meshes keep worlds apart.
constexpr std::uint64_t world_id = 1;

}  // namespace

Communicator::Communicator(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Communicator::Communicator(const World& world, std::string_view name)
    : state_(std::make_shared<State>()) {
  state_->group.name = name;
  state_->group.id = world_id;
  state_->group.rank = world.rank();
  auto& ranks = state_->group.world_ranks;
  ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_->membership = world.membership();
  state_->mesh = std::make_shared<transport::Links>(world, flight_words());
  state_->mesh->go_by(table_of(world));
  state_->flight.take(*state_->mesh, state_->group);
  state_->progress_thread = std::make_shared<transport::ProgressThread>(*state_->mesh);
}

Communicator::Communicator(Communicator&&) noexcept = default;

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    Communicator ended(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Communicator::~Communicator() {
  if (!state_) return;
  if (state_->is_forked()) {
    // In a forked child the state is left alone: everything it shares with other ranks is the
    // parent's, and joining its threads, or taking their locks, would never end.
    static_cast<void>(new std::shared_ptr(std::move(state_)));
    return;
  }
  state_->end();
}

int Communicator::rank() const noexcept { return state_->group.rank; }
int Communicator::size() const noexcept { return state_->group.size(); }
const std::string& Communicator::name() const noexcept { return state_->group.name; }
Clock::duration Communicator::timeout() const noexcept { return state_->timeout; }

void Communicator::set_timeout(Clock::duration timeout) {
  if (timeout <= Clock::duration::zero()) {
    throw Error(Errc::misuse, "a communicator's timeout is more than zero");
  }
  state_->timeout = timeout;
}

int Communicator::descriptor() {
  state_->check_process();
  const auto lock = state_->mesh->lock();
  return state_->mesh->descriptor();
}

void Communicator::set_stuck_after(Clock::duration stuck_after) {
  state_->check_process();
  if (stuck_after < Clock::duration::zero()) {
    throw Error(Errc::misuse,
                "what a communicator's calls may wait before they are reported is "
                "not negative");
  }
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(stuck_after);
  state_->flight.limit_waits(limit > limit.zero() ? limit : std::chrono::milliseconds(-1));
}

void Communicator::abort(const CallSite& site) noexcept {
  if (state_->is_forked()) return;
  // Two threads at once may both tell the others, who take the first.
  const bool is_first = !state_->aborted;
  state_->aborted.set(site);
  state_->mesh->wake();
  state_->mesh->tell_program();
  if (is_first) state_->tell_abort();
}

}  // namespace dlaunch
