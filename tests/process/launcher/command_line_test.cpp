// The user's options, seen from outside: real launcher, real workers.
#include "tests/process/job.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <stdlib.h>

namespace fs = std::filesystem;

namespace dlaunch::process_test {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "dlaunch_cli_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("--numa-binding: each worker runs on its cores, and on no others") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  const int cores = CPU_COUNT(&ours);
  for (const std::string mode : {"node", "socket", "core-complex", "exclusive"}) {
    const int count = mode == "exclusive" ? 1 : 2;
    const std::vector<std::string> arguments = {"--standalone",
                                                "--numa-binding",
                                                mode,
                                                "--nproc-per-node",
                                                std::to_string(count),
                                                "sh",
                                                "-c",
                                                "grep Cpus_allowed_list /proc/self/status"};
    auto dry = arguments;
    dry.insert(dry.begin(), "--dry-run");
    Job planned(dry), job(arguments);
    CHECK(planned.wait().code == 0);
    CHECK(job.wait().code == 0);
    std::istringstream lines(job.out());
    int seen = 0;
    for (std::string line; std::getline(lines, line); ++seen) {
      const auto list = line.substr(line.find_last_of('\t') + 1);
      CAPTURE(line);
      CHECK(planned.out().find(", cores " + list) != std::string::npos);
    }
    CHECK(seen == count);
  }
  const std::string many = std::to_string(cores + 1);
  Job job({"--numa-binding=exclusive", "--nproc-per-node", many, "true"});
  CHECK(job.wait().code == 64);
  CHECK(job.err().find("dlaunch: --numa-binding: NUMA node ") == 0);
}

TEST_CASE("help and version go to stdout, with 0") {
  Job help({"--help"});
  CHECK(help.wait().code == 0);
  CHECK(help.out().starts_with("Usage: dlaunch [options] [--] program [args...]\n"));
  CHECK(help.err().empty());
  Job version({"--version"});
  CHECK(version.wait().code == 0);
  CHECK(version.out().starts_with("dlaunch "));
}

TEST_CASE("a wrong command line is one sentence on stderr, with its own code") {
  struct Row {
    std::vector<std::string> arguments;
    int code;
    std::string sentence;
  };
  const std::vector<Row> rows = {
      {{"--nproc-per-nod", "2", "true"},
       64,
       "unknown option --nproc-per-nod; did you mean --nproc-per-node?"},
      {{"--nproc-per-node", "0", "true"}, 64, "--nproc-per-node 0: at least 1 is needed"},
      {{"--nproc-per-node", "2", "--tee", "7:1", "true"},
       64,
       "--tee: there is no local rank 7, with 2 workers the last one is 1"},
      {{"--config", "/no/such/file", "true"},
       78,
       "--config /no/such/file: cannot be read: No such file or directory"},
      {{"--config", "/", "true"}, 78, "--config /: cannot be read: Is a directory"},
      {{"--hostfile", "/no/such/file", "true"},
       64,
       "--hostfile /no/such/file: cannot be read: No such file or directory"},
      {{"--result", "/no/such/folder/file", "true"},
       69,
       "--result /no/such/folder/file: cannot be written: No such file or directory"},
      {{"--flight-file", "/", "true"}, 69, "--flight-file /: cannot be written: Is a directory"},
      {{"--rdzv-id", "a\nb", "true"},
       64,
       "--rdzv-id a?b: only letters, digits and .,:;@%+=_- are allowed"},
      {{"--config", "/dev/zero", "true"}, 78, "--config /dev/zero: cannot be read: File too large"},
      {{"--nnodes=2", "--rdzv-endpoint", "http://head:29400/", "true"},
       64,
       "--rdzv-endpoint http://head:29400/: 'http://head:29400/' is a URL; HOST:PORT is wanted, as "
       "in head:29400"},
      {{"--nnodes=2", "--master-addr", "head:29400", "true"},
       64,
       "--master-addr head:29400: 'head:29400' is neither a host's name nor an address"},
      {{"--rdzv-conf", "join_timout=2", "true"},
       64,
       "--rdzv-conf join_timout=2: there is no join_timout; did you mean join_timeout?"},
      {{"--log-dir", "/dev/null/logs", "true"},
       69,
       "--log-dir: cannot make the directory /dev/null/logs: Not a directory"},
      {{"--result", "/", "sh", "-c", "exit 3"},
       69,
       "--result /: cannot be written: Is a directory"},
      {{"--result", "/dev/full", "true"}, 70, "cannot write /dev/full: No space left on device"},
      {{"--result", "/dev/full", "sh", "-c", "exit 3"}, 3, ""},
  };
  for (const auto& row : rows) {
    Job job(row.arguments);
    CHECK(job.wait().code == row.code);
    CHECK(job.out().empty());
    if (!row.sentence.empty()) CHECK(job.err() == "dlaunch: " + row.sentence + "\n");
  }
  Job misspelt({"true"}, {{"DLAUNCH_MAX_RESTART", "3"}});
  CHECK(misspelt.wait().code == 0);
  CHECK(misspelt.err() ==
        "dlaunch: DLAUNCH_MAX_RESTART has no effect; did you mean DLAUNCH_MAX_RESTARTS?\n");
  Job variable({"true"}, {{"PET_NNODES", "3"}});
  CHECK(variable.wait().code == 64);
  CHECK(variable.err().starts_with("dlaunch: PET_NNODES=3: the nodes need a place to meet"));
}

