#include "collectives/communicator/collective_work.hpp"

namespace dlaunch {
namespace {

/// The most works that are kept.
constexpr std::size_t kept_max = 256;
/// The largest call whose work before its first wait costs only a few microseconds.
constexpr std::size_t short_bytes = 8192;

}  // namespace

void Communicator::State::CollectiveWork::run() {
  const auto self = owner_.shared_from_this();
  // The program's objects are released when the call ends.
  struct Forget {
    std::optional<WaitingCall>& call;
    ~Forget() { call.reset(); }
  } const forget{call_};
  owner_.make(call_->what());
}

/// Whether the call may change threads in its waits. A first call asks the store for the ranks' shm
/// group, and one with ordered output asks the agent; these waits stay on their thread.
bool Communicator::State::CollectiveWork::may_change_threads() const noexcept {
  return owner_.unsettled == 0 && !call_->has_own_code() && !call_->orders_output();
}

bool Communicator::State::CollectiveWork::is_short() const noexcept {
  return call_->bytes() <= short_bytes;
}

std::shared_ptr<Communicator::State::CollectiveWork> Communicator::State::take_work() {
  if (!works.empty()) {
    next_work = (next_work + 1) % works.size();
    // The copy is made first, so that it is ordered after the last owner's actions.
    auto work = works[next_work];
    if (work.use_count() == 2) return work;
  }
  auto work = std::make_shared<CollectiveWork>(*this, queue);
  if (works.size() < kept_max) works.push_back(work);
  return work;
}

}  // namespace dlaunch
