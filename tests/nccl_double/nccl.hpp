#pragma once

#include <cstdint>

/// A test double of NCCL, libnccl.so.2, on the double of the driver. Communicators of ranks that
/// are threads meet in a table, by their unique id. As in NCCL, ranks that disagree hang until they
/// abort; as in NCCL from 2.23 on, a thread of its own does whatever it is asked for by a
/// communicator that does not block, which can be asked for nothing else meanwhile, and a
/// communicator that is made of another one is written when that thread is done. With
/// DLAUNCH_DOUBLE_NCCL_AT_ONCE=1 calls are on their streams at once, as before 2.23. Two threads in
/// one communicator end the process. It shows nothing about NCCL itself.
namespace dlaunch::nccl_double {

/// Every communicator's asynchronous error from now on; 0: none of its own.
void fail_with(int result);
/// Communicators split or shrink only when this is over, and then fail, if they were aborted.
void hold_making(bool hold);
/// Communicators that are made from now on never come up.
void never_join(bool never);
/// Communicators cannot be shrunk from now on.
void never_shrink(bool never);
struct Counts {
  std::uint64_t made = 0, split = 0, shrunk = 0, revoked = 0, aborted = 0, destroyed = 0, calls = 0;
  std::int64_t registered = 0;  ///< Now.
  std::int64_t living = 0;      ///< Communicators, now.
};
/// Since the process began.
Counts counts();

}  // namespace dlaunch::nccl_double
