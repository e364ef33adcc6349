#pragma once

#include "runtime/store/session/client_session.hpp"

namespace dlaunch::store {

/// Reads once without blocking; false when there was nothing.
bool receive(ClientSession& session, int socket);

enum class Sent { all, blocked, broken };
/// Sends what the socket takes. On `broken`, errno tells why.
Sent send(ClientSession& session, int socket);

}  // namespace dlaunch::store
