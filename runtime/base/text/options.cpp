#include "runtime/base/text/options.hpp"

#include "runtime/base/exit_code.hpp"
#include "runtime/base/text/control.hpp"
#include "runtime/base/text/toml.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

namespace dlaunch {

namespace {

/// The user's text in a message: one line, and not too long.
std::string shown(std::string_view text) { return clipped(without_controls(std::string(text))); }

/// Help texts end before it.
constexpr std::size_t width = 80;
constexpr std::size_t help_column = 30;

char fold(char c) { return c == '_' ? '-' : c; }

bool same_flag(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return fold(x) == fold(y); });
}

/// Appends words, broken before `width`, each further line at `column`, where the text begins.
void wrap(std::string& out, std::size_t column, std::string_view text) {
  std::size_t at = column;
  for (const auto word : split(text, ' ')) {
    if (at > column && at + 1 + word.size() > width) {
      out.append("\n").append(column, ' ');
      at = column;
    } else if (at > column) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  out += '\n';
}

void append_help(std::string& out, const Option& option) {
  std::string line = "  ";
  line += option.letter == 0 ? "    " : std::string{'-', option.letter, ',', ' '};
  line.append("--").append(option.flag);
  if (!option.argument.empty()) line.append(" ").append(option.argument);
  std::string help(option.help);
  if (!option.argument.empty() && !option.standard.empty()) {
    help.append(" [").append(option.standard).append("]");
  }
  if (!option.no_effect.empty()) help += " Without effect.";
  if (option.traits.reload) help += " Changed by a reload.";
  // A name too long for its column has the line for itself.
  if (line.size() + 2 > help_column) {
    out.append(line).append("\n").append(help_column, ' ');
  } else {
    out.append(line).append(help_column - line.size(), ' ');
  }
  wrap(out, help_column, help);
}

/// An argument taken apart: "--tee=3", "-t3", "--tee".
struct Spelt {
  const Option* option = nullptr;  ///< Null: the table has none of this name.
  std::string_view name;           ///< "--tee", "-tee".
  std::optional<std::string> attached;
};

Spelt spelt(const OptionTable& table, std::string_view argument) {
  Spelt result;
  const auto equals = argument.find('=');
  result.name = argument.substr(0, equals);
  if (argument.starts_with("--")) {
    result.option = table.find(result.name.substr(2));
    if (equals != std::string_view::npos) result.attached = argument.substr(equals + 1);
    return result;
  }
  result.option = table.find(argument[1]);
  if (argument.size() == 2) return result;
  // Letters are not combined, and "-tee" is no -t.
  const bool takes_value = result.option != nullptr && !result.option->argument.empty();
  if (!takes_value || table.find(result.name.substr(1)) != nullptr) result.option = nullptr;
  result.attached = argument.substr(argument[2] == '=' ? 3 : 2);
  return result;
}

/// "failure" for "Failure and end": the first word of its section's title, in small letters.
std::string group_of(const Option& option) {
  std::string name(option.section.substr(0, option.section.find(' ')));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

bool any(const Option&) { return true; }
bool is_key(const Option& option) { return option.traits.file; }

}  // namespace

const Option* OptionTable::find(std::string_view flag) const {
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const Option* option) {
    return same_flag(option->flag, flag);
  });
  return found == options_.end() ? nullptr : *found;
}

const Option* OptionTable::find(char letter) const {
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const Option* option) {
    return option->letter != 0 && option->letter == letter;
  });
  return found == options_.end() ? nullptr : *found;
}

std::size_t OptionTable::index_of(std::string_view flag) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option* option) { return option->flag == flag; });
  return static_cast<std::size_t>(found - options_.begin());
}

const Option* OptionTable::nearest(std::string_view flag, bool (*among)(const Option&)) const {
  constexpr std::size_t flag_max = 40;
  if (flag.size() > flag_max) return nullptr;
  std::string folded(flag);
  std::transform(folded.begin(), folded.end(), folded.begin(), fold);
  const Option* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, flag.size() / 3) + 1;
  for (const Option* option : options_) {
    if (!among(*option)) continue;
    for (const auto name : split(option->misnomers, ' ')) {
      if (name == folded) return option;
    }
    // A user who abbreviates means the first option that begins so.
    const bool abbreviated = folded.size() >= 3 && option->flag.starts_with(folded);
    const std::size_t distance = abbreviated ? 1 : edit_distance(folded, option->flag);
    if (distance >= best_distance || distance >= std::max(folded.size(), std::size_t{1})) continue;
    best = option;
    best_distance = distance;
  }
  return best;
}

