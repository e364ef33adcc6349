// A worker alone keeps the terminal; several leave it to the launcher.
#include "tests/process/launcher/terminal.hpp"

#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <sys/wait.h>

namespace dlaunch::process_test {

using testing::contains;

namespace {

/// Without colours.
std::string plain(std::string text) {
  for (auto at = text.find("\x1b["); at != std::string::npos; at = text.find("\x1b[", at)) {
    text.erase(at, text.find('m', at) + 1 - at);
  }
  return text;
}

}  // namespace

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

TEST_CASE("of several workers rank 0 reads from the terminal, with its line editing") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "3", victim(), "terminal", token});
  REQUIRE(terminal.saw("[0] tty yes no no background"));
  CHECK(terminal.saw("[1] tty no no no background"));
  CHECK(terminal.saw("[2] tty no no no background"));
  terminal.type("helxo\x7f\x7flo\n");
  CHECK(terminal.saw("read hello\r\n"));
  terminal.type("again\n");
  CHECK(terminal.saw("read again\r\n"));
  terminal.type("\x04");  // End of input.
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
  CHECK(all_gone(token));
}

TEST_CASE("another rank reads from the terminal, or none") {
  const std::string token = unique_token();
  std::string rank = "1";
  SUBCASE("rank 1") {}
  SUBCASE("none") { rank = "none"; }
  Terminal terminal(
      {dlaunch_path(), "--nproc-per-node", "2", "--stdin", rank, victim(), "terminal", token});
  CHECK(terminal.saw("[0] tty no no no background"));
  if (rank == "1") {
    CHECK(terminal.saw("[1] tty yes no no background"));
    terminal.type("hello\n");
    CHECK(terminal.saw("read hello\r\n"));
    terminal.type("\x04");
  } else {
    CHECK(terminal.saw("[1] tty no no no background"));
  }
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
}

TEST_CASE("while a rank of several reads, Ctrl-C is for all of them") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "2", "--max-restarts", "5", "sh", "-c",
                     "if [ $RANK = 0 ]; then echo name?; read name; echo hello $name; read name; "
                     "fi; exec " +
                         victim() + " wait " + token});
  REQUIRE(terminal.saw("[0] name?"));
  terminal.type("bob\n");
  REQUIRE(terminal.saw("hello bob\r\n"));
  REQUIRE(terminal.saw("[1] READY"));
  REQUIRE(terminal.is_foreground(terminal.pid()));
  terminal.type("\x03");
  const int status = terminal.next_status();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(all_gone(token));
}

TEST_CASE("each attempt's rank reads on from the terminal") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c",
                     "if [ $RANK = 1 ]; then exec " + victim() + " wait " + token +
                         "; fi; echo $TORCHELASTIC_RESTART_COUNT asks; read word; echo got $word; "
                         "exit $((5 - TORCHELASTIC_RESTART_COUNT))"});
  REQUIRE(terminal.saw("0 asks"));
  terminal.type("one\n");
  REQUIRE(terminal.saw("got one\r\n"));
  REQUIRE(terminal.saw("1 asks"));
  terminal.type("two\n");
  CHECK(terminal.saw("got two\r\n"));
  CHECK(WEXITSTATUS(terminal.next_status()) == 4);
}

TEST_CASE("breakpoint() on a rank of several: the debugger talks with the terminal") {
  const std::string program =
      "import os\n"
      "rank = int(os.environ['RANK'])\n"
      "if rank == 0: breakpoint()\n"
      "print('rank', rank, 'is done')\n";
  if (std::system("python3 -c 'import pdb' 2>/dev/null") != 0) {
    return testing::skipped("there is no python3");
  }
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "2", "python3", "-c", program});
  REQUIRE(terminal.saw("(Pdb) "));
  terminal.type("p 6 * 7\n");
  REQUIRE(terminal.saw("42\r\n"));
  terminal.type("c\n");
  CHECK(terminal.saw("rank 0 is done"));
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
}

