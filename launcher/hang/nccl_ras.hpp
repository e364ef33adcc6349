#pragma once

#include <dlaunch/error.hpp>

#include <optional>
#include <string>

namespace dlaunch::launcher {

/// The answer of NCCL's RAS subsystem (NCCL 2.24 and later) about the job of its process.
struct RasAnswer {
  std::string text = {};     ///< Lines; may be cut short.
  std::string problem = {};  ///< Why the text is missing or incomplete; empty where it is whole.
};

/// The address of the RAS subsystem unless NCCL_RAS_ADDR names another.
constexpr const char* ras_address_standard = "localhost:28028";

/// Asks for its verbose status at "host:port". nullopt where nobody listens. Ends by the deadline,
/// and takes at most 64 KiB. May be called from any thread; never throws.
std::optional<RasAnswer> ask_ras(const std::string& address, Clock::time_point deadline);

}  // namespace dlaunch::launcher
