#pragma once

#include "runtime/segment/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// Loans of memory. A message that is longer than a ring is not copied into it: its writer lends
/// the memory in which it lies, and the reader copies it from there by process_vm_readv(2), once
/// instead of twice. The kernel allows this to processes that may trace each other. Otherwise the
/// reader refuses the loan, and the data comes through the ring.
namespace dlaunch::transport {

/// Announces in the rank's block that this process lends. May be called twice.
void offer_loans(RankBlock& lender);

/// Whether the process named in the block exists and lets this one read its memory. Asked for each
/// loan, since the process id may have become another process's, or mean another process in our PID
/// namespace.
bool may_borrow(const RankBlock& lender) noexcept;
/// Copies from that process's memory; false where it is not there.
bool borrow(const RankBlock& lender, std::uint64_t address, std::span<std::byte> to) noexcept;

}  // namespace dlaunch::transport
