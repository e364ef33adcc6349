#include "packaging/pages/headers.hpp"

#include "packaging/pages/programs.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>

namespace dlaunch::pages {

namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The word that ends at `end`.
std::string_view word_before(std::string_view line, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && is_name(line[begin - 1])) --begin;
  return line.substr(begin, end - begin);
}

/// The function that a line declares; empty for another line.
std::string_view function_of(std::string_view line) {
  // "requires (...)" and attributes have parentheses of their own.
  if (const auto attribute = line.find("]] "); attribute != std::string_view::npos) {
    line.remove_prefix(attribute + 3);
  }
  const auto open = line.find('(');
  if (open == std::string_view::npos || open == 0) return {};
  const auto name = word_before(line, open);
  const bool alone = name.size() == open;  // A constructor.
  const bool other = alone || name.empty() || line[open - name.size() - 1] == '~' ||
                     line.find("operator") < open || line.find(" = ") < open;
  return other ? std::string_view() : name;
}

/// The class, structure, enumeration or alias that a line begins to declare.
std::string_view type_of(std::string_view line) {
  for (const std::string_view kind : {"enum class ", "class ", "struct ", "using ", "concept "}) {
    if (!line.starts_with(kind)) continue;
    line.remove_prefix(kind.size());
    if (line.starts_with("[[")) line.remove_prefix(line.find("]] ") + 3);
    if (line.starts_with("DLAUNCH_API ")) line.remove_prefix(12);
    const auto end = std::find_if_not(line.begin(), line.end(), is_name);
    return line.substr(0, static_cast<std::size_t>(end - line.begin()));
  }
  return {};
}

/// Reads a header line by line.
class Reader {
 public:
  void take(std::string_view line) {
    if (line.starts_with("///")) {
      comment_ += (comment_.empty() ? "" : " ") +
                  std::string(line.substr(std::min<std::size_t>(4, line.size())));
    } else if (inside_) {
      take_member(line);
    } else if (line.empty() || line.starts_with("#") || line.starts_with("namespace")) {
      comment_.clear();
    } else if (!line.starts_with("template") && !line.starts_with("requires") &&
               !line.starts_with(" ") && !line.starts_with("}")) {
      take_declaration(line);
    }
  }

  std::vector<Declared> found;

 private:
  void take_declaration(std::string_view line) {
    const auto type = type_of(line);
    const auto name = type.empty() ? function_of(line) : type;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Declared& other) { return other.name == name; });
    const bool body = !type.empty() && line.ends_with("{");
    if (!name.empty() && !comment_.empty() && !known) {
      found.push_back({std::string(name), first_sentence(comment_), {}});
      if (body) into_ = found.size() - 1;
    }
    comment_.clear();
    inside_ = body;
    is_public_ = !line.starts_with("class");
  }

  void take_member(std::string_view line) {
    if (line.starts_with("}")) {
      inside_ = false;
      into_.reset();
    } else if (line == " public:") {
      is_public_ = true;
    } else if (line == " private:") {
      is_public_ = false;
    } else if (into_ && is_public_ && line.starts_with("  ") && !line.starts_with("   ")) {
      line = line.substr(2, line.find("//") - 2);
      Declared& type = found[*into_];
      const auto name = function_of(line);
      const bool is_call = !name.empty() && name != type.name && !line.starts_with("friend") &&
                           line.find("std::function<") == std::string_view::npos;
      const bool known = std::find(type.calls.begin(), type.calls.end(), name) != type.calls.end();
      if (is_call && !known) type.calls.emplace_back(name);
    }
  }

  std::string comment_;
  bool inside_ = false;  ///< A class' body.
  bool is_public_ = false;
  std::optional<std::size_t> into_;  ///< The class in `found` whose body it is.
};

}  // namespace

std::vector<Declared> declared_in_cpp(std::string_view header) {
  Reader reader;
  for (const auto line : split(header, '\n')) reader.take(line);
  return reader.found;
}

Declared declared_in_c(std::string_view header) {
  Declared all;
  const auto begin = header.find("\n/* ");
  const auto end = header.find("*/", begin);
  if (begin != std::string_view::npos && end != std::string_view::npos) {
    std::string comment;
    for (auto line : split(header.substr(begin + 4, end - begin - 4), '\n')) {
      if (line.starts_with(" * ")) line.remove_prefix(3);
      comment += (comment.empty() ? "" : " ") + std::string(line);
    }
    while (comment.ends_with(' ')) comment.pop_back();
    all.about = first_sentence(comment);
  }
  for (const auto line : split(header, '\n')) {
    if (!line.starts_with("DL_API ")) continue;
    const auto name = function_of(line);
    if (!name.empty()) all.calls.emplace_back(name);
  }
  return all;
}

}  // namespace dlaunch::pages
