#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// The contents of a worker's error.json.
struct ErrorReport {
  std::string message;
  std::string callstack;  ///< Empty where it gave none.

  bool operator==(const ErrorReport&) const = default;
};

/// Reads error.json in both shapes PyTorch writes; nullopt for anything else. Never throws.
std::optional<ErrorReport> parse_error_file(std::string_view text);

/// The file in the form that an outer launcher expects: a structured message gets its rank's exit
/// code, negative for a signal, as `errorCode`. Any other text stays as it is.
std::string with_error_code(std::string text, int code);

}  // namespace dlaunch::launcher
