#pragma once

#include "collectives/call/call.hpp"
#include "collectives/call/core/outcome.hpp"

#include <cstdint>

namespace dlaunch {

/// The ranks that agree, and how long they wait. All borrowed.
struct AgreementSetting {
  transport::Links& mesh;
  const Group& group;
  const Aborted& aborted;
  Clock::duration timeout;
  CallSite site;
};

/// One agreement, the communicator's `number`-th, among its living ranks. It works where
/// collectives cannot: on a broken or revoked communicator, and past ranks that die meanwhile.
///
/// Every rank leaves its contribution in the store. The rank that believes itself to be the lowest
/// living one waits until all have done so or are known to be lost, and writes down the outcome. If
/// several ranks believe so, the first to write wins, by compare_set. So all ranks that get an
/// answer get the same one. A rank costs the store two keys and a few reads, however many ranks
/// there are. The consensus itself is the store's; compare Herault et al., "Practical Scalable
/// Consensus for Pseudo-Synchronous Distributed Systems", SC 2015, which has none.
///
/// Throws CallError: timeout (on all ranks alike) naming who neither came nor is known to be lost;
/// mismatch where some called agree and others shrink; aborted; peer_lost where the others counted
/// this rank as lost.
Agreement agree_among_living(const AgreementSetting& setting, transport::Op op,
                             std::uint64_t number, std::uint32_t flags);

}  // namespace dlaunch
