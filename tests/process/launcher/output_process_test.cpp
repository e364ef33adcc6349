// The launcher's output, and where it goes: real processes, pipes and a pseudo terminal.
#include "tests/process/nodes.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

/// The launcher, with its standard streams as a shell would direct them.
Job redirected(const std::string& how, std::vector<std::string> arguments) {
  std::vector<std::string> line = {"-c", "exec \"$0\" \"$@\" " + how, dlaunch_path()};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return Job(line, {}, "/bin/sh");
}

/// How many of a rank's "step N" lines do not follow each other.
int out_of_order(const std::string& text, const std::string& prefix, int steps) {
  int wrong = 0, next = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(prefix)) continue;
    wrong += line == prefix + "step " + std::to_string(next) ? 0 : 1;
    next = std::stoi(line.substr(prefix.size() + 5)) + 1;
  }
  return wrong + (next == steps ? 0 : 1);
}

}  // namespace

TEST_CASE("lines come out whole, prefixed, and in each rank's order") {
  constexpr int ranks = 4;
  constexpr int lines_per_rank = 2000;
  const std::string token = unique_token();
  Job job({"--nproc-per-node", std::to_string(ranks), victim(), "lines", token,
           std::to_string(lines_per_rank)});
  CHECK(job.wait().code == 0);
  std::istringstream lines(job.out());
  std::vector<int> next(ranks, 0);
  int torn = 0;
  for (std::string line; std::getline(lines, line);) {
    int prefix = -1, rank = -1, number = -1;
    if (std::sscanf(line.c_str(), "[%d] rank %d line %d ", &prefix, &rank, &number) != 3 ||
        prefix != rank || rank < 0 || rank >= ranks || !line.ends_with(" end") ||
        next[static_cast<std::size_t>(rank)] != number) {
      ++torn;
      continue;
    }
    ++next[static_cast<std::size_t>(rank)];
  }
  CHECK(torn == 0);
  for (const int count : next) CHECK(count == lines_per_rank);
}

TEST_CASE("a line that a rank has begun is not torn by another's") {
  // Rank 1 goes on writing until rank 0 has ended its line, long after what a prompt waits.
  const std::string done = "/tmp/" + unique_token();
  const std::string script = "if [ $RANK = 0 ]; then printf begun-; sleep 0.6; echo ended; : >" +
                             done + "; else while [ ! -e " + done +
                             " ]; do echo other; sleep 0.02; done; fi";
  Job job({"--nproc-per-node", "2", "sh", "-c", script});
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "[1] other\n") > 5);
  CHECK(count(job.out(), "[0] begun-ended\n") == 1);
  CHECK(count(job.out(), "begun-") == 1);
  std::filesystem::remove(done);
}

TEST_CASE("a prompt is seen in a pipe, too, and what a rank has begun is not lost") {
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", "sh", "-c",
           "if [ $RANK = 0 ]; then printf 'name? '; fi; exec " + victim() + " wait " + token});
  CHECK(job.saw("[0] name? "));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(count(job.out(), "name? ") == 1);
}

TEST_CASE("a rank's stdout and stderr keep their order where both go to one place") {
  constexpr int steps = 600;
  const std::string script = "i=0; while [ $i -lt " + std::to_string(steps) +
                             " ]; do echo step $i; i=$((i+1)); echo step $i >&2; i=$((i+1)); done";
  Job job = redirected("2>&1", {"--nproc-per-node", "2", "sh", "-c", script});
  CHECK(job.wait().code == 0);
  CHECK(out_of_order(job.out(), "[0] ", steps) == 0);
  CHECK(out_of_order(job.out(), "[1] ", steps) == 0);
}

