#include "collectives/call/agreement.hpp"
#include "collectives/call/core/flight_words.hpp"
#include "collectives/communicator/state.hpp"

#include <array>
#include <utility>

/// Going on without the dead: revoke, agree, shrink. The names and what they mean together are
/// those of User-Level Failure Mitigation (Bland et al., "Post-failure recovery of MPI
/// communication capability", IJHPCA 2013).
namespace dlaunch {

using transport::Fingerprint;
using transport::Op;
using transport::Scope;

void Communicator::revoke() {
  state_->check_process();
  Fingerprint fingerprint;
  fingerprint.op = Op::revoke;  // Sequence 0: every call is concerned.
  const Call::Setting setting{*state_->mesh,   state_->group,   state_->kept,
                              state_->aborted, state_->timeout, {}};
  Call call(setting, fingerprint);
  const std::string name = state_->group.name;
  const CallError revoked(Errc::revoked, "the communicator '" + name + "' was revoked by rank " +
                                             std::to_string(rank()));
  state_->error.set(revoked);
  call.tell_failure(revoked, Scope::from_here_on);
}

Agreement Communicator::State::agree(Op op, std::uint32_t flags, const Options& options) {
  check_process();
  if (options.timeout < Clock::duration::zero()) {
    throw Error(Errc::misuse,
                std::string(transport::to_string(op)) + ": a timeout is not negative");
  }
  queue->finish_all();
  Fingerprint fingerprint;
  fingerprint.op = op;
  fingerprint.sequence = ++agreements;
  Flight::Entry entry = flight.begin_agreement(fingerprint, options.site);
  try {
    const auto agreed = agree_among_living(
        {*mesh, group, aborted, timeout_of(options), options.site}, op, agreements, flags);
    entry.done();
    return agreed;
  } catch (const CallError& failure) {
    if (membership) membership->report(failure, failure.claim());
    throw;
  }
}

std::uint32_t Communicator::agree(std::uint32_t flags, const Options& options) {
  return state_->agree(Op::agree, flags, options).flags;
}

Communicator Communicator::shrink(const Options& options) {
  // NCCL's group is shrunk, too, if all ranks have one that can be.
  const bool on_device = state_->device && state_->device->can_shrink();
  const auto agreed = state_->agree(Op::shrink, on_device ? 1 : 0, options);
  const std::uint64_t number = state_->agreements;
  const Group& parent = state_->group;
  Group group;
  group.name = parent.name + "/shrink" + std::to_string(number);
  for (const int rank : agreed.survivors) {
    if (rank == parent.rank) group.rank = group.size();
    group.world_ranks.push_back(parent.world_rank(rank));
  }
  const std::array<std::uint64_t, 4> parts{
      parent.id, static_cast<std::uint64_t>(Op::shrink), number,
      transport::hash_bytes(agreed.survivors.data(), agreed.survivors.size() * sizeof(int))};
  group.id = transport::hash_bytes(parts.data(), sizeof parts);
  auto made = state_->child(std::move(group));
  // Messages under way when a rank died are still in the old connections: new ones begin empty.
  const auto generation = static_cast<std::uint32_t>(made->group.id) | transport::Links::derived;
  made->mesh =
      std::make_shared<transport::Links>(state_->mesh->world(), flight_words(), generation);
  made->mesh->go_by(state_->mesh->shared_table());
  made->progress_thread = std::make_shared<transport::ProgressThread>(*made->mesh);
  if (agreed.flags == 1) made->shrink_device(*state_, agreed.survivors, options);
  return Communicator(std::move(made));
}

}  // namespace dlaunch
