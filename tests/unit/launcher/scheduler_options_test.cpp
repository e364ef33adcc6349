// A scheduler among the other sources of options.
#include "launcher/cli/read_request.hpp"
#include "tests/unit/launcher/recorded.hpp"

#include <algorithm>

#include <doctest/doctest.h>

namespace dlaunch::launcher {
namespace {

using Strings = std::vector<std::string>;

JobSpec parsed(const Strings& arguments, const Environment& environment,
               const FileReader& read_file = {}) {
  auto result = read_job(arguments, environment, read_file);
  if (const auto* stop = std::get_if<EarlyExit>(&result)) {
    FAIL_CHECK("refused: " << stop->text);
    return {};
  }
  return std::get<JobSpec>(std::move(result));
}

std::string refusal(const Strings& arguments, const Environment& environment) {
  const auto result = read_job(arguments, environment);
  const auto* stop = std::get_if<EarlyExit>(&result);
  if (stop == nullptr) return "accepted";
  CHECK(stop->code == 64);
  return stop->text;
}

Setting setting(const JobSpec& options, std::string_view flag) {
  const auto found = std::find_if(options.settings.begin(), options.settings.end(),
                                  [&](const Setting& s) { return s.flag == flag; });
  REQUIRE(found != options.settings.end());
  return *found;
}

FileReader file(const std::string& text) {
  return [text](const std::string& path) {
    return path == "job.toml" ? std::optional(text) : std::nullopt;
  };
}

}  // namespace

TEST_CASE("under srun nothing has to be given") {
  const auto options = parsed({"prog"}, recorded("slurm_srun", 1));
  CHECK(options.nodes == NodesAsked{3, 3});
  CHECK(options.node_rank == 1);
  CHECK(options.node_id == "n2");
  CHECK(options.job_id == "slurm-1.0");
  CHECK(options.rdzv_role == RendezvousRole::join);
  CHECK(options.meeting == Meeting{Meeting::Kind::endpoint, "n1", 15'099});
  CHECK(options.notes.empty());
  CHECK(setting(options, "nnodes") ==
        Setting{"nnodes", "3", Origin::scheduler, "Slurm: SLURM_STEP_NUM_NODES"});
}

TEST_CASE("a scheduler counts less than command line and variables, more than a file") {
  const auto environment = recorded("slurm_srun", 1);
  const auto toml = file("nnodes = \"5\"\nrdzv-endpoint = \"elsewhere:1\"\nnode-id = \"x\"\n");
  const auto over_file = parsed({"--config", "job.toml", "prog"}, environment, toml);
  CHECK(over_file.nodes == NodesAsked{3, 3});
  CHECK(over_file.meeting.host == "n1");
  CHECK(over_file.node_id == "n2");

  const auto by_line =
      parsed({"--rdzv-endpoint", "daemon:29400", "--node-id", "x", "prog"}, environment);
  CHECK(by_line.meeting == Meeting{Meeting::Kind::endpoint, "daemon", 29'400});
  CHECK(by_line.rdzv_role == RendezvousRole::automatic);
  CHECK(by_line.node_id == "x");
  CHECK(by_line.nodes == NodesAsked{3, 3});

  auto trainer = with(environment, "PET_NNODES", "2");
  trainer = with(trainer, "PET_NODE_RANK", "0");
  trainer = with(trainer, "PET_MASTER_ADDR", "train-node-0-0.train");
  const auto by_pet = parsed({"prog"}, trainer);
  CHECK(by_pet.nodes == NodesAsked{2, 2});
  CHECK(by_pet.node_rank == 0);
  CHECK(by_pet.meeting == Meeting{Meeting::Kind::fixed, "train-node-0-0.train", 29'500});

  const auto range = parsed({"--nnodes", "1:4", "prog"}, environment);
  CHECK(range.nodes == NodesAsked{1, 4});
  CHECK(range.node_rank == 1);
  CHECK(range.meeting.host == "n1");
}

TEST_CASE("--nnodes 1 and --standalone set the scheduler aside") {
  const Strings prog{"prog"};
  for (const Strings& line : {Strings{"--nnodes", "1", "prog"}, Strings{"--standalone", "prog"}}) {
    const auto options = parsed(line, recorded("slurm_four_tasks", 5));
    CHECK(options.meeting == Meeting{});
    CHECK_FALSE(options.node_rank.has_value());
    CHECK(options.notes.empty());
  }
  CHECK(refusal({"--standalone=0", "prog"}, recorded("slurm_four_tasks", 5))
            .starts_with("dlaunch: srun started dlaunch 12 times on 3 nodes"));
  CHECK(refusal(prog, recorded("slurm_four_tasks", 5)).ends_with("job of its own\n"));
}

TEST_CASE("where the scheduler does not count, a file's --nnodes does") {
  const Environment pod{"JOB_COMPLETION_INDEX=1", "HOSTNAME=train-1.train.ml"};
  const auto options = parsed({"--config", "job.toml", "prog"}, pod, file("nnodes = 3\n"));
  CHECK(options.nodes == NodesAsked{3, 3});
  CHECK(options.node_rank == 1);
  CHECK(options.meeting.host == "train-0.train.ml");
  const auto alone = parsed({"prog"}, pod);
  CHECK(alone.meeting == Meeting{});
  REQUIRE(alone.notes.size() == 1);
  CHECK(alone.notes.front().starts_with("pod 1 of the Kubernetes Indexed Job train runs"));
  CHECK(refusal({"--nnodes", "x", "prog"}, pod).find("--nnodes x: ") != std::string::npos);
}

}  // namespace dlaunch::launcher
