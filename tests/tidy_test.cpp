// The architecture, as a test: who may include whom, how long a file may be, how files are named.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace fs = std::filesystem;

namespace {

const fs::path root = DLAUNCH_SOURCE_DIR;

/// A module and what it may include besides itself. Order: from the root outwards.
const std::map<std::string, std::set<std::string>> may_include = {
    {"runtime/base", {}},
    {"runtime/segment", {"runtime/base"}},
    {"runtime/store", {"runtime/base"}},
    {"runtime/world", {"runtime/base", "runtime/segment", "runtime/store"}},
    {"collectives", {"runtime/base", "runtime/segment", "runtime/store", "runtime/world"}},
    {"rendezvous", {"runtime/base", "runtime/segment", "runtime/store"}},
    {"launcher",
     {"rendezvous", "runtime/base", "runtime/segment", "runtime/store", "runtime/world"}},
};

/// Which module a public header of runtime/include belongs to.
const std::map<std::string, std::string> public_headers = {
    {"export.hpp", "runtime/base"}, {"error.hpp", "runtime/base"},
    {"store.hpp", "runtime/base"},  // the interface and Bytes; the store itself is runtime/store
    {"world.hpp", "runtime/world"}, {"process_info.hpp", "runtime/world"},
    {"port.hpp", "runtime/world"},  {"spawn.hpp", "runtime/world"},
};

struct Include {
  int line = 0;
  std::string path;
  bool angled = false;
};

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Include> includes_of(const std::vector<std::string>& lines) {
  std::vector<Include> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with("#include ")) continue;
    const char open = lines[i].at(9);
    const auto end = lines[i].find(open == '<' ? '>' : '"', 10);
    found.push_back({static_cast<int>(i + 1), lines[i].substr(10, end - 10), open == '<'});
  }
  return found;
}

std::string module_of(const std::string& path) {
  for (const auto& [module, allowed] : may_include) {
    if (path.starts_with(module + "/")) return module;
  }
  if (path.starts_with("runtime/include/dlaunch/")) {
    const auto header = public_headers.find(fs::path(path).filename().string());
    return header == public_headers.end() ? "unknown public header" : header->second;
  }
  return "";
}

/// The module an include leads to; empty for a header that is not ours.
std::string target_of(const Include& include) {
  if (!include.angled) return module_of(include.path);
  if (!include.path.starts_with("dlaunch/")) return "";
  const auto runtime = public_headers.find(include.path.substr(8));
  return runtime == public_headers.end() ? "collectives" : runtime->second;
}

std::vector<fs::path> sources(const std::vector<std::string>& folders) {
  std::vector<fs::path> found;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension == ".cpp" || extension == ".hpp" || extension == ".h" || extension == ".c") {
        found.push_back(entry.path());
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

const std::vector<std::string> product = {"runtime", "collectives", "rendezvous", "launcher"};

}  // namespace

TEST_CASE("modules include only what the design allows") {
  int seen = 0;
  for (const auto& file : sources(product)) {
    const std::string path = fs::relative(file, root).string();
    const std::string module = module_of(path);
    CHECK_MESSAGE(may_include.contains(module), path << " belongs to no module");
    if (!may_include.contains(module)) continue;
    for (const auto& include : includes_of(lines_of(file))) {
      const std::string target = target_of(include);
      ++seen;
      if (target.empty() || target == module) continue;
      CHECK_MESSAGE(may_include.at(module).contains(target), path << ":" << include.line << ": "
                                                                  << module << " may not include "
                                                                  << include.path);
    }
  }
  CHECK(seen > 50);
}

TEST_CASE("no Asio in the data plane, and no JSON on the wire") {
  for (const auto& file : sources({"collectives", "runtime/store", "runtime/base"})) {
    const std::string path = fs::relative(file, root).string();
    for (const auto& include : includes_of(lines_of(file))) {
      if (path.starts_with("collectives")) {
        CHECK_MESSAGE(!include.path.starts_with("boost/asio"),
                      path << " includes " << include.path);
      }
      if (!path.starts_with("collectives")) {
        CHECK_MESSAGE(!include.path.starts_with("nlohmann"), path << " includes " << include.path);
      }
    }
  }
}