std::string cannot_be_read(int error) {
  return "cannot be read" + (error == 0 ? "" : ": " + std::generic_category().message(error));
}

EarlyExit OptionTable::refuse(int code, std::string_view sentence) const {
  return {.code = code, .text = program_ + ": " + std::string(sentence) + "\n"};
}

std::string OptionTable::hint(const Option* meant, std::string_view dashes) const {
  if (meant == nullptr)
    return "; " + program_ + (brief_.empty() ? " --help" : " --help all") + " lists the options";
  return "; did you mean " + std::string(dashes) + std::string(meant->flag) + "?";
}

/// The options under their titles; only of one group, unless that is empty.
std::string OptionTable::options_text(std::string_view group) const {
  std::string out;
  std::string_view section;
  for (const Option* option : options_) {
    if (!group.empty() && group_of(*option) != group) continue;
    if (option->section != section) {
      if (group.empty() || !out.empty()) out += "\n";
      out.append(option->section).append(":\n");
    }
    section = option->section;
    append_help(out, *option);
  }
  return out;
}

std::vector<std::string> OptionTable::groups() const {
  std::vector<std::string> names;
  for (const Option* option : options_) {
    auto name = group_of(*option);
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

std::optional<std::string> OptionTable::help_about(std::string_view topic) const {
  if (topic == "all") return help();
  const auto names = groups();
  if (std::find(names.begin(), names.end(), topic) == names.end()) return std::nullopt;
  return options_text(topic);
}

EarlyExit OptionTable::help_asked(const std::optional<std::string>& attached,
                                  std::string_view following) const {
  if (brief_.empty()) return {.code = 0, .text = help()};
  if (auto text = help_about(attached ? std::string_view(*attached) : following)) {
    return {.code = 0, .text = *std::move(text)};
  }
  const std::string names = joined(groups());
  if (attached) {
    return refuse(exit_code::usage, "--help=" + shown(*attached) + ": " +
                                        name_in_quotes(*attached) + " is none of all, " + names);
  }
  std::string text = brief_ + "\n";
  wrap(text, 0,
       program_ + " --help all lists all options, " + program_ +
           " --help GROUP those of a group: " + names + ".");
  return {.code = 0, .text = std::move(text)};
}

std::string OptionTable::help() const {
  std::string out = about_ + options_text({});
  for (const auto& paragraph : closing_) {
    out += "\n";
    wrap(out, 0, paragraph);
  }
  return out;
}

std::string OptionTable::version() const { return program_ + " " DLAUNCH_VERSION "\n"; }

GivenOptions::GivenOptions(const OptionTable& table) : table_(&table) {
  for (const Option* option : table.options()) {
    settings_.push_back({.flag = option->flag, .value = std::string(option->standard)});
  }
}

void GivenOptions::take(Setting setting) {
  Setting& kept = settings_[table_->index_of(setting.flag)];
  const bool again = setting.origin == kept.origin && setting.origin == Origin::command_line;
  if (again && table_->find(setting.flag)->traits.adds_up) {
    kept.value += "," + setting.value;
  } else if (again && table_->find(setting.flag)->traits.repeats) {
    kept.earlier.push_back(std::exchange(kept.value, std::move(setting.value)));
  } else if (again || setting.origin < kept.origin) {
    kept = std::move(setting);
  }
}

void GivenOptions::assume(std::string_view flag, std::string_view value) {
  if (!has(flag)) settings_[table_->index_of(flag)].value = value;
}

std::optional<EarlyExit> GivenOptions::take_arguments(std::span<const std::string> arguments,
                                                      const Operands& operands,
                                                      std::vector<std::string>& words) {
  bool options_over = false;
  for (std::size_t next = 0; next < arguments.size(); ++next) {
    const std::string& argument = arguments[next];
    const bool rest = argument == "--" && operands.end_options;
    if (rest || ((argument.size() < 2 || argument[0] != '-') && operands.end_options)) {
      const auto first = static_cast<std::ptrdiff_t>(next + (rest ? 1 : 0));
      words.insert(words.end(), arguments.begin() + first, arguments.end());
      return std::nullopt;
    }
    if (argument == "--" && !operands.foreign && !options_over) {
      options_over = true;
      continue;
    }
    const bool looks_so = !options_over && argument.size() > 1 && argument[0] == '-';
    auto [option, name, attached] = looks_so ? spelt(*table_, argument) : Spelt{};
    const bool foreign = operands.foreign && (option == nullptr || option->flag == "help");
    if (!looks_so || foreign) {
      if (words.size() == operands.most && !foreign) {
        return table_->refuse(exit_code::usage,
                              "unexpected argument " + shown(argument) + table_->hint(nullptr, ""));
      }
      words.push_back(argument);
      continue;
    }
    if (option == nullptr) {
      const auto bare = name.substr(name.starts_with("--") ? 2 : 1);
      return table_->refuse(exit_code::usage, "unknown option " + shown(name) +
                                                  table_->hint(table_->nearest(bare, any), "--"));
    }
    if (auto stop = take_argument(*option, std::move(attached), arguments, next)) return stop;
  }
  return std::nullopt;
}

/// The option at `next`, which is moved on to the option's value where that stands apart.
std::optional<EarlyExit> GivenOptions::take_argument(const Option& option,
                                                     std::optional<std::string> attached,
                                                     std::span<const std::string> arguments,
                                                     std::size_t& next) {
  if (option.flag == "help") {
    const bool is_last = next + 1 == arguments.size();
    return table_->help_asked(attached, is_last ? "" : std::string_view(arguments[next + 1]));
  }
  if (option.flag == "version") return EarlyExit{.code = 0, .text = table_->version()};
  if (option.argument.empty() && !attached) attached = "1";
  if (!attached) {
    const std::string needs =
        "--" + std::string(option.flag) + " needs a value: " + std::string(option.argument);
    if (next + 1 == arguments.size()) return table_->refuse(exit_code::usage, needs);
    const std::string_view value = arguments[++next];
    if (value == "--" || (value.starts_with("--") && spelt(*table_, value).option != nullptr)) {
      return table_->refuse(exit_code::usage,
                            needs + "; it is followed by the option " + shown(value));
    }
    attached = value;
  }
  take({.flag = option.flag, .value = *std::move(attached), .origin = Origin::command_line});
  return std::nullopt;
}

std::optional<EarlyExit> GivenOptions::take_file(const FileReader& read_file) {
  if (!has("config")) return std::nullopt;
  constexpr int code = exit_code::configuration;
  const std::string path = of("config").value;
  errno = 0;
  const auto text = read_file ? read_file(path) : std::nullopt;
  if (!text) {
    return table_->refuse(code, as_written("config") + ": " + cannot_be_read(errno));
  }
  auto read = read_toml(path, *text);
  if (const auto* complaint = std::get_if<Complaint>(&read)) {
    return table_->refuse(code, complaint->sentence);
  }
  std::vector<const Option*> seen;
  for (auto& [key, value, where] : std::get<0>(read)) {
    const Option* option = table_->find(key);
    if (option == nullptr || !is_key(*option)) {
      return table_->refuse(code, where + ": unknown key " + shown(key) +
                                      table_->hint(table_->nearest(key, is_key), ""));
    }
    if (std::find(seen.begin(), seen.end(), option) != seen.end()) {
      return table_->refuse(code, where + ": " + key + " is given twice; leave one out");
    }
    seen.push_back(option);
    take({option->flag, std::move(value), Origin::config_file, std::move(where)});
  }
  return std::nullopt;
}

std::vector<Setting> GivenOptions::settings() const {
  std::vector<Setting> result;
  for (const auto& setting : settings_) {
    if (!table_->find(setting.flag)->ends()) result.push_back(setting);
  }
  return result;
}

std::string GivenOptions::as_written(const Setting& setting) const {
  const std::string flag(setting.flag);
  const std::string value = setting.value.empty() ? "''" : shown(setting.value);
  switch (setting.origin) {
    case Origin::dlaunch_variable:
    case Origin::pet_variable:
    case Origin::scheduler:
      return setting.where + "=" + value;
    case Origin::config_file:
      return setting.where + ": " + flag + " = " + value;
    case Origin::standard:
      return "--" + flag;
    case Origin::command_line:
      break;
  }
  return table_->find(flag)->argument.empty() ? "--" + flag : "--" + flag + " " + value;
}

EarlyExit GivenOptions::refuse(const Setting& setting, std::string_view sentence) const {
  const bool file = setting.origin == Origin::config_file;
  return table_->refuse(file ? exit_code::configuration : exit_code::usage,
                        as_written(setting) + ": " + std::string(sentence));
}

}  // namespace dlaunch
