#pragma once

#include "launcher/request/option_values.hpp"
#include "launcher/request/options.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Every option of the launcher, declared once: parsing, variables, configuration file, --help and
/// --dry-run all read this table.
namespace dlaunch::launcher {

/// The options while they are being resolved.
struct Draft {
  Options options;
};

enum class Section { program, workers, meeting, failure, output, information };

struct OptionEntry {
  std::string_view flag;      ///< "nproc-per-node".
  char letter;                ///< 'm' for -m; 0 for none.
  std::string_view argument;  ///< "N|cpu"; empty for a flag, which takes none.
  std::string_view standard;  ///< The default, as one would write it; empty: unset.
  Section section;
  bool torchrun;  ///< torchrun knows it too: PET_<FLAG> counts.
  /// Why it has no effect, where it is accepted for torchrun's sake only; empty: it works.
  std::string_view no_effect;
  std::string_view help;
  /// Takes the value over; a sentence where it makes no sense. Never called for --help and the
  /// like, which have none.
  std::optional<Complaint> (*apply)(Draft& draft, std::string_view value);
};

std::span<const OptionEntry> option_table();
/// By flag, dashes and underscores alike; nullptr for none.
const OptionEntry* find_option(std::string_view flag);
const OptionEntry* find_option(char letter);
/// The flag that was probably meant, with its dashes: "--nproc-per-node"; empty where none is near.
std::string nearest_option(std::string_view flag);

/// True for the variables that stand for a flag, which no worker may inherit.
bool is_flag_variable(std::string_view name);
/// The variable that was probably meant by one that stands for no flag: "DLAUNCH_MAX_RESTARTS" for
/// "DLAUNCH_MAX_RESTART"; empty where none is near, or the name means something else.
std::string nearest_variable(std::string_view name);

}  // namespace dlaunch::launcher