TEST_CASE("what the workers see: their place, and none of the launcher's own variables") {
  Job job({"--nproc_per_node=2", "--rdzv-id", "job-7", "--max-restarts=1", "sh", "-c",
           "echo $RANK $LOCAL_RANK $WORLD_SIZE $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE "
           "$TORCHELASTIC_MAX_RESTARTS role=$DLAUNCH_ROLE,$ROLE_NAME"},
          {{"DLAUNCH_ROLE", "trainer"}, {"RANK", "77"}});
  CHECK(job.wait().code == 0);
  CHECK(job.out().find("[0] 0 0 2 job-7 True 1 role=,trainer\n") != std::string::npos);
  CHECK(job.out().find("[1] 1 1 2 job-7 True 1 role=,trainer\n") != std::string::npos);
}

TEST_CASE("--log-dir, --redirects, --tee and --result: the files") {
  const Folder folder;
  Job job({"--nproc-per-node=2", "--rdzv-id=job-7", "--log-dir", folder / "logs", "-r", "0:3", "-t",
           "1:1", "--result", folder / "result.json", "sh", "-c",
           "echo out $RANK; echo err $RANK >&2; exit $((RANK * 3))"});
  CHECK(job.wait().code == 3);
  CHECK(job.out() == "[1] out 1\n");
  CHECK(job.err().find("[1] err 1\n") != std::string::npos);

  const auto story = nlohmann::json::parse(text_of(folder / "result.json"));
  CHECK(story["job"] == "job-7");
  CHECK(story["exit_code"] == 3);
  CHECK(story["reason"] == "rank 1 on " + std::string(story["host"]) + " exited with 3");
  REQUIRE(story["attempts"].size() == 1);
  const auto& attempt = story["attempts"][0];
  CHECK(attempt["root_cause"] == 1);
  const auto& workers = attempt["workers"];
  REQUIRE(workers.size() == 2);
  CHECK(workers[1]["end"]["exit_code"] == 3);
  CHECK(workers[1]["end"]["last_stderr_lines"] == nlohmann::json({"err 1"}));
  CHECK(workers[1]["stderr_log"].is_null());

  const std::string log = workers[1]["stdout_log"];
  CHECK(log.starts_with((folder / "logs") + "/job-7_"));
  CHECK(log.ends_with("/attempt_0/1/stdout.log"));
  CHECK(text_of(log) == "out 1\n");
  // Rank 0 may have been ended before it spoke, so its files are there, and never more than this.
  const std::string other = workers[0]["stdout_log"];
  CHECK(std::string("out 0\n").starts_with(text_of(other)));
}

TEST_CASE("without --log-dir it is said where the logs are, and nothing empty is left") {
  const Folder folder;
  const std::string below = folder / "";
  const auto job_in = [&](std::vector<std::string> arguments, int code) {
    auto job = std::make_unique<Job>(std::move(arguments), Job::Environment{{"TMPDIR", below}});
    CHECK(job->wait().code == code);
    return job;
  };
  const auto kept = job_in({"-r", "3", "sh", "-c", "echo hi"}, 0);
  const std::string said = "dlaunch: the workers' logs are in ";
  REQUIRE(kept->err().starts_with(said));
  CHECK(count(kept->err(), said) == 1);
  const std::string path = kept->err().substr(said.size(), kept->err().find('\n') - said.size());
  CHECK(text_of(path + "/attempt_0/0/stdout.log") == "hi\n");
  fs::remove_all(path);

  job_in({"true"}, 0);
  job_in({"false"}, 1);
  job_in({"-r", "3", "/no/such/program"}, 127);
  job_in({"--nproc-per-node", "2", "sh", "-c", "kill -9 $PPID"}, 70);
  job_in({"-r", "3", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-role", "join",
          "--rdzv-conf", "join_timeout=100ms", "true"},
         69);
  CHECK(fs::is_empty(below));
  const auto nowhere = std::make_unique<Job>(std::vector<std::string>{"-r", "1", "echo", "hi"},
                                             Job::Environment{{"TMPDIR", "/dev/null"}});
  CHECK(nowhere->wait().code == 0);
  CHECK(nowhere->out() == "hi\n");
  CHECK(nowhere->err().ends_with("Not a directory; all output goes to the console\n"));
}

