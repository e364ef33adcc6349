#include "launcher/cli/read_request.hpp"
#include "launcher/request/option_table.hpp"
#include "launcher/request/subcommand_words.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

void check_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
    CHECK_FALSE(line.ends_with(' '));
  }
}

}  // namespace

TEST_CASE("--help all fits 80 columns and names every option under its section") {
  const std::string help = option_table().help();
  check_lines(help);
  for (const auto* option : option_table().options()) {
    CAPTURE(option->flag);
    CHECK(help.find("--" + std::string(option->flag)) != std::string::npos);
  }
}

TEST_CASE("--help all begins as people expect") {
  CHECK(option_table().help().starts_with(R"(Usage: dlaunch [options] [--] program [args...]

Starts a program several times and lets the processes find each other.
A program named *.py runs under $PYTHON_EXEC or python3.

Program:
  -m, --module                The program is a Python module, run by python -m.
      --no-python             Run a .py program as it is, without the
                              interpreter.
      --run-path              Run the program under Python, whatever its name.

Workers:
      --nproc-per-node N|cpu|gpu|auto
                              Workers on this node: a number, one per usable
                              core, one per GPU, or per GPU where there is one,
                              else per core. [1]
)"));
}

TEST_CASE("--help has everyday lines that can be read, all subcommands and all groups") {
  const auto brief = option_table().help_asked({}, "");
  CHECK(brief.code == 0);
  check_lines(brief.text);
  CHECK(std::count(brief.text.begin(), brief.text.end(), '\n') < 40);
  std::istringstream lines(brief.text);
  LaunchContext start;
  start.directory = "/";
  int examples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  dlaunch ")) continue;
    ++examples;
    // What is behind it says what it does.
    std::istringstream text(line.substr(0, line.find("   ", 2)));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    words.erase(words.begin());
    CAPTURE(line);
    CHECK(std::holds_alternative<JobSpec>(read_job(words, {}, {}, start)));
  }
  CHECK(examples == 7);
  for (const auto& [name, what] : subcommand_words()) {
    CHECK(brief.text.find("\n  " + std::string(name) + " ") != std::string::npos);
    CHECK(brief.text.find(what) != std::string::npos);
  }
}

TEST_CASE("--help has each group that it names") {
  const std::string all = option_table().help();
  std::string groups;
  for (const std::string group :
       {"program", "workers", "meeting", "failure", "output", "configuration"}) {
    const auto some = option_table().help_asked({}, group);
    CHECK(some.code == 0);
    CHECK(all.find(some.text) != std::string::npos);
    CHECK(some == option_table().help_asked(group, "train.py"));
    groups += some.text + (group == "configuration" ? "" : "\n");
  }
  // Together they are all.
  CHECK(all.find(groups) != std::string::npos);
  CHECK(option_table().help_asked({}, "train.py") == option_table().help_asked({}, ""));
  CHECK(option_table().help_asked("train", "").code == 64);
}

TEST_CASE("docs/torchrun.md has each of torchrun's options, and says which have no effect") {
  std::ifstream page(DLAUNCH_SOURCE_DIR "/docs/torchrun.md");
  std::map<std::string, bool> works;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `--")) continue;
    works[line.substr(5, line.find('`', 5) - 5)] =
        line.find("| without effect |") == std::string::npos;
  }
  std::map<std::string, bool> expected;
  for (const auto* option : option_table().options()) {
    if (option->traits.pet) expected[std::string(option->flag)] = option->no_effect.empty();
  }
  CHECK(works == expected);
}
