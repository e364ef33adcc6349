#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <cstdint>
#include <string>

namespace dlaunch::launcher {

/// The port under which PyTorch programs meet.
struct MasterPort {
  unique_fd listener;  ///< Bound once and held over all attempts; empty if it is left to a worker.
  std::uint16_t port = 0;
  std::string note;  ///< A sentence for the user, where another port than the usual one was taken.
};

struct MasterPortAsked {
  std::string host = "127.0.0.1";
  std::uint16_t port = 29500;  ///< 0: any free one.
  bool insisted = false;       ///< Then a busy port is an error, else another one is taken.
  bool listen = true;          ///< False: find a port that is free now, and leave it unbound.
};

/// Throws Error{refused}, naming the owner, when an insisted port is busy.
MasterPort take_master_port(const MasterPortAsked& asked);

}  // namespace dlaunch::launcher
