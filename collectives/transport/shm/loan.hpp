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

enum class Borrowed {
  all,
  /// The process that the block names does not exist, does not let this one read its memory, or is
  /// not the lender: its id may have become another process's, or mean another one in our PID
  /// namespace. What lies in `to` now means nothing.
  refused,
  lost,  ///< The memory is not there to its end.
};
/// Copies the beginning of a loan, and finds out in the same system call whose memory it reads.
Borrowed borrow_first(const RankBlock& lender, std::uint64_t address,
                      std::span<std::byte> to) noexcept;
/// Copies what follows; false where it is not there.
bool borrow(const RankBlock& lender, std::uint64_t address, std::span<std::byte> to) noexcept;

}  // namespace dlaunch::transport
