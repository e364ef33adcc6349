#pragma once

#include <cstdint>

/// A test double of NCCL, libnccl.so.2, on the double of the driver. Communicators of ranks that
/// are threads meet in a table, by their unique id. As in NCCL, ranks that disagree hang until they
/// abort. It shows nothing about NCCL itself.
namespace dlaunch::nccl_double {

/// Every communicator's asynchronous error from now on; 0: none of its own.
void fail_with(int result);
/// Communicators that are made from now on never come up.
void never_join(bool never);
/// Communicators cannot be shrunk from now on.
void never_shrink(bool never);
struct Counts {
  std::uint64_t made = 0, split = 0, shrunk = 0, revoked = 0, aborted = 0, calls = 0;
  std::int64_t registered = 0;  ///< Now.
};
/// Since the process began.
Counts counts();

}  // namespace dlaunch::nccl_double
