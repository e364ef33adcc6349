#pragma once

#include "runtime/segment/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// A message that is longer than a ring is not copied into it: its writer lends the memory in which
/// it lies, and the reader copies it from there, by process_vm_readv(2), once instead of twice. The
/// kernel lets those do so who may trace each other; where it does not, the reader refuses the
/// loan, and what was lent comes by the ring.
namespace dlaunch::transport {

/// Says in the rank's block that this process lends. Twice does no harm.
void offer_loans(RankBlock& lender);

/// Whether the process that stands in the block is there, and lets this one read its memory. Asked
/// for each loan: a process id may be another process's by now, or in a PID namespace of our own.
bool may_borrow(const RankBlock& lender) noexcept;
/// Copies from that process's memory; false where it is not there.
bool borrow(const RankBlock& lender, std::uint64_t address, std::span<std::byte> to) noexcept;

}  // namespace dlaunch::transport
