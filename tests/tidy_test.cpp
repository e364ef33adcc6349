// The architecture, as a test: who may include whom, how long a file may be, how files are named.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace fs = std::filesystem;

namespace {

const fs::path root = DLAUNCH_SOURCE_DIR;

/// One row of the table in docs/overview.md.
struct Folder {
  bool pure = false;
  std::set<std::string>
      may_include;  ///< Folders; "runtime/base/*" is that one and what lies in it.
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

/// What stands between backquotes.
std::vector<std::string> quoted_words(const std::string& text) {
  std::vector<std::string> words;
  for (auto at = text.find('`'); at != std::string::npos;) {
    const auto end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    words.push_back(text.substr(at + 1, end - at - 1));
    at = text.find('`', end + 1);
  }
  return words;
}

/// The architecture, as docs/overview.md shows it to people.
const std::map<std::string, Folder>& folders() {
  static const std::map<std::string, Folder> all = [] {
    std::map<std::string, Folder> found;
    bool in_table = false;
    for (const auto& line : lines_of(root / "docs/overview.md")) {
      if (line.starts_with("| folder |")) in_table = true;
      if (!line.starts_with("|")) in_table = false;
      if (!in_table || !line.starts_with("| `")) continue;
      const auto job = line.find(" | ");
      const auto last = line.rfind(" | ");
      const auto allowed = quoted_words(line.substr(std::max(job + 3, last)));
      found[quoted_words(line).front()] = {.pure = line.substr(job + 3).starts_with("pure: "),
                                           .may_include = {allowed.begin(), allowed.end()}};
    }
    return found;
  }();
  return all;
}

/// The folder of a source or private header; empty for the public ones.
std::string folder_of(const std::string& path) {
  const bool is_public = path.find("include/dlaunch/") != std::string::npos;
  return is_public ? "" : fs::path(path).parent_path().string();
}

bool may_include(const std::string& from, const std::string& to) {
  for (const auto& allowed : folders().at(from).may_include) {
    if (allowed == to) return true;
    if (!allowed.ends_with("/*")) continue;
    const std::string whole = allowed.substr(0, allowed.size() - 2);
    if (to == whole || to.starts_with(whole + "/")) return true;
  }
  return false;
}

/// The folders that it may include, those that they may, and so on.
std::set<std::string> brought_along_by(const std::string& folder) {
  std::set<std::string> found;
  std::vector<std::string> todo = {folder};
  while (!todo.empty()) {
    const std::string from = todo.back();
    todo.pop_back();
    for (const auto& [other, unused] : folders()) {
      if (other == from || !may_include(from, other)) continue;
      if (found.insert(other).second) todo.push_back(other);
    }
  }
  return found;
}

std::vector<fs::path> files_of(const std::vector<std::string>& folders,
                               const std::set<std::string>& extensions) {
  std::vector<fs::path> found;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (extensions.contains(entry.path().extension())) found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> sources(const std::vector<std::string>& folders) {
  return files_of(folders, {".cpp", ".hpp", ".h", ".c"});
}

/// The lines of a file with such a thing in them, without comments that take a whole line.
std::vector<std::string> found_in(const fs::path& file, const std::regex& what) {
  std::vector<std::string> found;
  for (const auto& line : lines_of(file)) {
    const auto begin = line.find_first_not_of(' ');
    const std::string text = begin == std::string::npos ? "" : line.substr(begin);
    if (text.starts_with("//") || text.starts_with("#")) continue;
    if (std::regex_search(text, what)) found.push_back(text);
  }
  return found;
}

const std::vector<std::string> product = {"runtime", "collectives", "rendezvous", "launcher",
                                          "packaging"};

/// The name in a line that begins the definition of a type ("struct Job {" at the line's start);
/// empty for other lines, and for specialisations, whose names are their templates'.
std::string defined_type(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  if (line.starts_with(' ') || line.ends_with(';') || !(words >> word)) return {};
  if (word != "struct" && word != "class" && word != "union" && word != "enum") return {};
  while (words >> word) {
    const bool is_attribute = word.find_first_of("[(") != std::string::npos;
    if (word == "class" || word == "struct" || word == "DLAUNCH_API" || is_attribute) continue;
    return word == "{" || word.find('<') != std::string::npos ? std::string() : word;
  }
  return {};
}

}  // namespace

TEST_CASE("folders include only what the table in docs/overview.md allows") {
  CHECK(folders().size() > 40);
  int seen = 0;
  for (const auto& file : sources(product)) {
    const std::string path = fs::relative(file, root).string();
    const std::string folder = folder_of(path);
    if (folder.empty()) continue;
    CHECK_MESSAGE(folders().contains(folder), path << " is in a folder that the table lacks");
    if (!folders().contains(folder)) continue;
    for (const auto& include : includes_of(lines_of(file))) {
      if (include.angled) continue;
      const std::string target = folder_of(include.path);
      ++seen;
      CHECK_MESSAGE(
          (target == folder || may_include(folder, target)),
          path << ":" << include.line << ": " << folder << " may not include " << include.path);
    }
  }
  CHECK(seen > 500);
}

TEST_CASE("the table in docs/overview.md has no circle, and no row too many") {
  for (const auto& each : folders()) {
    const std::string& folder = each.first;
    CHECK_MESSAGE(fs::exists(root / folder), folder);
    CHECK_MESSAGE(!brought_along_by(folder).contains(folder), folder);
  }
}

TEST_CASE("a folder has no more rooms than a stranger can look into") {
  std::map<std::string, std::set<std::string>> rooms;
  for (const auto& file : sources(product)) {
    const std::string path = fs::relative(file, root).string();
    rooms[fs::path(path).parent_path().string()].insert(file.stem().string());
  }
  for (const auto& each : rooms) CHECK_MESSAGE(each.second.size() <= 15, each.first);
}

TEST_CASE("what is called pure asks neither the system nor a clock") {
  const std::set<std::string> of_the_system = {"unistd.h",   "poll.h", "signal.h", "fstream",
                                               "filesystem", "thread", "dlfcn.h"};
  const std::vector<std::string> clocks = {"::now()", "getenv(", "time(nullptr)"};
  int seen = 0;
  for (const auto& file : sources(product)) {
    const std::string path = fs::relative(file, root).string();
    const auto folder = folders().find(folder_of(path));
    if (folder == folders().end() || !folder->second.pure) continue;
    ++seen;
    const auto lines = lines_of(file);
    for (const auto& include : includes_of(lines)) {
      const bool asks = include.angled &&
                        (of_the_system.contains(include.path) || include.path.starts_with("sys/") ||
                         include.path.starts_with("boost/asio"));
      CHECK_MESSAGE(!asks, path << ":" << include.line << " includes " << include.path);
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const auto& clock : clocks) {
        CHECK_MESSAGE(lines[i].find(clock) == std::string::npos, path << ":" << i + 1);
      }
      // With one argument it reads the clock itself.
      const auto call = lines[i].find("deadline_after(");
      const bool whole = call != std::string::npos && lines[i].find(')', call) != std::string::npos;
      CHECK_MESSAGE((!whole || lines[i].find(',', call) != std::string::npos),
                    path << ":" << i + 1);
    }
  }
  CHECK(seen > 40);
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

// docs/security.md names who may: what a user passes to such a call, or an administrator installs,
// is loaded, and nothing that a peer sends.
TEST_CASE(
    "nothing that arrives becomes code, save the objects that ranks in Python send each other") {
  struct Kind {
    std::set<std::string> extensions;
    std::regex loads;
    std::set<std::string> exceptions;
  };
  const Kind kinds[] = {
      {{".cpp", ".hpp", ".h", ".c"},
       std::regex(R"(\b(dlopen|dlmopen|popen|system|load_extension)\s*\()"),
       {"collectives/nccl/shared_objects.cpp", "launcher/doctor/read_host.cpp",
        "launcher/machine/nvml.cpp", "runtime/base/os/own_library.cpp"}},
      {{".js", ".html"},
       std::regex(
           R"(\beval\(|\bFunction\(|(inner|outer)HTML\s*\+?=(?!=)|insertAdjacentHTML|srcdoc|)"
           R"(document\.write|\bimport\()"),
       {}},
      {{".py"},
       std::regex(R"((pickle|marshal|dill)\.(loads?|Unpickler)\(|(^|[^.\w])(eval|exec|compile)\(|)"
                  R"(from \w*pickle import|shelve|runpy)"),
       {"packaging/python/dlaunch/_objects.py", "packaging/python/dlaunch/jobs/run.py",
        "packaging/python/dlaunch/jobs/worker.py"}}};
  for (const Kind& kind : kinds) {
    std::set<std::string> seen;
    const auto files = files_of(product, kind.extensions);
    CHECK_FALSE(files.empty());
    for (const auto& file : files) {
      const std::string path = fs::relative(file, root).string();
      const auto lines = found_in(file, kind.loads);
      if (lines.empty()) continue;
      seen.insert(path);
      CHECK_MESSAGE(kind.exceptions.contains(path), path << ": " << lines.front());
    }
    CHECK(seen == kind.exceptions);  // None too many.
  }
}

TEST_CASE("what proves a secret is compared by the two functions that take the same time always") {
  const std::regex by_hand(
      R"(\b(\w*(mac|token|secret|binder)|key)s?_?(\.bytes\(\)|\.data\(\))?\s*(==|!=)(?!\s*nullptr)|)"
      R"((==|!=)\s*(\w+(\.|->))?(\w*(mac|token|secret|binder)|key)s?_?(\.bytes\(\))?\s*[;)&|?]|)"
      R"(\b(memcmp|strcmp|equal|compare)\(.*(mac|token|secret|binder|key))");
  // Both tokens are the operators' own file's.
  const std::set<std::string> exceptions = {
      "if (other.token == token) throw wrong(\"the operator \" + other.name + \" has the same "
      "token\");"};
  const std::vector<std::string> folders_with_secrets = {
      "runtime/base/secret",       "runtime/openssl",    "runtime/store/tls",
      "collectives/transport/tcp", "rendezvous/control", "rendezvous/daemon"};
  for (const auto& file : sources(folders_with_secrets)) {
    for (const auto& line : found_in(file, by_hand)) {
      CHECK_MESSAGE(exceptions.contains(line), fs::relative(file, root).string() << ": " << line);
    }
  }
  const auto calls = [](const char* file, const char* what) {
    return found_in(root / file, std::regex(what)).size();
  };
  CHECK(calls("runtime/openssl/library.cpp", R"(return ::CRYPTO_memcmp\()") == 1);
  CHECK(calls("collectives/transport/tcp/proof.cpp", R"(same_mac\()") == 2);
  CHECK(calls("rendezvous/control/operators.cpp", R"(same_token\()") == 2);
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
  for (const auto& file : sources({"runtime", "collectives", "rendezvous", "launcher", "packaging",
                                   "tests", "docs/examples"})) {
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

TEST_CASE("the tests that a page names are there") {
  const std::regex named("`(tests/[A-Za-z0-9_./]+)");
  for (const auto& page : fs::directory_iterator(root / "docs")) {
    if (page.path().extension() != ".md") continue;
    for (const std::string& line : lines_of(page.path())) {
      for (std::sregex_iterator at(line.begin(), line.end(), named), end; at != end; ++at) {
        CHECK_MESSAGE(fs::exists(root / (*at)[1].str()), page.path().filename()
                                                             << " names " << (*at)[1]);
      }
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

// A linker takes one of two types of one name, and all of a program's code then works on that.
TEST_CASE("no two types have the same name in the same namespace") {
  std::map<std::string, std::string> defined;  // A name in full, and its file.
  for (const auto& file : sources(product)) {
    const std::string path = fs::relative(file, root).string();
    std::vector<std::string> namespaces;
    for (const auto& line : lines_of(file)) {
      if (line == "namespace {") {
        namespaces.emplace_back();
      } else if (line.starts_with("namespace ") && line.ends_with(" {")) {
        namespaces.push_back(line.substr(10, line.size() - 12));
      } else if (line.starts_with("}  // namespace") && !namespaces.empty()) {
        namespaces.pop_back();
      }
      const std::string type = defined_type(line);
      if (type.empty() || std::ranges::count(namespaces, "") > 0) continue;
      std::string name;
      for (const auto& each : namespaces) name += each + "::";
      const std::string& first = defined.emplace(name + type, path).first->second;
      CHECK_MESSAGE(first == path, name << type << " is defined in " << first << " and " << path);
    }
  }
  CHECK(defined.size() > 500);
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

TEST_CASE("the C API stands on the public C++ interface, and takes memory from pools") {
  int seen = 0;
  for (const auto& file : sources({"collectives"})) {
    if (file.parent_path().filename() != "c" || file.extension() == ".h") continue;
    ++seen;
    for (const auto& include : includes_of(lines_of(file))) {
      const bool is_own = include.path == "collectives/c/c_api.hpp";
      const bool is_memory = include.path == "runtime/base/pools.hpp";  // No part of any interface.
      CHECK_MESSAGE((include.angled || is_own || is_memory), file.string()
                                                                 << " includes " << include.path);
    }
  }
  CHECK(seen > 5);
}
