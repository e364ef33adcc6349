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

/// One agreement, the communicator's `number`-th, among those of its ranks that live. It goes on
/// where collectives cannot: on a broken or revoked communicator, and past ranks that die
/// meanwhile.
///
/// Every rank leaves what it brings in the store. The lowest rank that lives, as far as it can tell
/// itself, waits until all have done so or are known to be lost, and writes down the outcome; of
/// several who take themselves for the lowest the first one counts, by compare_set. So all who get
/// an answer get the same one, and a rank costs the store two keys and a few reads, however many
/// ranks there are. The consensus itself is the store's; compare Herault et al., "Practical
/// Scalable Consensus for Pseudo-Synchronous Distributed Systems", SC 2015, which has none.
///
/// Throws CallError: timeout (on all ranks alike) naming who neither came nor is known to be lost;
/// mismatch where some called agree and others shrink; aborted; peer_lost where the others counted
/// this rank as lost.
Agreement agree_among_living(const AgreementSetting& setting, transport::Op op,
                             std::uint64_t number, std::uint32_t flags);

}  // namespace dlaunch