TEST_CASE("a terminal that a failed rank has left without echo gets it back") {
  // A shell holds the terminal: with its last process the kernel resets it.
  const std::string token = unique_token();
  const std::string program = "if [ $RANK = 1 ]; then exec " + victim() + " wait " + token +
                              "; fi; stty -echo; echo quiet; read word; kill -KILL $$";
  Terminal terminal({"sh", "-c",
                     "\"$0\" --nproc-per-node 2 sh -c \"$1\"; echo code $?; "
                     "stty -a | tr ' ' '\\n' | grep -x -e echo -e -echo | sed 's/^/now:/'",
                     dlaunch_path(), program});
  REQUIRE(terminal.saw("quiet"));
  CHECK_FALSE(terminal.echoes());
  terminal.type("word\n");
  CHECK(terminal.saw("code 137"));
  CHECK(terminal.saw("now:echo"));
}

TEST_CASE("a rank that reads in a background job waits until the shell brings it back") {
  const std::string token = unique_token();
  Terminal shell({"bash", "--norc", "--noprofile", "-i"});
  shell.type("PS1='$ '; " + dlaunch_path() + " --nproc-per-node 2 " + victim() + " terminal " +
             token + " &\n");
  REQUIRE(shell.saw("wants to use the terminal"));
  shell.type("echo shell-$((40+2))\n");  // The terminal is the shell's.
  REQUIRE(shell.saw("shell-42"));
  shell.type("fg\n");
  REQUIRE(shell.is_background(shell.pid()));
  shell.type("hello\n");
  CHECK(shell.saw("read hello\r\n"));
  shell.type("\x04");
  shell.type("echo again-$((40+2))\n");
  CHECK(shell.saw("again-42"));
  CHECK(all_gone(token));
}

TEST_CASE("a progress bar stays one line on the terminal, below what others write") {
  const std::string bar =
      "if [ $RANK = 0 ]; then for i in 1 2 3 4 5; do printf '\\rstate %s' $i; sleep 0.15; done; "
      "printf '\\rstate 6\\n'; else sleep 0.3; echo line; fi";
  Terminal terminal({dlaunch_path(), "--standalone", "--nproc-per-node", "2", "sh", "-c", bar});
  REQUIRE(terminal.saw("state 6\r\n"));
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
  CHECK(count(terminal.screen(), "\n") == 2);
  CHECK(count(terminal.screen(), "[1] line\r\n") == 1);
  CHECK(count(terminal.screen(), "[0] state 6\r\n") == 1);
  // What stood in the line before is erased, unless so little time was left that nothing did.
  if (count(terminal.screen(), "[0] state 5") > 0) {
    CHECK(count(terminal.screen(), "\r\x1b[K[0] state 6\r\n") == 1);
  }
}

TEST_CASE("Ctrl-C says what still runs, and what another one does") {
  const std::string token = unique_token();
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "2", "sh", "-c",
                     "trap '' INT; echo up; while :; do sleep 1; done", token});
  for (const char* up : {"[0] up", "[1] up"}) REQUIRE(terminal.saw(up));
  terminal.type("\x03");
  CHECK(terminal.saw("dlaunch: stopping: ranks 0-1 still run; Ctrl-C again kills them, or wait "));
  terminal.type("\x03");
  CHECK(WEXITSTATUS(terminal.next_status()) == 130);
  CHECK(all_gone(token));
}

TEST_CASE("on a terminal one row says who still runs, and for how long") {
  const testing::TemporaryFolder folder;
  const std::string token = unique_token(), over = folder.path() / "over";
  Terminal terminal({dlaunch_path(), "--nproc-per-node", "3", "sh", "-c",
                     "trap '' INT; echo up; while :; do sleep 1; test $RANK = 0 && test -e $1 && "
                     "exit 0; done",
                     token, over});
  for (const char* up : {"[0] up", "[1] up", "[2] up"}) REQUIRE(terminal.saw(up));
  terminal.type("\x03");
  REQUIRE(terminal.saw("dlaunch: stopping: ranks 0-2 still run; Ctrl-C again kills them"));
  std::ofstream{over};
  REQUIRE(terminal.saw("dlaunch: stopping: ranks 1-2 still run; Ctrl-C again kills them"));
  terminal.type("\x03");
  CHECK(WEXITSTATUS(terminal.next_status()) == 130);
  CHECK(all_gone(token));
}

