#pragma once

#include "launcher/doctor/core/findings.hpp"

#include <string>
#include <vector>

namespace dlaunch::launcher::doctor {

/// Asks another host for its time, some times over one connection of `ssh`, which is a program with
/// its first arguments (--ssh). Takes some seconds at most. Never throws. To be called where no
/// other thread reaps children.
HostClock probe_clock(const std::string& host, const std::vector<std::string>& ssh);

}  // namespace dlaunch::launcher::doctor
