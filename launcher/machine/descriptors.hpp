#pragma once

#include <sys/resource.h>

namespace dlaunch::launcher {

/// Makes the descriptor table as large as it will become, before there is a second thread: later
/// the kernel would wait for all cores at each doubling (synchronize_rcu), milliseconds a time.
void reserve_descriptors(int workers);

/// Our own limit on descriptors goes up to what is allowed. Returns what it was: the workers keep
/// what they would have had without us.
rlimit raise_descriptor_limit();

}  // namespace dlaunch::launcher
