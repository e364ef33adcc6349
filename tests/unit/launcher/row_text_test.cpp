// The launcher's own row on a terminal that is too narrow for its sentence.
#include "launcher/output/row_text.hpp"

#include <doctest/doctest.h>

using dlaunch::launcher::fitting;

TEST_CASE("names in brackets go first, then the last parts, whole") {
  const std::string row =
      "dlaunch: 1 of 3 nodes (gpu-17:1765); missing node ranks 1 and 2; waiting up to 10 min; 5 s "
      "so far";
  CHECK(fitting(row, 0) == row);
  CHECK(fitting(row, row.size() + 1) == row);
  const std::string named =
      "dlaunch: 1 of 3 nodes; missing node ranks 1 and 2; waiting up to 10 min; 5 s so far";
  CHECK(fitting(row, row.size()) == named);
  CHECK(fitting(row, 80) ==
        "dlaunch: 1 of 3 nodes; missing node ranks 1 and 2; waiting up to 10 min");
  CHECK(fitting(row, 40) == "dlaunch: 1 of 3 nodes");
}

TEST_CASE("a first part that does not fit is left to the terminal, and letters count once") {
  CHECK(fitting("dlaunch: waiting", 5) == "dlaunch: waiting");
  CHECK(fitting("caf\u00e9; bar", 9) == "caf\u00e9");
  CHECK(fitting("caf\u00e9; bar", 10) == "caf\u00e9; bar");
  CHECK(fitting("an open ( bracket; and more", 20) == "an open ( bracket");
  CHECK(fitting("", 1).empty());
}
