#pragma once

#include "runtime/base/text/options.hpp"

#include <cstddef>

namespace dlaunch::rendezvous {

/// How many bytes a daemon may hold for its jobs by default: three quarters of the least limit of
/// its cgroup and those above, or half of the machine's memory, whatever is less. Files that cannot
/// be read limit nothing.
std::size_t usable_memory(const FileReader& read);

}  // namespace dlaunch::rendezvous