TEST_CASE("one place, and a file for each stream: every line is where it belongs") {
  const std::string folder = "/tmp/" + unique_token();
  Job job = redirected("2>&1", {"--nproc-per-node", "2", "--log-dir", folder, "--tee", "3", "sh",
                                "-c", "echo to-out; echo to-err >&2"});
  CHECK(job.wait().code == 0);
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name != "stdout.log" && name != "stderr.log") continue;
    ++files;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    CHECK(text == (name == "stdout.log" ? "to-out\n" : "to-err\n"));
  }
  CHECK(files == 4);
  CHECK(count(job.out(), "] to-out\n") == 2);
  CHECK(count(job.out(), "] to-err\n") == 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what failed is told with the last lines of both streams, where they are one") {
  Job job = redirected("2>&1", {"--nproc-per-node", "2", "sh", "-c",
                                "[ $RANK = 0 ] && exec sleep 1000; echo before; echo reason >&2; "
                                "exit 3"});
  CHECK(job.wait().code == 3);
  CHECK(count(job.out(),
              "  words : its last lines on stdout and stderr\n    | before\n    | reason\n") == 1);
}

TEST_CASE("of progress the last state is written, where there is no terminal") {
  const std::string bar =
      "for i in 10 20 30; do printf '\\r%s%%' $i; sleep 0.15; done; printf '\\r100%%\\n'";
  Job job({"--nproc-per-node", "2", "sh", "-c", bar});
  CHECK(job.wait().code == 0);
  CHECK(job.out().size() == 2 * std::string("[0] 100%\n").size());
  CHECK(count(job.out(), "[0] 100%\n") == 1);
  CHECK(count(job.out(), "[1] 100%\n") == 1);
}

TEST_CASE("progress that does not end is not lost") {
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", victim(), "progress", token});
  REQUIRE(job.saw("READY", 2));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(count(job.err(), "[0]  20%\n") == 1);
  CHECK(count(job.err(), "[1]  20%\n") == 1);
  CHECK(count(job.err(), "10%") == 0);
}

TEST_CASE("the prefix stays when an elastic world shrinks to one") {
  const std::string token = unique_token();
  Nodes nodes("1:2", {victim(), "ticking", token}, {"--rdzv-conf", "last_call_timeout=0"});
  Job& first = nodes.add({"--node-id", "a"});
  CHECK(first.saw("[a:0] place 1 0 1 "));
  Job& second = nodes.add({"--node-id", "b"});
  REQUIRE(first.saw(" 0 2 "));
  second.send(SIGTERM);
  CHECK(second.wait().code == 143);
  REQUIRE(first.saw(" 0 1 ", 2));
  first.send(SIGTERM);
  CHECK(first.wait().code == 143);
  std::istringstream lines(first.out());
  for (std::string line; std::getline(lines, line);) CHECK(line.starts_with("[a:0] "));
}

TEST_CASE("stdin goes to the rank that is asked for, on whatever node") {
  const std::string read = "read word || word=nothing; echo rank $RANK: $word";
  const auto given = [](const std::string& word, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"-c", "echo " + word + " | exec \"$0\" \"$@\"", dlaunch_path()});
    return arguments;
  };
  SUBCASE("by default rank 0") {
    Job job(given("given", {"--nproc-per-node", "2", "sh", "-c", read}), {}, "/bin/sh");
    CHECK(job.wait().code == 0);
    CHECK(count(job.out(), "rank 0: given\n") == 1);
    CHECK(count(job.out(), "rank 1: nothing\n") == 1);
  }
  SUBCASE("none") {
    Job job(given("given", {"--stdin", "none", "sh", "-c", read}), {}, "/bin/sh");
    CHECK(job.wait().code == 0);
    CHECK(job.out() == "rank 0: nothing\n");
  }
  SUBCASE("of two nodes") {
    const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
    const auto line = [&](const std::string& word, const std::string& rank) {
      return given(
          word, {"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", endpoint, "--node-id",
                 word, "--node-rank", rank, "--stdin", "3", "sh", "-c", read});
    };
    Job a(line("a", "0"), {}, "/bin/sh");
    Job b(line("b", "1"), {}, "/bin/sh");
    CHECK(a.wait().code == 0);
    CHECK(b.wait().code == 0);
    CHECK(count(a.out() + b.out(), ": nothing\n") == 3);
    CHECK(count(b.out(), "rank 3: b\n") == 1);
  }
  SUBCASE("a rank that there is not") {
    Job job({"--nproc-per-node", "2", "--stdin", "2", "true"});
    CHECK(job.wait().code == 64);
    CHECK(job.err() == "dlaunch: --stdin 2: there is no rank 2, the last one is 1\n");
  }
}

