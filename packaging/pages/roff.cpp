#include "packaging/pages/roff.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <stdexcept>

namespace dlaunch::pages {

namespace {

/// A placeholder is slanted, a word is bold: \fBcpu\fR|\fIN\fR.
std::string argument_of(std::string_view argument) {
  std::string out;
  for (const auto part : split(argument, '|')) {
    if (!out.empty()) out += '|';
    const bool stands_for = std::any_of(part.begin(), part.end(), [](char c) {
      return std::isupper(static_cast<unsigned char>(c)) != 0;
    });
    out += stands_for ? "\\fI" + roff(part) + "\\fR" : roff_bold(part);
  }
  return out;
}

/// "Default: 30." and whatever else a row says of its option.
std::string body_of(const Option& option) {
  std::string body = roff(option.help);
  if (!option.argument.empty() && !option.standard.empty()) {
    body += " Default: " + roff_bold(option.standard) + ".";
  }
  if (!option.no_effect.empty()) body += " Without effect: " + roff(option.no_effect) + ".";
  if (option.traits.reload) body += " Changed by a reload.";
  return body;
}

std::string trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text);
}

/// The cells of a row of a table; "\|" is no end of a cell.
std::vector<std::string> cells_of(std::string_view row) {
  std::vector<std::string> cells;
  std::string cell;
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|') {
      cell += row[++i];
    } else if (row[i] == '|') {
      cells.push_back(trimmed(cell));
      cell.clear();
    } else {
      cell += row[i];
    }
  }
  return cells;
}

}  // namespace

std::string roff(std::string_view text) {
  std::string out;
  // A line that begins so would be a command.
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string roff_bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

std::string roff_of_markdown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto next = text.find_first_of("`[*");
    out += roff(text.substr(0, next));
    if (next == std::string_view::npos) break;
    text.remove_prefix(next);
    const std::string_view mark = text.starts_with("**") ? "**" : text.substr(0, 1);
    const std::string_view close = mark == "[" ? "](" : mark;
    const auto end = text.find(close, mark.size());
    if (end == std::string_view::npos) {
      out += roff(mark);
      text.remove_prefix(mark.size());
      continue;
    }
    const auto inner = text.substr(mark.size(), end - mark.size());
    out += mark == "["   ? roff(inner)
           : mark == "*" ? "\\fI" + roff(inner) + "\\fR"
                         : roff_bold(inner);
    text.remove_prefix(end + close.size());
    if (mark == "[") text.remove_prefix(std::min(text.size(), text.find(')') + 1));
  }
  return out;
}

std::string roff_entry(const std::string& head, const std::string& body) {
  return ".TP\n" + head + "\n" + body + "\n";
}

std::string roff_options(const std::vector<const Option*>& options) {
  std::string out;
  std::string_view section;
  for (const Option* option : options) {
    if (option->section != section) out += ".SS " + roff(option->section) + "\n";
    section = option->section;
    std::string head;
    if (option->letter != 0) head = roff_bold(std::string{'-', option->letter}) + ", ";
    head += roff_bold("--" + std::string(option->flag));
    if (!option->argument.empty()) head += " " + argument_of(option->argument);
    out += roff_entry(head, body_of(*option));
  }
  return out;
}

std::string roff_keys(const std::vector<const Option*>& options) {
  std::string out;
  for (const Option* option : options) {
    if (!option->traits.file) continue;
    std::string body = body_of(*option);
    if (option->traits.adds_up) body += " In the file, several stand in an array.";
    if (!option->traits.reload) body += " A change takes a restart.";
    out += roff_entry(roff_bold(option->flag) + " = " + argument_of(option->argument), body);
  }
  return out;
}

std::string roff_table(std::string_view page, std::string_view heading) {
  std::string out;
  bool behind = false;
  int rows = 0;
  for (const auto line : split(page, '\n')) {
    if (line.starts_with("## ")) {
      if (rows > 0) break;
      behind = line.substr(3) == heading;
    }
    if (!behind) continue;
    if (!line.starts_with("|")) {
      if (rows > 0) break;
      continue;
    }
    if (++rows <= 2) continue;  // Its head, and the line below.
    const auto cells = cells_of(line);
    std::string body;
    for (std::size_t i = 1; i < cells.size(); ++i) {
      if (cells[i].empty()) continue;
      if (!body.empty()) body += "\n.br\n";
      body += roff_of_markdown(cells[i]);
    }
    out += roff_entry(roff_of_markdown(cells.front()), body.empty() ? "\\&" : body);
  }
  if (rows <= 2) {
    throw std::runtime_error("there is no table behind '## " + std::string(heading) + "'");
  }
  return out;
}

}  // namespace dlaunch::pages
