#pragma once

#include <dlaunch/export.hpp>

#include <chrono>
#include <string>
#include <system_error>

namespace dlaunch {

/// Every deadline and timeout is measured on the monotonic clock; wall-clock jumps change nothing.
using Clock = std::chrono::steady_clock;

/// What went wrong, as the caller can act on it. The numbers are a contract: the same in C++, in C
/// and on the wire.
enum class Errc {
  timeout = 1,      ///< A deadline passed. The message names who was missing.
  peer_lost,        ///< Another rank, the store or the agent is gone. The message names it and why.
  aborted,          ///< This or another rank called abort().
  mismatch,         ///< Ranks disagree on what they are doing. The message shows both calls.
  unreachable,      ///< A host or port cannot be reached. The message names the step that failed.
  refused,          ///< The other side said no. The message carries its reason.
  misuse,           ///< The call itself is wrong: an argument, or the order of calls.
  revoked,          ///< The communicator was revoked by one of its ranks.
  unsupported,      ///< Not available in this build or for these arguments.
  version,          ///< The two sides speak different versions of the protocol.
  internal,         ///< An invariant of dlaunch itself was broken.
  unauthenticated,  ///< The job's secret was not proved: none, a wrong one, another job's.
};

/// "timeout", "peer lost"... A static string; never null.
DLAUNCH_API const char* to_string(Errc code) noexcept;

/// The one category of Errc. Compare codes, never messages.
DLAUNCH_API const std::error_category& error_category() noexcept;
DLAUNCH_API std::error_code make_error_code(Errc code) noexcept;

/// The one exception dlaunch throws. what() is a whole sentence: what was tried, with whom, what
/// happened, and where it helps what to do. Thread-safe to copy; holds no reference to anything.
class DLAUNCH_API Error : public std::system_error {
 public:
  Error(Errc code, const std::string& sentence);
  ~Error() override;

  /// The same as code(), as the enumeration.
  Errc errc() const noexcept { return static_cast<Errc>(code().value()); }
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  std::string sentence_;
};

}  // namespace dlaunch

template <>
struct std::is_error_code_enum<dlaunch::Errc> : std::true_type {};