TEST_CASE("on a terminal the nodes' meeting is one row, with the time that it has taken") {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const std::vector<std::string> line = {
      "--nnodes", "2", "--rdzv-endpoint", endpoint, "--node-id", "a", "echo", "hi"};
  std::vector<std::string> first = line;
  first.insert(first.begin(), dlaunch_path());
  Terminal terminal(first);
  REQUIRE(terminal.saw("dlaunch: 1 of 2 nodes (a); waiting up to "));
  REQUIRE(terminal.saw(" so far"));
  std::vector<std::string> second = line;
  second[5] = "b";
  Job b(second);
  CHECK(b.wait().code == 0);
  CHECK(contains(b.err(), "dlaunch: "));
  CHECK(terminal.saw("] hi\r\n"));
  CHECK(WEXITSTATUS(terminal.next_status()) == 0);
  // The row has become a line.
  CHECK(count(terminal.screen(), " so far\r\n") == 1);
}

TEST_CASE("each rank's prefix has a colour on a terminal that shows them") {
  const auto shown = [](const std::string& variable) {
    Terminal terminal({"env", "-u", "NO_COLOR", "-u", "CLICOLOR", "-u", "FORCE_COLOR", "-u",
                       "CLICOLOR_FORCE", "TERM=xterm", variable, dlaunch_path(), "--nproc-per-node",
                       "2", "echo", "hi"});
    CHECK(WEXITSTATUS(terminal.next_status()) == 0);
    terminal.saw("no more");  // Reads on to the end.
    return terminal.screen();
  };
  const std::string screen = shown("OTHER=1");
  CHECK(count(screen, "\x1b[36m[0]\x1b[0m hi\r\n") == 1);
  CHECK(count(screen, "\x1b[33m[1]\x1b[0m hi\r\n") == 1);
  for (const char* variable : {"NO_COLOR=1", "CLICOLOR=0", "FORCE_COLOR=0", "TERM=dumb"}) {
    CAPTURE(variable);
    CHECK(count(shown(variable), "[1] hi\r\n") == 1);
  }
}

TEST_CASE("programs are told to use colours where both streams end in the terminal") {
  const auto said = [](std::vector<std::string> variables, std::vector<std::string> options) {
    std::vector<std::string> line = {"env",         "-u", "NO_COLOR",      "-u", "CLICOLOR", "-u",
                                     "FORCE_COLOR", "-u", "CLICOLOR_FORCE"};
    line.insert(line.end(), variables.begin(), variables.end());
    line.push_back(dlaunch_path());
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), {"sh", "-c", "echo ${FORCE_COLOR-no} ${CLICOLOR_FORCE-no} seen"});
    Terminal terminal(line);
    REQUIRE(terminal.saw(" seen"));
    const std::string screen = plain(terminal.screen());
    const auto end = screen.find(" seen");
    const auto begin = screen.rfind("] ", end);
    return screen.substr(begin == std::string::npos ? 0 : begin + 2,
                         end - (begin == std::string::npos ? 0 : begin + 2));
  };
  const std::vector<std::string> two = {"--nproc-per-node", "2"};
  CHECK(said({"TERM=xterm"}, two) == "1 1");
  CHECK(said({"TERM=dumb"}, two) == "no no");
  CHECK(said({"TERM=xterm", "NO_COLOR=1"}, two) == "no no");
  CHECK(said({"TERM=xterm", "FORCE_COLOR=0"}, two) == "0 no");
  // One alone sees the terminal itself; and files are to have no codes in them.
  CHECK(said({"TERM=xterm"}, {}) == "no no");
  const std::string folder = "/tmp/" + unique_token();
  CHECK(said({"TERM=xterm"}, {"--nproc-per-node", "2", "--log-dir", folder, "--tee", "3"}) ==
        "no no");
  std::filesystem::remove_all(folder);
}

}  // namespace dlaunch::process_test