TEST_CASE("public headers bring no private header and no third library along") {
  for (const auto& file : sources({"runtime/include", "collectives/include"})) {
    const std::string path = fs::relative(file, root).string();
    for (const auto& include : includes_of(lines_of(file))) {
      CHECK_MESSAGE((include.angled && !include.path.starts_with("boost") &&
                     !include.path.starts_with("nlohmann") && !include.path.starts_with("fmt")),
                    path << ":" << include.line << " includes " << include.path);
    }
  }
}

TEST_CASE("a file is a sitting, a line fits, a longer one says why at its top") {
  for (const auto& file :
       sources({"runtime", "collectives", "rendezvous", "launcher", "tests", "docs/examples"})) {
    const std::string path = fs::relative(file, root).string();
    const auto lines = lines_of(file);
    const auto head = std::min<std::size_t>(lines.size(), 12);
    const bool says_why = std::any_of(
        lines.begin(), lines.begin() + static_cast<long>(head),
        [](const std::string& line) { return line.find("Longer than") != std::string::npos; });
    CHECK_MESSAGE((lines.size() <= 450 || says_why), path << " has " << lines.size() << " lines");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK_MESSAGE(lines[i].size() <= 110, path << ":" << i + 1 << " is too wide");
    }
  }
}

TEST_CASE("names say what a thing is") {
  const std::set<std::string> banned = {"utils",  "util",    "common",  "misc",   "helpers",
                                        "helper", "manager", "handler", "context"};
  for (const auto& file : sources({"runtime", "collectives", "rendezvous", "launcher", "tests"})) {
    for (const auto& part : fs::relative(file, root)) {
      CHECK_MESSAGE(!banned.contains(part.stem().string()), file.string());
    }
  }
}

// A call of such a name with a std::string finds the standard library's function too, as soon as
// any header brings it along, and that one fits better.
TEST_CASE("no function is named as one of the standard library's that takes a string") {
  const std::vector<std::string> taken = {"quoted(", "getline(", "stoi(", "stol(", "stod("};
  const auto calls = [](const std::string& line, const std::string& name) {
    for (auto at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
      const char before = at == 0 ? ' ' : line[at - 1];
      const bool other = std::isalnum(static_cast<unsigned char>(before)) != 0 || before == '_' ||
                         before == ':' || before == '.' || before == '>';
      if (!other) return true;
    }
    return false;
  };
  CHECK(calls("  return quoted(text);", "quoted("));
  CHECK_FALSE(calls("  return std::quoted(text) + in_quoted(text);", "quoted("));
  for (const auto& file : sources(product)) {
    const auto lines = lines_of(file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const auto& name : taken) {
        CHECK_MESSAGE(!calls(lines[i], name), fs::relative(file, root).string()
                                                  << ":" << i + 1 << " calls " << name << ")");
      }
    }
  }
}

TEST_CASE("the C API stands on the public C++ interface alone") {
  int seen = 0;
  for (const auto& file : sources({"collectives"})) {
    if (!file.stem().string().starts_with("c_api")) continue;
    ++seen;
    for (const auto& include : includes_of(lines_of(file))) {
      CHECK_MESSAGE((include.angled || include.path == "collectives/c/c_api.hpp"),
                    file.string() << " includes " << include.path);
    }
  }
  CHECK(seen > 5);
}

TEST_CASE("the programs in the README and in docs/c_api.md are the examples, word for word") {
  const auto text_of = [](const fs::path& file) {
    std::string text;
    for (const auto& line : lines_of(root / file)) text += line + "\n";
    return text;
  };
  CHECK(text_of("README.md").find("```cpp\n" + text_of("docs/examples/all_reduce.cpp") + "```\n") !=
        std::string::npos);
  CHECK(
      text_of("docs/c_api.md").find("```c\n" + text_of("docs/examples/c_all_reduce.c") + "```\n") !=
      std::string::npos);
}
