// How the launcher ends, restarts and stops: real processes.
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

/// The bytes that torch sends: its greeting, then of rank 1 SET of a value of 64 GiB.
const std::string oversized_client =
    "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; "
    "printf '\\x00\\xce\\xf7\\x85\\x3c' >&3; "
    "printf '\\x07' >&3; head -c 8 <&3 | wc -c; "
    "if [ $RANK = 1 ]; then "
    "printf '\\x01\\x02\\0\\0\\0\\0\\0\\0\\0/k\\0\\0\\0\\0\\x10\\0\\0\\0' >&3; "
    "cat <&3; exit 7; fi; cat <&3";

std::vector<std::string> victims(int count, const std::string& mode, const std::string& token,
                                 const std::string& number = "0",
                                 std::vector<std::string> options = {}) {
  options.insert(options.end(), {"--nproc-per-node", std::to_string(count), victim(), mode, token});
  options.push_back(number);
  return options;
}

}  // namespace

TEST_CASE("a worker's own code is the launcher's, 128 + n for a signal") {
  const std::string token = unique_token();
  CHECK(Job(victims(2, "exit", token, "0")).wait().code == 0);
  CHECK(Job(victims(1, "exit", token, "42")).wait().code == 42);
  CHECK(Job(victims(3, "exit", token, "7")).wait().code == 7);
  CHECK(Job(victims(1, "raise", token, std::to_string(SIGKILL))).wait().code == 137);
  CHECK(Job(victims(2, "raise", token, std::to_string(SIGTERM))).wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("what cannot be started is said in one sentence, before anything else is started") {
  Job missing({"--standalone", "--nproc-per-node", "4", "/no/such/program"});
  CHECK(missing.wait().code == 127);
  CHECK(missing.err() == "dlaunch: there is no file '/no/such/program'\n");
  Job not_in_path({"no-such-program-anywhere"});
  CHECK(not_in_path.wait().code == 127);
  CHECK(not_in_path.err() == "dlaunch: there is no program 'no-such-program-anywhere' in PATH\n");
  Job not_executable({"--nproc-per-node", "2", "/etc/passwd"});
  CHECK(not_executable.wait().code == 126);
  CHECK(not_executable.err().find("'/etc/passwd' cannot be executed") != std::string::npos);
  Job directory({"/"});
  CHECK(directory.wait().code == 126);
  Job no_script({"--nproc-per-node", "2", "/no/such/script.py"});
  CHECK(no_script.wait().code == 127);
}

TEST_CASE("what is neither a program for this machine nor a script is not fed to a shell") {
  const std::string folder = "/tmp/" + unique_token();
  std::filesystem::create_directory(folder);
  // The head of a program for a machine that this is not, which is all that is looked at.
  std::string elf(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  elf.resize(64, '\0');
  elf[16] = 2;
#ifdef __aarch64__
  elf[18] = 62;
  const std::string machine = "x86-64";
#else
  elf[18] = static_cast<char>(183);
  const std::string machine = "AArch64";
#endif
  const struct {
    std::string name, content, sentence;
    int code;
  } rows[] = {
      {"elf", elf, "it is a program for another machine (" + machine + ") or kernel", 126},
      {"zeros", std::string("\1\0\2\n", 4), "it is neither a program for this machine nor a script",
       126},
      {"bad", "#!" + folder + "/elf\n", "the interpreter it names is no program for this machine",
       126},
      {"cut",
       "\x7f"
       "ELF",
       "it is a program for another machine (unknown) or kernel", 126},
      {"later", std::string("exit 5\n\0", 8),
       "it is neither a program for this machine nor a script", 126},
      {"bell", "exit 5 # \a\n", "it is neither a program for this machine nor a script", 126},
      {"deleted", "exit 5 # \x7f\n", "it is neither a program for this machine nor a script", 126},
      {"script", "exit 5\n", "", 5},
      {"colours", "exit 5 # \t\f\x1b[0m \xc3\xa9\r\n\a\n", "", 5},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const std::string path = folder + "/" + row.name;
    std::ofstream(path, std::ios::binary) << row.content;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    Job job({"--standalone", path});
    CHECK(job.wait().code == row.code);
    if (row.sentence.empty()) continue;
    CHECK(job.err() == "dlaunch: '" + path + "' cannot be executed: " + row.sentence + "\n");
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a signal that was ignored when dlaunch was started stays so, for it and the workers") {
  // HUP comes before USR1, and a front that minds both takes them in that order.
  const std::string script =
      "trap 'echo went on; exit 0' USR1; echo READY; while :; do sleep 0.01; done";
  for (const std::string workers : {"1", "2"}) {
    CAPTURE(workers);
    Job job({"--ignore-signal=HUP", "--ignore-signal=INT", dlaunch_path(), "--standalone",
             "--nproc-per-node", workers, "sh", "-c", script},
            {}, "env");
    REQUIRE(job.saw("READY", std::stoi(workers)));
    job.send(SIGHUP);
    job.send(SIGINT);
    job.send(SIGUSR1);
    CHECK(job.wait().code == 0);
    CHECK(count(job.out(), "went on") == std::stoi(workers));
  }
}

TEST_CASE("the workers ignore what dlaunch was told to, and nothing else") {
  const auto ignored = [](std::vector<std::string> signals) {
    std::vector<std::string> line = {"--default-signal"};
    for (const auto& name : signals) line.push_back("--ignore-signal=" + name);
    line.insert(line.end(), {dlaunch_path(), "--standalone", "cat", "/proc/self/status"});
    Job job(line, {}, "env");
    CHECK(job.wait().code == 0);
    const auto at = job.out().find("SigIgn:\t");
    REQUIRE(at != std::string::npos);
    return std::stoull(job.out().substr(at + 8, 16), nullptr, 16);
  };
  const auto bit = [](int number) { return 1ull << (number - 1); };
  CHECK(ignored({}) == 0);
  CHECK(ignored({"HUP", "PIPE", "CHLD", "USR2"}) ==
        (bit(SIGHUP) | bit(SIGPIPE) | bit(SIGCHLD) | bit(SIGUSR2)));
  CHECK(ignored({"CHLD"}) == bit(SIGCHLD));
}

TEST_CASE("a PyTorch client beyond a limit is named, with its key and the limit") {
  Job job({"--standalone", "--nproc-per-node", "2", "bash", "-c", oversized_client});
  CHECK(job.wait().code == 7);
  INFO(job.err());
  const std::string what =
      "PyTorch's store has closed its connection, for a value for '/k' of 68719476736 bytes; the "
      "limit is 33554432\n";
  CHECK(count(job.err(), what) == 1);
  const auto at = job.err().find("dlaunch: rank 1 (pid ");
  CHECK(at != std::string::npos);
}

TEST_CASE("a PyTorch client beyond a limit is named where it left its worker's group") {
  Job job({"--standalone", "--nproc-per-node", "2", "setsid", "--wait", "bash", "-c",
           oversized_client});
  CHECK(job.wait().code == 7);
  INFO(job.err());
  CHECK(job.err().find("dlaunch: rank 1 (pid ") != std::string::npos);
}

TEST_CASE("a PyTorch client beyond a limit is named where another agent of this host started it") {
  Nodes nodes("2", {"bash", "-c", oversized_client});
  Job& a = nodes.add({"--node-id", "a"});
  Job& b = nodes.add({"--node-id", "b"});
  CHECK(a.wait().code == 7);
  CHECK(b.wait().code == 7);
  INFO(a.err() << b.err());
  CHECK(a.err().find("dlaunch: rank 1 (pid ") != std::string::npos);
}

TEST_CASE("one failure ends the others, and is told with its reason") {
  const std::string token = unique_token();
  Job job(victims(4, "fail", token, "2"));
  CHECK(job.wait().code == 3);
  CHECK(job.err().find("the reason of rank 2") != std::string::npos);
  CHECK(job.err().find("\n  cause : rank 2 ") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("restarts go up to the limit, then the failure stands") {
  const std::string token = unique_token();
  Job job(victims(2, "attempts", token, "0", {"--max-restarts", "2"}));
  CHECK(job.wait().code == 5);
  // The sibling may be ended before it speaks; at least one rank of each attempt fails by itself.
  for (const char* attempt : {"attempt 0", "attempt 1", "attempt 2"}) {
    CHECK(job.out().find(attempt) != std::string::npos);
  }
  CHECK(job.out().find("attempt 3") == std::string::npos);
  CHECK(job.err().find(" exited with 5; all workers are started again (restart 2 of 2)") !=
        std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("a job whose workers fail again and again pauses, and a stop signal ends the pause") {
  const std::string token = unique_token();
  Job job(victims(1, "attempts", token, "0",
                  {"--max-restarts", "1000000", "--restart-backoff", "600"}));
  REQUIRE(job.saw("restarts in 600 s: 2 failures within "));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(job.out().find("attempt 1") != std::string::npos);
  CHECK(job.out().find("attempt 2") == std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("a short pause is over by itself, and only restarts within the window count") {
  const std::string token = unique_token();
  Job job(victims(1, "attempts", token, "0",
                  {"--max-restarts", "3", "--restart-window", "1h", "--restart-backoff", "1ms"}));
  CHECK(job.wait().code == 5);
  CHECK(job.out().find("attempt 3") != std::string::npos);
  CHECK(job.out().find("attempt 4") == std::string::npos);
  CHECK(job.err().find("restarts in 0.002 s: 3 failures within ") != std::string::npos);
  CHECK(job.err().find("(restart 3, at most 3 within 3600 s)") != std::string::npos);
  CHECK(job.err().find(" FAILED after 3 restarts (at most 3 within 3600 s)") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("the check runs before each start, and one that fails or hangs starts nothing") {
  const std::string token = unique_token();
  Job fit(victims(1, "attempts", token, "0",
                  {"--max-restarts", "1", "--node-check", "echo checked >&2; test $PPID != 0"}));
  CHECK(fit.wait().code == 5);
  CHECK(fit.out().find("attempt 1") != std::string::npos);
  CHECK(fit.err().find("checked") == std::string::npos);
  Job unfit(victims(1, "wait", token, "0", {"--node-check", "echo no GPU; kill -9 $$"}));
  CHECK(unfit.wait().code == 79);
  CHECK(unfit.err().find(
            "this node is not fit for work: the check (--node-check) killed by SIGKILL: no "
            "GPU\n") != std::string::npos);
  Job hangs(victims(
      1, "wait", token, "0",
      {"--node-check", "echo $0; exec tail -f /dev/null", "--node-check-timeout", "300ms"}));
  CHECK(hangs.wait().code == 79);
  CHECK(hangs.err().find(" did not end within 300 ms: ") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE(
    "the deadline is told to workers that catch the signal, and then stops the job in order") {
  const std::string token = unique_token();
  Job job(victims(2, "stubborn", token, "0",
                  {"--deadline", "5", "--deadline-notice", "2", "--shutdown-timeout", "1"}));
  REQUIRE(job.saw("READY", 2));
  REQUIRE(job.saw("got " + std::to_string(SIGUSR1), 2));
  CHECK(job.wait().code == 75);
  INFO(job.err());
  CHECK(job.err().find("dlaunch: the job ends in ") != std::string::npos);
  CHECK(job.err().find("Z; ranks 0-1 are told by SIGUSR1\n") != std::string::npos);
  CHECK(job.err().find("Z has come: the workers are stopped\n") != std::string::npos);
  CHECK(count(job.out(), "got " + std::to_string(SIGTERM)) == 2);
  CHECK(job.err().find("FAILED") == std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("the signal of the deadline ends no worker that does not expect it") {
  const std::string token = unique_token();
  // The shell does not catch it, and what it runs in the first rank does.
  Job job({"--nproc-per-node", "2", "--deadline", "5", "--deadline-notice", "2", "sh", "-c",
           "if test $RANK = 0; then " + victim() + " stubborn " + token + "; else " + victim() +
               " wait " + token + "; fi; echo over"});
  REQUIRE(job.saw("READY", 2));
  REQUIRE(job.saw("got " + std::to_string(SIGUSR1)));
  REQUIRE(job.saw("; rank 0 is told by SIGUSR1"));
  REQUIRE(job.saw(" has come: the workers are stopped"));
  CHECK(job.out().find("over") == std::string::npos);
  job.send(SIGTERM);
  job.send(SIGTERM);
  CHECK(job.wait().code == 75);
  CHECK(all_gone(token));
}

TEST_CASE("a job that ends before its deadline ends as it would") {
  const std::string token = unique_token();
  CHECK(Job(victims(2, "exit", token, "7", {"--deadline", "1h"})).wait().code == 7);
  CHECK(Job(victims(1, "exit", token, "0", {"--deadline", "1h"})).wait().code == 0);
  Job told({"sh", "-c", "test $DLAUNCH_WORKER_DEADLINE = 9000000000"},
           {{"DLAUNCH_DEADLINE", "@9000000000"}});
  CHECK(told.wait().code == 0);
  Job untold({"sh", "-c", "test -z \"$DLAUNCH_WORKER_DEADLINE\""});
  CHECK(untold.wait().code == 0);
  // Slurm's end is ten seconds later; one that is past counts for nothing.
  Job slurm({"sh", "-c", "test $DLAUNCH_WORKER_DEADLINE = 4000000000"},
            {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", "4000000010"}});
  CHECK(slurm.wait().code == 0);
  Job stale(victims(1, "exit", token, "3"),
            {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", "1000000010"}});
  CHECK(stale.wait().code == 3);
  CHECK(stale.err().find("the scheduler's end of the job, 2001-09-09T01:46:40Z, is past") !=
        std::string::npos);
}

TEST_CASE("a deadline that is past starts nothing, and one ends a pause before a restart") {
  const std::string token = unique_token();
  Job past(victims(1, "wait", token, "0", {"--deadline", "2001-09-09T01:46Z"}));
  CHECK(past.wait().code == 75);
  CHECK(past.out().find("READY") == std::string::npos);
  Job pausing(victims(1, "attempts", token, "0",
                      {"--max-restarts", "9", "--restart-backoff", "600", "--deadline", "4"}));
  CHECK(pausing.wait().code == 75);
  CHECK(pausing.out().find("attempt 1") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("a check of the node that takes long is told of, once") {
  Job job(victims(1, "exit", unique_token(), "0", {"--node-check", "sleep 7"}));
  CHECK(job.wait().code == 0);
  CHECK(count(job.err(),
              "dlaunch: the check of this node (--node-check) runs, for 60 s at most\n") == 1);
}

TEST_CASE("after a failure it is told who still runs, and a user who then stops the job") {
  const std::string token = unique_token();
  const testing::TemporaryFolder folder;
  const std::string pipe = folder.path() / "deaf";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  // Rank 0 fails when the other one hears no signal any more.
  Job job({"--nproc-per-node", "2", "sh", "-c",
           "if test $RANK = 0; then read deaf <" + pipe +
               "; exit 3; fi; trap '' TERM INT; echo deaf >" + pipe +
               "; while :; do sleep 1; done; : " + token});
  REQUIRE(job.saw("dlaunch: stopping: rank 1 still runs; it is killed in 2"));
  job.send(SIGINT);
  REQUIRE(job.saw("dlaunch: stopping: rank 1 still runs; Ctrl-C again kills it, or wait "));
  job.send(SIGINT);
  CHECK(job.wait().code == 3);
  CHECK(count(job.err(), "stopping: ") == 2);
  CHECK(all_gone(token));
}

TEST_CASE("a stop signal ends the check, and the job") {
  const std::string token = unique_token();
  // By our own stderr, since its output is kept.
  Job job(victims(1, "wait", token, "0",
                  {"--node-check", "echo CHECKING > /proc/$PPID/fd/2; exec tail -f /dev/null"}));
  REQUIRE(job.saw("CHECKING"));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("a stop signal reaches every worker, and the launcher ends with 128 + n") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const std::string token = unique_token();
    Job job(victims(2, "wait", token));
    REQUIRE(job.saw("READY", 2));
    job.send(number);
    CHECK(job.wait().code == 128 + number);
    CHECK(all_gone(token));
  }
}

TEST_CASE("other signals are handed on") {
  const std::string token = unique_token();
  Job job(victims(2, "stubborn", token));
  REQUIRE(job.saw("READY", 2));
  job.send(SIGUSR1);
  CHECK(job.saw("got " + std::to_string(SIGUSR1), 2));
  job.send(SIGUSR2);
  CHECK(job.saw("got " + std::to_string(SIGUSR2), 2));
  job.send(SIGWINCH);
  CHECK(job.saw("got " + std::to_string(SIGWINCH), 2));
  job.send(SIGKILL);
  CHECK(all_gone(token));
}

TEST_CASE("a second stop signal kills what ignored the first") {
  const std::string token = unique_token();
  Job job(victims(2, "stubborn", token, "0", {"--shutdown-timeout", "600"}));
  REQUIRE(job.saw("READY", 2));
  job.send(SIGTERM);
  REQUIRE(job.saw("got " + std::to_string(SIGTERM), 2));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("the shutdown timeout kills what ignores SIGTERM") {
  const std::string token = unique_token();
  Job job(victims(2, "stubborn", token, "0", {"--shutdown-timeout", "100ms"}));
  REQUIRE(job.saw("READY", 2));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(job.err().find("killing what still runs") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("a signal to launcher and agent at once, as service managers send it, is one signal") {
  const std::string token = unique_token();
  Job job(victims(1, "stubborn", token, "0", {"--shutdown-timeout", "600"}));
  REQUIRE(job.saw("READY", 1));
  REQUIRE(::kill(job.agent(), SIGTERM) == 0);
  job.send(SIGTERM);
  REQUIRE(job.saw("got " + std::to_string(SIGTERM), 1));
  job.send(SIGUSR1);  // Arrives after the other two: the worker still lives.
  CHECK(job.saw("got " + std::to_string(SIGUSR1), 1));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("looking for processes while others end is no error") {
  const std::jthread others([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      ::waitpid(child, nullptr, 0);
    }
  });
  const std::string token = unique_token();
  for (int look = 0; look < 1000; ++look) REQUIRE(processes_with(token).empty());
}

TEST_CASE("a umask that takes the owner's rights takes none of dlaunch's own folders") {
  const testing::TemporaryFolder folder;
  const std::string in = folder.path().string();
  const std::string rank =
      "stat -c '%a %n' " + in + "/dlaunch " + in + "/dlaunch/* " + in + "/run/*";
  std::filesystem::create_directory(folder.path() / "run");
  Job job(
      {"-c", "umask 777; exec " + dlaunch_path() + " --nproc-per-node 2 sh -c \"" + rank + "\""},
      {{"XDG_RUNTIME_DIR", in}, {"TMPDIR", in + "/run"}}, "sh");
  CHECK(job.wait().code == 0);
  CHECK_MESSAGE(count(job.out(), "] 700 " + in) == 6, job.out() << job.err());
  CHECK(std::filesystem::is_empty(folder.path() / "dlaunch"));
  CHECK(std::filesystem::is_empty(folder.path() / "run"));
}

TEST_CASE("success leaves nothing behind either") {
  const std::string token = unique_token();
  Job job(victims(3, "daemon", token));
  CHECK(job.wait().code == 0);
  CHECK(all_gone(token));
}

}  // namespace dlaunch::process_test
