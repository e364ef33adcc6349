#include "packaging/pages/places.hpp"

#include "packaging/pages/completions.hpp"
#include "packaging/pages/headers.hpp"
#include "packaging/pages/programs.hpp"
#include "packaging/pages/roff.hpp"

#include <algorithm>
#include <stdexcept>

namespace dlaunch::pages {

namespace {

std::string closing(const Program& program) {
  std::string out;
  for (const auto& paragraph : program.options->closing()) out += ".PP\n" + roff(paragraph) + "\n";
  return out;
}

std::string classes(std::string_view header) {
  std::string out;
  for (const auto& [name, about, calls] : declared_in_cpp(header)) {
    std::string body = roff(about) + ".";
    if (!calls.empty()) body += "\n.br\nCalls: " + roff(joined(calls)) + ".";
    out += roff_entry(roff_bold(name), body);
  }
  return out;
}

std::string functions(const std::string& path, std::string_view header) {
  const Declared all = declared_in_c(header);
  const std::string name = path.substr(path.find("dlaunch/"));
  std::string body = all.about.empty() ? "" : roff(all.about) + ".\n.br\n";
  return roff_entry(roff_bold("<" + name + ">"), body + roff(joined(all.calls)));
}

/// One of the places that are lines; "options" and "dlaunch bench".
std::string fill(std::string_view what, std::string_view argument, const ReadFile& read_file) {
  if (what == "options") return roff_options(program_of(argument).options->options());
  if (what == "keys") return roff_keys(program_of(argument).options->options());
  if (what == "closing") return closing(program_of(argument));
  if (what == "bash_options") return bash_options();
  if (what == "bash_values") return bash_values();
  if (what == "bash_ctl") return bash_ctl();
  if (what == "zsh_functions") return zsh_functions();
  if (what == "fish_options") return fish_options(argument);
  if (what == "fish_subcommands") return fish_subcommands();
  const std::string path(argument.substr(0, argument.find(' ')));
  if (what == "classes") return classes(read_file(path));
  if (what == "functions") return functions(path, read_file(path));
  if (what == "table" && path.size() < argument.size()) {
    return roff_table(read_file(path), argument.substr(path.size() + 1));
  }
  throw std::runtime_error("nobody knows the place '@" + std::string(what) + "@'");
}

}  // namespace

std::string fill_places(std::string_view text, const ReadFile& read_file) {
  constexpr std::string_view version = "@version@";
  std::string out;
  for (const auto line : split(text, '\n')) {
    if (line.size() > 2 && line.starts_with('@') && line.ends_with('@')) {
      const auto inner = line.substr(1, line.size() - 2);
      const auto blank = std::min(inner.find(' '), inner.size());
      out +=
          fill(inner.substr(0, blank), inner.substr(std::min(blank + 1, inner.size())), read_file);
      continue;
    }
    std::string plain(line);
    if (const auto at = plain.find(version); at != std::string::npos) {
      plain.replace(at, version.size(), DLAUNCH_VERSION);
    }
    out += plain + "\n";
  }
  // What splits into lines has one behind its last newline.
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace dlaunch::pages
