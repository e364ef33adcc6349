#pragma once

#include "runtime/base/text/values.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The options of a program. A row describes one completely; the command line, variables, the
/// configuration file, --help and refusals all follow from the rows. Pure.
namespace dlaunch {

/// Nothing is to be run: --help, --version, or a refusal. The text goes to stdout when the code is
/// 0, else to stderr; it ends in a newline.
struct EarlyExit {
  int code = 0;
  std::string text;

  bool operator==(const EarlyExit&) const = default;
};

/// Gives a file's text; nullopt where it cannot be read, with errno if that is known. For --config.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
/// "cannot be read: No such file or directory"; the error as a FileReader leaves it, 0 if unknown.
std::string cannot_be_read(int error);

/// The places where an option is taken from besides the command line, and how.
struct OptionTraits {
  bool file = false;      ///< A key of the configuration file.
  bool variable = false;  ///< DLAUNCH_<OPTION>.
  bool pet = false;       ///< PET_<OPTION>: torchrun knows it, too.
  bool reload = false;    ///< Changed by a reload of the file.
  bool adds_up = false;   ///< On the command line all values count, not only the last.
  bool repeats = false;   ///< The same, where a value may have commas: each is taken by itself.
  bool of_part = false;   ///< Of one part of a line `a : b`, and not of the whole job.
};

struct Option {
  std::string_view flag;      ///< "nproc-per-node".
  char letter = 0;            ///< 'm' for -m; 0 for none.
  std::string_view argument;  ///< "N|cpu": what is written small is a word; empty for a flag.
  std::string_view standard;  ///< The default, as one would write it; empty: unset.
  std::string_view section;   ///< Its title in --help; rows of one section stand together.
  OptionTraits traits;
  std::string_view help;
  /// Why it has no effect, where it is accepted for torchrun's sake only; empty: it works.
  std::string_view no_effect = {};
  std::string_view misnomers = {};  ///< "n np": what other programs call it.
  /// "sum product": words that the value may be, besides those in `argument`, as cpu and gpu are.
  std::string_view words = {};

  /// --help and --version, which are all that is done then.
  bool ends() const { return flag == "help" || flag == "version"; }
};

using Taken = std::optional<Complaint>;

/// An option, and what takes its value over: a sentence where the value makes no sense.
template <class Target>
struct OptionRow {
  Option option;
  Taken (*apply)(Target& target, std::string_view value) = nullptr;  ///< None if it ends().
};

/// All options of a program. The rows have to outlive it.
class OptionTable {
 public:
  /// `program` begins each refusal, `about` the help; `closing`: the paragraphs behind the options.
  /// `brief`: what --help shows instead of all options, which --help all then lists.
  template <class Rows>
  OptionTable(std::string program, std::string about, const Rows& rows,
              std::vector<std::string> closing = {}, std::string brief = {})
      : program_(std::move(program)),
        about_(std::move(about)),
        closing_(std::move(closing)),
        brief_(std::move(brief)) {
    for (const auto& row : rows) options_.push_back(&row.option);
  }

  const std::string& program() const { return program_; }
  const std::vector<std::string>& closing() const { return closing_; }
  const std::vector<const Option*>& options() const { return options_; }
  /// By flag, dashes and underscores alike; nullptr for none.
  const Option* find(std::string_view flag) const;
  const Option* find(char letter) const;
  /// The place among the options of a flag that exists.
  std::size_t index_of(std::string_view flag) const;
  /// The option that was probably meant, of some; nullptr where none is near.
  const Option* nearest(std::string_view flag, bool (*among)(const Option&)) const;

  EarlyExit refuse(int code, std::string_view sentence) const;
  /// "; did you mean --tee?", else where the options are listed.
  std::string hint(const Option* meant, std::string_view dashes) const;
  /// All options.
  std::string help() const;
  /// What --help prints: the brief text, where there is one, which names the groups, else all
  /// options. `following`, the next word on the command line, may be "all" or a group; `attached`,
  /// as in --help=all, has to be.
  EarlyExit help_asked(const std::optional<std::string>& attached,
                       std::string_view following) const;
  std::string version() const;

