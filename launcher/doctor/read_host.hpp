#pragma once

#include "launcher/doctor/core/findings.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher::doctor {

/// Reads this host: asks the resolver, makes a connection over loopback, starts a child to read its
/// memory. Never throws: what cannot be read is left out. Takes as long as the resolver does. To be
/// called while the process has one thread.
HostFacts read_host(std::span<const std::string> environment);

}  // namespace dlaunch::launcher::doctor
