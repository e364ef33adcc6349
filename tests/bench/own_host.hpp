#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace dlaunch::bench {

/// The host of a node that has one of its own, as a real agent describes it.
inline rendezvous::HostShare own_host(std::uint64_t number) {
  char kernel[64];
  std::snprintf(kernel, sizeof kernel, "6ba7b810-9dad-41d1-80b4-%012llx",
                static_cast<unsigned long long>(number));
  rendezvous::HostShare share;
  share.kernel = kernel;
  share.processors.allowed = 64;
  share.processors.cores = {{0, 64}};
  share.memory = share.kernel + "/4026531840/4026531836/4026531837/1000";
  share.lends_at = "@dlaunch-" + share.kernel.substr(24);
  return share;
}

}  // namespace dlaunch::bench