 private:
  std::vector<std::string> groups() const;
  std::string options_text(std::string_view group) const;
  std::optional<std::string> help_about(std::string_view topic) const;

  std::string program_;
  std::string about_;
  std::vector<std::string> closing_;
  std::string brief_;
  std::vector<const Option*> options_;
};

/// The origin of a value, the strongest first.
enum class Origin {
  command_line,
  dlaunch_variable,
  pet_variable,
  scheduler,
  config_file,
  standard
};

/// An option's value, and where it was given.
struct Setting {
  std::string_view flag;  ///< "nproc-per-node".
  std::string value;      ///< As written.
  Origin origin = Origin::standard;
  /// "DLAUNCH_NPROC_PER_NODE", "job.toml:3"; empty where the origin says it all.
  std::string where = {};
  /// The values given before this one, of an option that repeats; they count, too.
  std::vector<std::string> earlier = {};

  bool operator==(const Setting&) const = default;
};

/// Words of a command line that are no options.
struct Operands {
  std::size_t most = 0;
  bool end_options = false;  ///< Words behind the first one are not read.
  bool foreign = false;      ///< Options that the table does not know count as such words.
};

/// The given values of a program's options: the strongest of each.
class GivenOptions {
 public:
  explicit GivenOptions(const OptionTable& table);

  /// Keeps a value unless a stronger one was given; on the command line the last of equals counts.
  void take(Setting setting);
  void replace(Setting setting) { settings_[table_->index_of(setting.flag)] = std::move(setting); }
  /// Another default than the table's.
  void assume(std::string_view flag, std::string_view value);
  /// Reads a command line without argv[0]; its operands are added to `words`. What stands behind
  /// "--" is no option.
  std::optional<EarlyExit> take_arguments(std::span<const std::string> arguments,
                                          const Operands& operands,
                                          std::vector<std::string>& words);
  /// Reads the file that --config names, where it does.
  std::optional<EarlyExit> take_file(const FileReader& read_file);

  const OptionTable& table() const { return *table_; }
  /// The value, or the default if none was given.
  const Setting& of(std::string_view flag) const { return settings_[table_->index_of(flag)]; }
  bool has(std::string_view flag) const { return of(flag).origin != Origin::standard; }
  /// Every option's value in the table's order, without those that end at once.
  std::vector<Setting> settings() const;
  /// "--nnodes 2", "PET_NNODES=2", "job.toml:1: nnodes = 2"; "--nnodes" where nothing was said.
  std::string as_written(std::string_view flag) const { return as_written(of(flag)); }
  /// Refuses a given value; the exit code is that of its origin.
  EarlyExit refuse(std::string_view flag, std::string_view sentence) const {
    return refuse(of(flag), sentence);
  }

  /// Takes all values over, row by row, the default first: it is text like any other value.
  template <class Rows, class Target>
  std::optional<EarlyExit> apply(const Rows& rows, Target& target) const {
    for (const auto& [option, take_over] : rows) {
      if (take_over == nullptr) continue;
      if (!option.standard.empty()) take_over(target, option.standard);
      const Setting& said = of(option.flag);
      if (said.origin == Origin::standard && said.value == option.standard) continue;
      for (const auto& value : said.earlier) {
        if (const auto complaint = take_over(target, value)) {
          Setting wrong = said;
          wrong.value = value;
          return refuse(wrong, complaint->sentence);
        }
      }
      if (const auto complaint = take_over(target, said.value)) {
        return refuse(said, complaint->sentence);
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<EarlyExit> take_argument(const Option& option, std::optional<std::string> attached,
                                         std::span<const std::string> arguments, std::size_t& next);
  std::string as_written(const Setting& setting) const;
  EarlyExit refuse(const Setting& setting, std::string_view sentence) const;

  const OptionTable* table_;
  std::vector<Setting> settings_;  ///< In the table's order.
};

}  // namespace dlaunch
