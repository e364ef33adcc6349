#include "packaging/pages/programs.hpp"

#include "collectives/bench/options.hpp"
#include "launcher/request/option_table.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "rendezvous/daemon/config.hpp"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace dlaunch::pages {

namespace {

/// Bench runs a program of its own, so that the options of the program are not for it.
std::vector<const Option*> launcher_options_of_bench() {
  std::vector<const Option*> found;
  for (const Option* option : launcher::option_table().options()) {
    const bool twice = bench::bench_options().find(option->flag) != nullptr;
    if (option->section != launcher::program_section && !twice) found.push_back(option);
  }
  return found;
}

/// "cpu" is written as it stands, "N" stands for something.
bool is_word(std::string_view part) {
  const auto is = [&](int (*kind)(int)) {
    return std::any_of(part.begin(), part.end(),
                       [&](char c) { return kind(static_cast<unsigned char>(c)) != 0; });
  };
  return is(std::islower) && !is(std::isupper);
}

}  // namespace

std::vector<const Option*> Program::all() const {
  auto found = options->options();
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

std::span<const Program> programs() {
  static const std::vector<Program> all = [] {
    std::vector<Program> made = {
        {"dlaunch", &launcher::option_table()},
        {"dlaunch bench", &bench::bench_options(), launcher_options_of_bench()},
    };
    for (const auto& [name, run, options] : launcher::subcommands()) {
      made.push_back({options().program(), &options()});
    }
    made.push_back({"dlaunchd", &rendezvous::dlaunchd_options()});
    return made;
  }();
  return all;
}

const Program& program_of(std::string_view command) {
  for (const Program& program : programs()) {
    if (program.command == command) return program;
  }
  throw std::runtime_error("there is no command '" + std::string(command) + "'");
}

Value value_of(const Option& option) {
  if (option.argument.empty()) return {};
  Value value;
  std::vector<std::string_view> placeholders;
  for (const auto part : split(option.argument, '|')) {
    if (is_word(part)) {
      value.words.emplace_back(part);
    } else {
      placeholders.push_back(part);
    }
  }
  for (const auto word : split(option.words, ' ')) {
    if (!word.empty()) value.words.emplace_back(word);
  }
  const std::string_view first = placeholders.empty() ? "" : placeholders.front();
  using Kind = Value::Kind;
  if (first == "FILE") {
    value.kind = Kind::file;
  } else if (first == "DIR") {
    value.kind = Kind::folder;
  } else if (first.starts_with("HOST")) {
    value.kind = Kind::host;
  } else if (first.find(',') != std::string_view::npos && !value.words.empty()) {
    value.kind = Kind::list;
  } else {
    value.kind = placeholders.empty() || !option.words.empty() ? Kind::words : Kind::any;
  }
  return value;
}

std::string first_sentence(std::string_view text) {
  const auto end = text.find(". ");
  text = text.substr(0, end);
  if (text.ends_with('.')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace dlaunch::pages
