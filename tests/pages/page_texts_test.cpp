#include "collectives/bench/options.hpp"
#include "launcher/cli/read_request.hpp"
#include "launcher/request/subcommand_words.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "packaging/pages/headers.hpp"
#include "packaging/pages/places.hpp"
#include "packaging/pages/programs.hpp"
#include "packaging/pages/roff.hpp"
#include "rendezvous/daemon/config.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::pages;

namespace {

/// What the program says of an option's value; empty if nothing is wrong with it.
std::string said_of(const std::string& command, std::string_view flag, const std::string& value) {
  std::vector<std::string> line = {"--" + std::string(flag), value};
  const auto text_of = [](const auto& parsed) {
    const auto* exit = std::get_if<EarlyExit>(&parsed);
    return exit == nullptr ? std::string() : exit->text;
  };
  if (command == "dlaunchd") return text_of(rendezvous::read_config(line, {}));
  if (command == "dlaunch bench") return text_of(bench::parse_options(line));
  if (command.starts_with("dlaunch ")) {
    // No job has such a name, so that none is found.
    line.emplace_back("no/job");
    return launcher::find_subcommand(command.substr(command.find(' ') + 1))->run(line).text;
  }
  line.emplace_back("program");
  return text_of(launcher::read_job(line, {}, {}));
}

}  // namespace

TEST_CASE("every subcommand is told in a few words") {
  std::vector<std::string_view> told, made = {"bench", "run"};
  for (const auto& subcommand : launcher::subcommand_words()) told.push_back(subcommand.name);
  CHECK(std::is_sorted(told.begin(), told.end()));
  for (const auto& subcommand : launcher::subcommands()) made.push_back(subcommand.name);
  std::sort(made.begin(), made.end());
  CHECK(told == made);
}

TEST_CASE("the words of a value are those that its option takes") {
  int seen = 0;
  for (const Program& program : programs()) {
    for (const Option* option : program.options->options()) {
      const Value value = value_of(*option);
      CAPTURE(program.command);
      CAPTURE(option->flag);
      for (const auto& word : value.words) {
        const std::string said = said_of(program.command, option->flag, word);
        CHECK_MESSAGE(said.find(in_quotes(word) + " is n") == std::string::npos, said);
        ++seen;
      }
      if (value.kind != Value::Kind::words && value.kind != Value::Kind::list) continue;
      const std::string said = said_of(program.command, option->flag, "nonsense");
      CHECK_MESSAGE(said.find("is none of " + joined(value.words)) != std::string::npos, said);
    }
  }
  CHECK(seen > 40);
}

TEST_CASE("an argument says of what kind a value is") {
  const auto of = [](std::string_view argument) {
    Option option{};
    option.argument = argument;
    return value_of(option);
  };
  using Kind = Value::Kind;
  CHECK(of("").kind == Kind::none);
  CHECK(of("N|MIN:MAX").kind == Kind::any);
  CHECK(of("stop|continue").kind == Kind::words);
  CHECK(of("FILE|-").kind == Kind::file);
  CHECK(of("DIR").kind == Kind::folder);
  CHECK(of("HOST:PORT|off").kind == Kind::host);
  CHECK(of("N|cpu|gpu").words == std::vector<std::string>{"cpu", "gpu"});
}

TEST_CASE("roff comes out letter by letter") {
  CHECK(roff(".a-b\\c'") == "\\&.a\\-b\\ec\\(aq");
  CHECK(roff_of_markdown("see [a-b](c.md) and `x_y`, **d**") ==
        "see a\\-b and \\fBx_y\\fR, \\fBd\\fR");
  CHECK(roff_of_markdown("`a` * b") == "\\fBa\\fR * b");
  const std::string page =
      "## A\n\n| x |\n|---|\n| 1 |\n\n## B\n\n| `a\\|b` | is | |\n|---|---|---|\n"
      "| `c\\|d` | 2 | |\n";
  CHECK(roff_table(page, "B") == ".TP\n\\fBc|d\\fR\n2\n");
  CHECK_THROWS_AS(roff_table(page, "C"), std::runtime_error);
}

TEST_CASE("headers are read in overview") {
  const auto found = declared_in_cpp(
      "namespace a {\n\n/// A thing. More of it.\nclass DLAUNCH_API Thing {\n public:\n"
      "  /// Does.\n  Thing();\n  void act(int x = 1,\n           int y);\n  bool "
      "operator==(int);\n"
      " private:\n  void hidden();\n};\n\n/// Makes one\n/// of them.\ntemplate <class T>\n"
      "DLAUNCH_API Thing made(T value);\n\nint bare();\n\n}  // namespace a\n");
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "Thing");
  CHECK(found[0].about == "A thing");
  CHECK(found[0].calls == std::vector<std::string>{"act"});
  CHECK(found[1].name == "made");
  CHECK(found[1].about == "Makes one of them");
  const auto in_c = declared_in_c(
      "#pragma once\n\n/* One\n * thing. More. */\n"
      "DL_API dl_status dl_do(int x);\nDL_API void dl_end(void);\n");
  CHECK(in_c.about == "One thing");
  CHECK(in_c.calls == std::vector<std::string>{"dl_do", "dl_end"});
}

TEST_CASE("a place that nobody knows is refused") {
  const auto read = [](const std::string&) { return std::string("/// A.\nvoid f();\n"); };
  CHECK(fill_places("a @version@ b\n", read) == "a " DLAUNCH_VERSION " b\n");
  CHECK(fill_places("@classes x.hpp@\nend\n", read) == ".TP\n\\fBf\\fR\nA.\nend\n");
  CHECK_THROWS_AS(fill_places("@nothing@\n", read), std::runtime_error);
  CHECK_THROWS_AS(fill_places("@options dlaunch nothing@\n", read), std::runtime_error);
}
