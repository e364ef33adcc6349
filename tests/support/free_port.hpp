#pragma once

#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <stdexcept>

#include <unistd.h>

namespace dlaunch::testing {

/// A port of 127.0.0.1 that was free a moment ago, and that the kernel gives to nobody by itself:
/// of those some connection of another test might have it the next moment.
inline std::uint16_t free_port() {
  // Linux gives 32768 and above. Tests that run at the same time begin at different places.
  constexpr int first = 12'000, ports = 20'000;
  static int next = static_cast<int>(::getpid()) * 61;
  for (int tried = 0; tried < ports; ++tried) {
    const auto port = static_cast<std::uint16_t>(first + next++ % ports);
    try {
      static_cast<void>(listen_tcp(resolve("127.0.0.1", port).front()));
      return port;
    } catch (const Error&) {
      continue;  // Somebody has it.
    }
  }
  throw std::runtime_error("no port is free");
}

}  // namespace dlaunch::testing
