#include "launcher/cli/read_request.hpp"
#include "launcher/request/option_table.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch::launcher;

TEST_CASE("--help fits 80 columns and names every option under its section") {
  const std::string help = option_table().help();
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
    CHECK_FALSE(line.ends_with(' '));
  }
  for (const auto* option : option_table().options()) {
    CAPTURE(option->flag);
    CHECK(help.find("--" + std::string(option->flag)) != std::string::npos);
  }
}

TEST_CASE("--help begins as people expect") {
  CHECK(option_table().help().starts_with(R"(Usage: dlaunch [options] [--] program [args...]

Starts a program several times and lets the processes find each other.
A program named *.py runs under $PYTHON_EXEC or python3.
dlaunch bench measures the collectives; dlaunch bench --help says how.

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
