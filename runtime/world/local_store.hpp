#pragma once

#include <dlaunch/store.hpp>

namespace dlaunch {

/// The store within one process: the client's calls and the server's session without a socket
/// between them, and without a thread. A world of one has it, and worlds whose ranks are threads
/// may share one. A leased key lives as long as the store, since its owner is never lost alone.
class LocalStore final : public JobStore {
 public:
  LocalStore();
};

}  // namespace dlaunch
