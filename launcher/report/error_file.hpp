#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// What a worker wrote into its error.json.
struct ErrorReport {
  std::string message;
  std::string callstack;  ///< Empty where it gave none.

  bool operator==(const ErrorReport&) const = default;
};

/// Reads error.json in both shapes PyTorch writes; nullopt for anything else. Never throws.
std::optional<ErrorReport> parse_error_file(std::string_view text);

/// The file as an outer launcher's is: a structured message has the exit code of its rank, negative
/// for a signal, as `errorCode`. Any other text stays as it is.
std::string with_error_code(std::string text, int code);

}  // namespace dlaunch::launcher
