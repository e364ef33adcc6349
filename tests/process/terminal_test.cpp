// A worker alone keeps the terminal; several leave it to the launcher.
#include "tests/process/terminal.hpp"

#include "tests/process/job.hpp"

#include <csignal>

#include <doctest/doctest.h>
#include <sys/wait.h>

namespace dlaunch::process_test {

TEST_CASE("a worker alone reads, writes and owns the terminal") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), victim(), "terminal", token});
  REQUIRE(terminal.saw("tty yes yes yes foreground"));
  terminal.type("hello\n");
  CHECK(terminal.saw("read hello"));
  terminal.type("\x04");  // End of input.
  const int status = terminal.next_status();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(all_gone(token));
}

TEST_CASE("Ctrl-C in a worker alone stops the job, and nothing is restarted") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--max-restarts", "5", victim(), "wait", token});
  REQUIRE(terminal.saw("READY"));
  terminal.type("\x03");
  const int status = terminal.next_status();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(all_gone(token));
}

TEST_CASE("Ctrl-Z stops the job for the shell, and it goes on in the foreground") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), victim(), "terminal", token});
  REQUIRE(terminal.saw("foreground"));
  CHECK(terminal.foreground() != terminal.pid());
  terminal.type("\x1a");
  const int stopped = terminal.next_status();
  REQUIRE(WIFSTOPPED(stopped));
  CHECK(terminal.foreground() == terminal.pid());  // As before the job.
  REQUIRE(::kill(terminal.pid(), SIGCONT) == 0);
  terminal.type("again\n");
  CHECK(terminal.saw("read again"));
  terminal.type("\x04");
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
  CHECK(all_gone(token));
}

TEST_CASE("Ctrl-C with several workers reaches all of them, a second one kills them") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "3", "--shutdown-timeout", "600", victim(),
                     "stubborn", token});
  for (const char* ready : {"[0] READY", "[1] READY", "[2] READY"}) REQUIRE(terminal.saw(ready));
  CHECK(terminal.foreground() == terminal.pid());
  terminal.type("\x03");
  for (const char* got : {"[0] got 2", "[1] got 2", "[2] got 2"}) CHECK(terminal.saw(got));
  terminal.type("\x03");
  const int status = terminal.next_status();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(all_gone(token));
}

TEST_CASE("of several workers none reads from the terminal") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "2", victim(), "terminal", token});
  CHECK(terminal.saw("[0] tty no no no background"));
  CHECK(terminal.saw("[1] tty no no no background"));
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
}

}  // namespace dlaunch::process_test
