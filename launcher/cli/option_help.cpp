#include "launcher/cli/parse_options.hpp"
#include "launcher/request/option_table.hpp"

#include <array>
#include <utility>

namespace dlaunch::launcher {

namespace {

constexpr std::size_t width = 80;
constexpr std::size_t help_column = 30;

/// Appends words, broken before `width`, each further line at `column`. The text's first word goes
/// where the line stands.
void wrap(std::string& out, std::size_t at, std::size_t column, std::string_view text) {
  bool first = true;
  while (!text.empty()) {
    const auto end = text.find(' ');
    const auto word = text.substr(0, end);
    if (!first && at + 1 + word.size() > width) {
      out.append("\n").append(column, ' ');
      at = column;
      first = true;
    }
    if (!first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    first = false;
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  out += '\n';
}

void append(std::string& out, const OptionEntry& entry) {
  std::string line = "  ";
  line += entry.letter == 0 ? "    " : std::string{'-', entry.letter, ',', ' '};
  line.append("--").append(entry.flag);
  if (!entry.argument.empty()) line.append(" ").append(entry.argument);
  std::string help(entry.help);
  if (!entry.argument.empty() && !entry.standard.empty()) {
    help.append(" [").append(entry.standard).append("]");
  }
  if (!entry.no_effect.empty()) help += " Without effect.";
  // A name too long for its column has the line for itself.
  if (line.size() + 2 > help_column) {
    out.append(line).append("\n").append(help_column, ' ');
  } else {
    out.append(line).append(help_column - line.size(), ' ');
  }
  wrap(out, help_column, help_column, help);
}

}  // namespace

std::string help_text() {
  static constexpr std::array<std::pair<Section, std::string_view>, 6> sections = {{
      {Section::program, "Program"},
      {Section::workers, "Workers"},
      {Section::meeting, "Where they meet"},
      {Section::failure, "Failure and end"},
      {Section::output, "Output"},
      {Section::information, "Configuration and information"},
  }};
  std::string out =
      "Usage: dlaunch [options] [--] program [args...]\n"
      "\n"
      "Starts a program several times and lets the processes find each other.\n"
      "A program named *.py runs under $PYTHON_EXEC or python3.\n"
      "dlaunch bench measures the collectives; dlaunch bench --help says how.\n";
  for (const auto& [section, title] : sections) {
    out.append("\n").append(title).append(":\n");
    for (const auto& entry : option_table()) {
      if (entry.section == section) append(out, entry);
    }
  }
  out += "\n";
  wrap(out, 0, 0,
       "Options may be written with dashes or underscores. An option that is not given is taken "
       "from the variable DLAUNCH_<OPTION>, then (torchrun's options) from PET_<OPTION>, then from "
       "--config. TIME is 500ms, 30 (seconds), 2m or 1h.");
  return out;
}

}  // namespace dlaunch::launcher
