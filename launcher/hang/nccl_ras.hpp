#pragma once

#include <dlaunch/error.hpp>

#include <optional>
#include <string>

namespace dlaunch::launcher {

/// What NCCL's RAS subsystem (NCCL 2.24 and later) says of the job that its process belongs to.
struct RasAnswer {
  std::string text = {};     ///< Lines; may be cut short.
  std::string problem = {};  ///< Why there is none, or no more; empty where there is all.
};

/// The address at which it listens where NCCL_RAS_ADDR says nothing else.
constexpr const char* ras_address_standard = "localhost:28028";

/// Asks for its verbose status at "host:port". nullopt where nobody listens. Ends by the deadline,
/// and takes at most 64 KiB. May be called from any thread; never throws.
std::optional<RasAnswer> ask_ras(const std::string& address, Clock::time_point deadline);

}  // namespace dlaunch::launcher
