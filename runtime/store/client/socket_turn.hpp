#pragma once

#include "runtime/store/session/client_session.hpp"

#include <chrono>
#include <string>

namespace dlaunch::store {

/// Reads once without blocking; false when there was nothing.
bool receive(ClientSession& session, int socket);

enum class Sent { all, blocked, broken };
/// Sends what the socket takes. On `broken`, errno tells why.
Sent send(ClientSession& session, int socket);

// ---- A peer that has accepted a connection and does not answer the greeting ----

/// The time in which a program that reads lines answers one.
constexpr auto line_grace = std::chrono::milliseconds(300);
/// Ends the line that our greeting is to a program that reads lines, such as an HTTP server, whose
/// answer then tells what it is. For a greeting that is given up. False for a unix socket, behind
/// which no other program is to be expected.
bool end_line(int socket) noexcept;
/// "; is it one, and is the port right?"; empty for a unix socket.
std::string silence_question(int socket);

}  // namespace dlaunch::store
