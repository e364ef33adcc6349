#include "packaging/pages/completions.hpp"

#include "launcher/request/subcommand_words.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "packaging/pages/programs.hpp"

#include <array>
#include <string_view>
#include <vector>

namespace dlaunch::pages {

namespace {

/// A text between single quotes, for a shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

/// fish has backslashes within single quotes.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string spaced(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string spaced_ctl_words() {
  std::vector<std::string> names;
  for (const auto& word : launcher::ctl_words()) names.emplace_back(word.name);
  return spaced(names);
}

/// "--tee", "-t".
std::vector<std::string> names_of(const Option& option) {
  std::vector<std::string> names = {"--" + std::string(option.flag)};
  if (option.letter != 0) names.push_back(std::string{'-', option.letter});
  return names;
}

std::string_view name_of(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::none:
      return "none";
    case Value::Kind::any:
      return "any";
    case Value::Kind::words:
      return "words";
    case Value::Kind::list:
      return "list";
    case Value::Kind::file:
      return "file";
    case Value::Kind::folder:
      return "folder";
    case Value::Kind::host:
      return "host";
  }
  return "none";
}

/// What is special within a description of _arguments, besides quotes.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Value& value) {
  const std::string words = spaced(value.words);
  switch (value.kind) {
    case Value::Kind::file:
      return "_files";
    case Value::Kind::folder:
      return "_files -/";
    case Value::Kind::host:
      return "_hosts";
    case Value::Kind::list:
      return "_values -s , value " + words;
    case Value::Kind::any:
    case Value::Kind::words:
    case Value::Kind::none:
      break;
  }
  return words.empty() ? " " : "(" + words + ")";
}

std::string zsh_option(const Option& option) {
  const Value value = value_of(option);
  const bool takes = value.kind != Value::Kind::none;
  std::string spec = "[" + zsh_escaped(first_sentence(option.help)) + "]";
  if (takes) spec += ":" + zsh_escaped(option.argument) + ":" + zsh_action(value);
  const std::string flag = "--" + std::string(option.flag);
  if (option.letter == 0) return shell_quoted(flag + (takes ? "=" : "") + spec);
  const std::string letter{'-', option.letter};
  const std::string others = shell_quoted("(" + letter + " " + flag + ")");
  return others + "{" + letter + (takes ? "+" : "") + "," + flag + (takes ? "=" : "") + "}" +
         shell_quoted(spec);
}

/// The function's name for a command: "_dlaunch_bench_options". The file's own is _dlaunch.
std::string zsh_function(std::string_view command) {
  std::string name = "_";
  for (const char c : command) name += c == ' ' ? '_' : c;
  return name + "_options";
}

/// What may stand beside a command's options; the functions are in _dlaunch.in.
std::string zsh_operands(std::string_view command) {
  if (command == "dlaunch") return "'(-): :_dlaunch_program' '*::arguments: _normal'";
  constexpr std::array<std::string_view, 5> of_a_job = {"drain", "logs", "stack", "status", "stop"};
  for (const auto name : of_a_job) {
    if (command == "dlaunch " + std::string(name)) return "'1: :_dlaunch_jobs'";
  }
  if (command == "dlaunch ctl") return "'1:action:(" + spaced_ctl_words() + ")'";
  if (command == "dlaunchd") return "'1:command:(job-key check backup restore)' '*: :_files'";
  return "";
}

std::string fish_option(std::string_view program, const std::string& condition,
                        const Option& option) {
  std::string line = "complete -c " + std::string(program);
  if (!condition.empty()) line += " -n " + fish_quoted(condition);
  line += " -l " + std::string(option.flag);
  if (option.letter != 0) line += std::string(" -s ") + option.letter;
  const Value value = value_of(option);
  std::string words = spaced(value.words);
  switch (value.kind) {
    case Value::Kind::none:
      break;
    case Value::Kind::file:
      line += " -r -F";
      break;
    case Value::Kind::folder:
      words = "(__fish_complete_directories)";
      break;
    case Value::Kind::host:
      words = "(__fish_print_hostnames)";
      break;
    case Value::Kind::list:
      words = "(__fish_append , " + words + ")";
      break;
    case Value::Kind::any:
    case Value::Kind::words:
      break;
  }
  if (value.kind != Value::Kind::none && value.kind != Value::Kind::file) line += " -x";
  if (!words.empty()) line += " -a " + fish_quoted(words);
  return line + " -d " + fish_quoted(first_sentence(option.help)) + "\n";
}

}  // namespace

std::string bash_options() {
  std::string out;
  for (const Program& program : programs()) {
    std::string flags;
    for (const Option* option : program.all()) {
      for (const auto& name : names_of(*option)) flags += (flags.empty() ? "" : " ") + name;
    }
    out += "    " + shell_quoted(program.command) + ") echo " + shell_quoted(flags) + " ;;\n";
  }
  return out;
}

std::string bash_values() {
  std::string out;
  for (const Program& program : programs()) {
    for (const Option* option : program.all()) {
      std::string patterns;
      for (const auto& name : names_of(*option)) {
        patterns += (patterns.empty() ? "" : " | ") + shell_quoted(program.command + " " + name);
      }
      const Value value = value_of(*option);
      std::string said(name_of(value.kind));
      if (!value.words.empty()) said += " " + spaced(value.words);
      out += "    " + patterns + ") echo " + shell_quoted(said) + " ;;\n";
    }
  }
  return out;
}

std::string bash_ctl() {
  return "        'dlaunch ctl') (( last > 2 )) || _dlaunch_say words " +
         shell_quoted(spaced_ctl_words()) + " ;;\n";
}

std::string zsh_functions() {
  std::string out;
  for (const Program& program : programs()) {
    if (!out.empty()) out += "\n";
    out += zsh_function(program.command) + "() {\n";
    // Behind the program's name everything is the program's.
    out += program.command == "dlaunch" ? "  _arguments -S -A '-*'" : "  _arguments -S";
    for (const Option* option : program.all()) out += " \\\n    " + zsh_option(*option);
    const auto operands = zsh_operands(program.command);
    if (!operands.empty()) out += " \\\n    " + operands;
    out += "\n}\n";
  }
  return out;
}

std::string fish_subcommands() {
  std::string out;
  for (const auto& [name, what] : launcher::subcommand_words()) {
    out += "complete -c dlaunch -n __fish_use_subcommand -a " + std::string(name) + " -d " +
           fish_quoted(what) + "\n";
  }
  const std::string none_yet =
      "__fish_seen_subcommand_from ctl; and not __fish_seen_subcommand_from " + spaced_ctl_words();
  for (const auto& [name, what] : launcher::ctl_words()) {
    out += "complete -c dlaunch -n " + fish_quoted(none_yet) + " -f -a " + std::string(name) +
           " -d " + fish_quoted(what) + "\n";
  }
  return out;
}

std::string fish_options(std::string_view program) {
  std::string out, names;
  for (const auto& subcommand : launcher::subcommand_words()) {
    if (subcommand.name != "run") names += " " + std::string(subcommand.name);
  }
  for (const Program& part : programs()) {
    std::string condition;
    if (part.command == "dlaunch") {
      condition = "not __fish_seen_subcommand_from" + names;
    } else if (part.command.starts_with("dlaunch ")) {
      condition = "__fish_seen_subcommand_from " + part.command.substr(8);
    }
    if (part.command.substr(0, part.command.find(' ')) != program) continue;
    for (const Option* option : part.all()) out += fish_option(program, condition, *option);
  }
  return out;
}

}  // namespace dlaunch::pages
