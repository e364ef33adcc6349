#include "collectives/communicator/collective_work.hpp"

namespace dlaunch {
namespace {

/// More of them at a time are not kept.
constexpr std::size_t kept_max = 256;
/// What a call of so many bytes does before it has to wait costs a few microseconds.
constexpr std::size_t short_bytes = 8192;

}  // namespace

void Communicator::State::CollectiveWork::run() {
  const auto self = owner_.shared_from_this();
  // What the program gave it is let go of when it ends.
  struct Forget {
    std::optional<WaitingCall>& call;
    ~Forget() { call.reset(); }
  } const forget{call_};
  owner_.make(call_->what());
}

/// A first call makes the ranks' shm group, for which it asks the store, and one with ordered
/// output asks the agent: that is waited for where it is asked.
bool Communicator::State::CollectiveWork::may_change_threads() const noexcept {
  return owner_.unsettled == 0 && !call_->has_own_code() && !call_->orders_output();
}

bool Communicator::State::CollectiveWork::is_short() const noexcept {
  return call_->bytes() <= short_bytes;
}

std::shared_ptr<Communicator::State::CollectiveWork> Communicator::State::take_work() {
  if (!works.empty()) {
    next_work = (next_work + 1) % works.size();
    // The copy is made first, so that it comes after what the last owner did.
    auto work = works[next_work];
    if (work.use_count() == 2) return work;
  }
  auto work = std::make_shared<CollectiveWork>(*this, queue);
  if (works.size() < kept_max) works.push_back(work);
  return work;
}

}  // namespace dlaunch
