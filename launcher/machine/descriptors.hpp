#pragma once

#include <sys/resource.h>

namespace dlaunch::launcher {

/// Makes the descriptor table as large as it will become, before there is a second thread: later
/// the kernel would wait for all cores at each doubling (synchronize_rcu), milliseconds a time.
void reserve_descriptors(int workers);

/// Raises our own limit on descriptors as far as it may go. Returns the previous limit, which the
/// workers keep.
rlimit raise_descriptor_limit();

}  // namespace dlaunch::launcher
