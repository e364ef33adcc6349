#include "launcher/pmi/core/wire.hpp"

#include <algorithm>
#include <charconv>

namespace dlaunch::launcher::pmi {
namespace {

using Taken = std::variant<std::optional<Command>, Garbage>;

constexpr std::size_t length_digits = 6;

/// "cmd=put kvsname=k key=a value=b". The value comes last, and may contain spaces.
Command read_line(std::string_view line) {
  Command command;
  while (!line.empty()) {
    const auto equals = line.find('=');
    if (equals == line.npos) break;
    const std::string_view name = line.substr(0, equals);
    line.remove_prefix(equals + 1);
    const bool is_last = name == "value" || name == "message";
    const auto end = is_last ? line.npos : line.find(' ');
    const std::string_view value = line.substr(0, end);
    if (name == "cmd") {
      command.name = value;
    } else {
      command.fields.emplace_back(name, value);
    }
    line.remove_prefix(std::min(line.size(), value.size()));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  }
  return command;
}

/// "mcmd=spawn", a field on each line, "endcmd".
Command read_lines(std::string_view lines) {
  Command command;
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    const auto equals = line.find('=');
    if (line.starts_with("mcmd=")) {
      command.name = line.substr(5);
    } else if (equals != line.npos) {
      command.fields.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    }
    if (end == lines.npos) break;
    lines.remove_prefix(end + 1);
  }
  return command;
}

/// "cmd=kvs-put;key=a;value=b;": a semicolon in a value is two.
Command read_fields(std::string_view text) {
  Command command;
  while (!text.empty()) {
    const auto equals = text.find('=');
    if (equals == text.npos) break;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 1);
    std::string value;
    for (; !text.empty(); text.remove_prefix(1)) {
      if (text.starts_with(";;")) {
        text.remove_prefix(1);
      } else if (text.front() == ';') {
        break;
      }
      value += text.front();
    }
    if (!text.empty()) text.remove_prefix(1);
    if (name == "cmd") {
      command.name = std::move(value);
    } else {
      command.fields.emplace_back(name, std::move(value));
    }
  }
  return command;
}

Taken too_long() {
  return Garbage{"a command of more than " + std::to_string(command_bytes_max) + " bytes"};
}

Taken take_one(std::string& came) {
  constexpr std::string_view several = "mcmd=", last = "\nendcmd\n";
  const bool has_several = came.starts_with(several);
  const auto end = has_several ? came.find(last) : came.find('\n');
  if (end == came.npos) {
    if (came.size() > command_bytes_max) return too_long();
    return std::nullopt;
  }
  const std::string text = came.substr(0, end);
  came.erase(0, end + (has_several ? last.size() : 1));
  Command command = has_several ? read_lines(text) : read_line(text);
  if (command.name.empty()) return Garbage{"a line that is no command"};
  return command;
}

Taken take_two(std::string& came) {
  if (came.size() < length_digits) return std::nullopt;
  const auto begin = came.find_first_not_of(' ');
  std::size_t length = 0;
  const char* const end = came.data() + length_digits;
  const auto read = std::from_chars(came.data() + std::min(begin, length_digits), end, length);
  // The digits may stand before the spaces, too.
  if (read.ec != std::errc() || std::any_of(read.ptr, end, [](char c) { return c != ' '; })) {
    return Garbage{"a command without its length"};
  }
  if (length > command_bytes_max) return too_long();
  if (came.size() < length_digits + length) return std::nullopt;
  Command command = read_fields(std::string_view(came).substr(length_digits, length));
  came.erase(0, length_digits + length);
  if (command.name.empty()) return Garbage{"a command without a name"};
  return command;
}

}  // namespace

std::string_view Command::get(std::string_view field) const {
  const auto found = std::ranges::find(fields, field, &Field::first);
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

std::variant<std::optional<Command>, Garbage> take_command(std::string& came, Version version) {
  return version == Version::one ? take_one(came) : take_two(came);
}

std::string written(const Command& command, Version version) {
  std::string text = "cmd=" + command.name;
  if (version == Version::one) {
    for (const auto& [name, value] : command.fields) text.append(" " + name + "=" + value);
    return text + "\n";
  }
  text += ';';
  for (const auto& [name, value] : command.fields) {
    text.append(name + "=");
    for (const char c : value) text.append(c == ';' ? 2 : 1, c);
    text += ';';
  }
  std::string length = std::to_string(text.size());
  length.insert(0, length_digits - std::min(length_digits, length.size()), ' ');
  return length + text;
}

}  // namespace dlaunch::launcher::pmi