TEST_CASE("an outer launcher's error file has the exit code") {
  const Folder folder;
  const std::string script =
      R"(echo '{"message":{"message":"E: x","extraInfo":{}}}' > $TORCHELASTIC_ERROR_FILE; )";
  for (const auto& [how, code] : {std::pair{"exit 3", 3}, std::pair{"kill -9 $$", -9}}) {
    Job job({"sh", "-c", script + how}, {{"TORCHELASTIC_ERROR_FILE", folder / "error.json"}});
    CHECK(job.wait().shell_code() == (code < 0 ? 128 - code : code));
    const auto outer = nlohmann::json::parse(text_of(folder / "error.json"));
    CHECK(outer["message"]["errorCode"] == code);
    CHECK(outer["message"]["message"] == "E: x");
  }
}

TEST_CASE("scripts run in the environment that dlaunch is installed in, or in the active one") {
  const Folder folder;
  const auto environment = [&](const std::string& name) {
    fs::create_directories(folder / (name + "/bin"));
    std::ofstream(folder / (name + "/pyvenv.cfg")) << "home = /usr/bin\n";
    const std::string python = folder / (name + "/bin/python3");
    std::ofstream(python) << "#!/bin/sh\necho " << name << " runs $2\n";
    fs::permissions(python, fs::perms::owner_all);
    return folder / name;
  };
  std::ofstream(folder / "x.py") << "print('PATH runs')\n";
  const auto first_line = [&](const std::string& program, const Job::Environment& variables) {
    Job job({"--standalone", folder / "x.py"}, variables, program);
    CHECK(job.wait().code == 0);
    return job.out();
  };
  const std::string script = folder / "x.py";
  const std::string own = environment("own"), active = environment("active");
  fs::copy_file(dlaunch_path(), own + "/bin/dlaunch");
  CHECK(first_line(own + "/bin/dlaunch", {}) == "own runs " + script + "\n");
  CHECK(first_line(own + "/bin/dlaunch", {{"VIRTUAL_ENV", active}}) == "own runs " + script + "\n");
  CHECK(first_line(dlaunch_path(), {{"VIRTUAL_ENV", active}}) == "active runs " + script + "\n");
  CHECK(first_line(own + "/bin/dlaunch", {{"PYTHON_EXEC", active + "/bin/python3"}}) ==
        "active runs " + script + "\n");
  // A wheel's launcher belongs to the Python that has it, which need not be an environment.
  const std::string plain = environment("plain");
  fs::remove(plain + "/pyvenv.cfg");
  const std::string package = plain + "/lib/python3.9/site-packages/dlaunch/installed/bin";
  fs::create_directories(package);
  fs::copy_file(dlaunch_path(), package + "/dlaunch");
  CHECK(first_line(package + "/dlaunch", {{"VIRTUAL_ENV", active}}) ==
        "plain runs " + script + "\n");
  Job dry({"--dry-run", script}, {{"VIRTUAL_ENV", active}});
  CHECK(dry.wait().code == 0);
  CHECK(dry.out().find(active + "/bin/python3 -u " + script) != std::string::npos);
}

TEST_CASE("--dry-run says which signals stay ignored") {
  Job job({"--ignore-signal=HUP", dlaunch_path(), "--dry-run", "--signals-to-handle",
           "SIGTERM,SIGHUP", "true"},
          {}, "env");
  CHECK(job.wait().code == 0);
  CHECK(job.out().find("stop signals    SIGTERM; ignored, as when dlaunch was started: SIGHUP\n") !=
        std::string::npos);
  CHECK(job.out().find("  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM\n") != std::string::npos);
  CHECK(job.out().find("--signals-to-handle SIGHUP has no effect: ") != std::string::npos);
}

TEST_CASE("--dry-run starts nothing") {
  const Folder folder;
  Job job({"--nproc-per-node=2", "--dry-run", "touch", folder / "started"});
  CHECK(job.wait().code == 0);
  CHECK(job.out().starts_with("Dry run: nothing is started.\n"));
  CHECK_FALSE(fs::exists(folder / "started"));
}

}  // namespace dlaunch::process_test
