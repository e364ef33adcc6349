#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The programs and subcommands, as manual pages and completions show them.
namespace dlaunch::pages {

struct Program {
  std::string command;         ///< "dlaunch bench".
  const OptionTable* options;  ///< Its own.
  /// Those that it takes besides: bench has the launcher's.
  std::vector<const Option*> others = {};

  /// Its own, then the others.
  std::vector<const Option*> all() const;
};

std::span<const Program> programs();
/// Throws std::runtime_error for a command that is none.
const Program& program_of(std::string_view command);

/// What an option's value may be.
struct Value {
  enum class Kind { none, any, words, list, file, folder, host };
  Kind kind = Kind::none;
  std::vector<std::string> words;  ///< For `any`, too: "cpu" beside a number. A list has commas.
};

Value value_of(const Option& option);

/// A text up to its first full stop, without it.
std::string first_sentence(std::string_view text);

}  // namespace dlaunch::pages
