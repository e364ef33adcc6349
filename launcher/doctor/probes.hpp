#pragma once

#include "launcher/doctor/core/findings.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace dlaunch::launcher::doctor {

/// Connects and greets, within a few seconds. Never throws.
Peer probe_peer(const std::string& host, std::uint16_t port);

/// Asks the Python that would run a script, within a few seconds; `usual` is that of dlaunch's
/// environment, or empty. Never throws.
Python probe_python(std::span<const std::string> environment, const std::string& usual);

}  // namespace dlaunch::launcher::doctor
