#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <string>
#include <string_view>

namespace dlaunch::store {

/// The roles of a connection; each includes the ones before it.
enum class Role {
  read_only,  ///< Looks at keys, and waits for them.
  tool,       ///< Changes keys, too.
  node,       ///< Takes part in a job, too.
};

/// "read-only", "tool", "node".
std::string_view name_of(Role role);

/// Why a connection of this role may not send this message; empty: it may, or nobody may.
std::string beyond(Role role, wire::Type type);

}  // namespace dlaunch::store