TEST_CASE("when nobody reads stdout any more, the workers learn it as they would without us") {
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", victim(), "lines", token, "200000"});
  REQUIRE(job.saw("line 10 "));
  job.close_stdout();
  CHECK(job.wait().code == 128 + SIGPIPE);
  CHECK(job.err().find("\n  why   : the reader of dlaunch's stdout has gone") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("the reader of a worker that writes straight to our stdout has gone: that is told") {
  const std::string token = unique_token();
  Job job({victim(), "lines", token, "200000"});
  REQUIRE(job.saw("line 10 "));
  job.close_stdout();
  CHECK(job.wait().code == 128 + SIGPIPE);
  CHECK(job.err().find("\n  why   : the reader of dlaunch's stdout has gone") != std::string::npos);
  CHECK(all_gone(token));
}

namespace {

constexpr std::string_view full_stdout = "dlaunch: stdout: cannot write: No space left on device";

}  // namespace

TEST_CASE("a full stdout is said once, costs no worker its pipe, and gives a code") {
  // More than the pipes hold, so that a worker that nobody reads would not end.
  const std::string script = "seq 100000 && echo rank $RANK got through >&2";
  Job job = redirected(">/dev/full", {"--standalone", "--nproc-per-node", "2", "sh", "-c", script});
  CHECK(job.wait().code == 70);
  CHECK(count(job.err(), full_stdout) == 1);
  CHECK(count(job.err(), "got through") == 2);
  CHECK(job.err().find("FAILED") == std::string::npos);
}

TEST_CASE("a worker that fails gives the code, also where stdout is full") {
  Job job = redirected(">/dev/full",
                       {"--standalone", "--nproc-per-node", "2", "sh", "-c", "echo $RANK; exit 3"});
  CHECK(job.wait().code == 3);
  CHECK(count(job.err(), full_stdout) == 1);
}

TEST_CASE("a full stderr gives a code, and stdout is whole") {
  Job job = redirected("2>/dev/full", {"--standalone", "--nproc-per-node", "2", "sh", "-c",
                                       "echo out; echo err >&2; echo end"});
  CHECK(job.wait().code == 70);
  CHECK(count(job.out(), "end\n") == 2);
}

TEST_CASE("a log that cannot be written ends there, says so, and gives a code") {
  const std::string folder = "/tmp/" + unique_token();
  const std::string script = "seq 100000; echo all said >&2";
  // Files of up to 512 bytes; pipes have no such limit.
  Job job({"-c", "ulimit -f 1; exec \"$0\" \"$@\"", dlaunch_path(), "--standalone", "--log-dir",
           folder, "--tee", "1", "sh", "-c", script},
          {}, "/bin/sh");
  CHECK(job.wait().code == 70);
  CHECK(count(job.err(), "stdout.log: File too large; the log of rank 0 ends here") == 1);
  CHECK(count(job.err(), "all said") == 1);
  CHECK(job.out().ends_with("\n100000\n"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("what dlaunch itself prints on a full stdout is missed, and it says so") {
  for (const std::string option : {"--help", "--version", "--dry-run"}) {
    CAPTURE(option);
    Job job = redirected(">/dev/full", {option, "true"});
    CHECK(job.wait().code == 70);
    CHECK(job.err() == "dlaunch: cannot write: No space left on device\n");
  }
}

TEST_CASE("a worker alone: --redirects and --tee take what it writes") {
  for (const std::string option : {"--redirects", "--tee"}) {
    CAPTURE(option);
    const std::string folder = "/tmp/" + unique_token();
    Job job(
        {"--standalone", "--log-dir", folder, option, "3", "sh", "-c", "seq 100000; echo err >&2"});
    CHECK(job.wait().code == 0);
    std::string out, err;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      std::ostringstream text;
      text << in.rdbuf();
      (entry.path().filename() == "stdout.log" ? out : err) = text.str();
    }
    CHECK(out.ends_with("\n99999\n100000\n"));
    CHECK(err == "err\n");
    const bool teed = option == "--tee";
    CHECK(job.out() == (teed ? out : ""));
    CHECK(job.err() == (teed ? err : ""));
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("lines with certain words go to files that all ranks share") {
  const std::string folder = "/tmp/" + unique_token();
  const std::string script =
      "echo an apple $RANK; echo nothing; echo an orange >&2; printf 'apple, no end'; exit 1";
  Job job({"--nproc-per-node", "3", "--log-dir", folder, "--max-restarts", "1",
           "--duplicate-stdout-filters", "apple,no,,thing", "--duplicate-stderr-filters=orange",
           "sh", "-c", script});
  CHECK(job.wait().code == 1);
  CHECK(job.out().find("nothing") != std::string::npos);  // The console has all, as ever.
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("filtered_")) continue;
    ++files;
    std::ifstream in(entry.path());
    std::multiset<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.insert(line);
    CAPTURE(entry.path());
    if (name == "filtered_stderr.log") {
      // The first rank's failure may end the others before they have said all.
      CHECK(lines.size() <= 3);
      CHECK(lines.size() >= 1);
      for (const auto& line : lines) CHECK(line.substr(9) == "]:an orange");
    } else {
      CHECK(name == "filtered_stdout.log");
      CHECK(lines.size() <= 6);
      CHECK(lines.size() >= 2);
      for (const auto& line : lines) {
        const std::string rank = line.substr(8, 1);
        CHECK((line == "[default" + rank + "]:an apple " + rank ||
               line == "[default" + rank + "]:apple, no end"));
      }
    }
  }
  CHECK(files == 4);  // Two attempts.
  std::filesystem::remove_all(folder);
}

TEST_CASE("two jobs at once: the second takes another port and says so") {
  const std::string token = unique_token();
  const Job::Environment usual_port = {{"DLAUNCH_MASTER_PORT", ""}};
  Job first({"--nproc-per-node", "2", victim(), "port", token}, usual_port);
  REQUIRE(first.saw("port ", 2));
  Job second({"--nproc-per-node", "2", victim(), "port", token}, usual_port);
  REQUIRE(second.saw("] port ", 2));
  CHECK(first.out() != second.out());
  CHECK(second.err().find("dlaunch: ") == 0);
  CHECK(second.err().find("uses port ") != std::string::npos);
  first.send(SIGTERM);
  second.send(SIGTERM);
  CHECK(first.wait().code == 143);
  CHECK(second.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("an insisted port that is busy is an error that names its owner") {
  const std::string token = unique_token();
  Job first({"--standalone", "--nproc-per-node", "2", victim(), "port", token});
  REQUIRE(first.saw("] port ", 2));
  const std::string port = first.out().substr(
      first.out().find("port ") + 5, first.out().find('\n') - first.out().find("port ") - 5);
  Job second({"--master-port", port, "--nproc-per-node", "2", victim(), "port", token});
  CHECK(second.wait().code == 69);
  CHECK(second.err().find(port) != std::string::npos);
  CHECK(second.err().find("(dlaunch)") != std::string::npos);
  first.send(SIGTERM);
  CHECK(first.wait().code == 143);
}

}  // namespace dlaunch::process_test
