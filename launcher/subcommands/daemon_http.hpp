#pragma once

#include <dlaunch/error.hpp>

#include <cstdint>
#include <string>

namespace dlaunch::launcher {

/// A request to a dlaunchd's status address.
struct DaemonRequest {
  std::string method = "GET";
  std::string target;  ///< Encoded: "/api/v1/jobs/a%20job".
  std::string token;   ///< Of an operator; empty: none is sent.
};

struct DaemonAnswer {
  int code = 0;
  bool is_text = false;  ///< Plain text, as dlaunchd's sentences are.
  std::string body;
};

/// Asks, and waits for the whole answer. Throws Error: unreachable where nobody listens, or the
/// listener does not speak HTTP; timeout after the deadline. The sentence says so if the action
/// that was asked for may have been done.
DaemonAnswer ask_daemon(const std::string& host, std::uint16_t port, const DaemonRequest& request,
                        Clock::time_point deadline);

/// Encodes a text as one segment of a target's path.
std::string percent_encoded(const std::string& text);

}  // namespace dlaunch::launcher
