// What the user asks for, seen from outside: real launcher, real workers.
#include "tests/process/job.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

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
      {{"--config", "/no/such/file", "true"}, 78, "--config /no/such/file: cannot be read"},
  };
  for (const auto& row : rows) {
    Job job(row.arguments);
    CHECK(job.wait().code == row.code);
    CHECK(job.out().empty());
    CHECK(job.err() == "dlaunch: " + row.sentence + "\n");
  }
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

TEST_CASE("--dry-run starts nothing") {
  const Folder folder;
  Job job({"--nproc-per-node=2", "--dry-run", "touch", folder / "started"});
  CHECK(job.wait().code == 0);
  CHECK(job.out().starts_with("Dry run: nothing is started.\n"));
  CHECK_FALSE(fs::exists(folder / "started"));
}

}  // namespace dlaunch::process_test
