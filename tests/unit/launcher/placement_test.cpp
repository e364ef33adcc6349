// The workers' surroundings: program, variables, directory, cores.
#include "launcher/cli/read_request.hpp"
#include "launcher/plan/environment.hpp"
#include "launcher/plan/plan.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

using Strings = std::vector<std::string>;

Machine box(int cores = 1, int gpus = 0) {
  return {.hostname = "box", .usable_cores = cores, .cores_reason = "", .gpus = gpus};
}

/// The job, or an empty one after a failed check.
JobSpec job_of(const Strings& arguments, const Strings& environment = {}) {
  auto result =
      read_job(arguments, environment, {}, {.ignored_signals = {}, .directory = "/home/me"});
  if (const auto* stop = std::get_if<EarlyExit>(&result)) {
    FAIL_CHECK("refused: " << stop->text);
    return {};
  }
  return std::get<JobSpec>(std::move(result));
}

/// What is said of a line that makes no job, or has no workers here.
std::string refusal(const Strings& arguments, const Strings& environment = {}) {
  auto result =
      read_job(arguments, environment, {}, {.ignored_signals = {}, .directory = "/home/me"});
  if (const auto* stop = std::get_if<EarlyExit>(&result)) return stop->text;
  const auto count = worker_count(std::get<JobSpec>(result), box(), environment);
  if (const auto* stop = std::get_if<EarlyExit>(&count)) return stop->text;
  return "accepted";
}

LaunchPlan plan_of(const JobSpec& job, const Strings& environment, int workers = 1) {
  return make_plan(job, box(8), environment, assignment_before_meeting(job, workers));
}

}  // namespace

TEST_CASE("--env: every one counts, of equal names the last, and commas are part of a value") {
  const Strings environment = {"HERE=1", "LR=9", "OTHER=x"};
  const auto job = job_of({"--env", "LR=1", "--env=LIST=a,b=c", "--env", "LR=2", "--env", "HERE",
                           "--env", "EMPTY=", "p"},
                          environment);
  const auto inherited = inherited_by(job, environment);
  CHECK(inherited == Strings{"HERE=1", "OTHER=x", "LIST=a,b=c", "LR=2", "EMPTY="});
  const auto plan = plan_of(job, environment);
  CHECK(lookup(plan.programs[0].environment, "LR") == "2");
  CHECK(lookup(plan.programs[0].environment, "EMPTY") == "");
  const auto text = describe_plan(job, box(), plan, Strings{"/bin/p"}, {});
  CHECK(text.find("\n  LR=2\n") != std::string::npos);
  CHECK(text.find("\n  EMPTY=\n") != std::string::npos);
  CHECK(text.find("LR=1, LIST=a,b=c, LR=2, HERE, EMPTY=  command line\n") != std::string::npos);
  CHECK(text.find("\n  program         /bin/p\n") != std::string::npos);
}

TEST_CASE("--env: what the launcher reads for its workers counts, too") {
  const auto job = job_of({"--env=PYTHON_EXEC=/py", "--env=OMP_NUM_THREADS=7", "x.py"});
  const auto plan = plan_of(job, {"OMP_NUM_THREADS=3"}, 2);
  CHECK(plan.programs[0].argv == Strings{"/py", "-u", "x.py"});
  CHECK(lookup(plan.programs[0].environment, "OMP_NUM_THREADS") == "7");
  const auto gpus = job_of({"--nproc-per-node=gpu", "--env=CUDA_VISIBLE_DEVICES=1,3", "p"});
  const auto count = worker_count(gpus, box(1, 4), {});
  CHECK(std::get<int>(count) == 2);
}

TEST_CASE("--env: what is refused") {
  CHECK(refusal({"--env", "=1", "p"}) ==
        "dlaunch: --env =1: a name is missing; NAME=VALUE is wanted, or NAME\n");
  CHECK(refusal({"--env", "RANK=1", "--env", "A=1", "p"}) ==
        "dlaunch: --env RANK=1: dlaunch sets RANK for each worker itself\n");
  CHECK(refusal({"--env", "DLAUNCH_WORKER_JOB=1", "p"}) ==
        "dlaunch: --env DLAUNCH_WORKER_JOB=1: dlaunch sets DLAUNCH_WORKER_JOB for each worker "
        "itself\n");
  CHECK(refusal({"--env", "PMI_RANK=1", "p"}) ==
        "dlaunch: --env PMI_RANK=1: by PMI_RANK a launcher tells an MPI its ranks, which here "
        "dlaunch does itself\n");
  CHECK(refusal({"--env", "PET_NNODES=1", "p"}) ==
        "dlaunch: --env PET_NNODES=1: no worker inherits PET_NNODES, which stands for the option "
        "--nnodes\n");
  CHECK(refusal({"--env", "LR", "p"}) ==
        "dlaunch: --env LR: there is no such variable here to be handed on; give it a value: --env "
        "LR=VALUE\n");
  CHECK(refusal({"-x", "LR", "p"}) == "dlaunch: unknown option -x; did you mean --env?\n");
}

TEST_CASE("--bind and --numa-binding are one thing by two names; the stronger origin counts") {
  CHECK(job_of({"p"}).binding == Binding::none);
  CHECK(job_of({"--bind=core", "p"}).binding == Binding::core_share);
  CHECK(job_of({"--bind=l3", "p"}).binding == Binding::core_complex);
  CHECK(job_of({"--bind=numa", "p"}).binding == Binding::node);
  CHECK(job_of({"--bind=socket", "p"}).binding == Binding::socket);
  CHECK(job_of({"--numa-binding=exclusive", "p"}).binding == Binding::exclusive);
  CHECK(job_of({"--bind=none", "p"}, {"PET_NUMA_BINDING=node"}).binding == Binding::none);
  CHECK(job_of({"--numa-binding=node", "p"}, {"DLAUNCH_BIND=core"}).binding == Binding::node);
  CHECK(refusal({"--numa-binding=node", "--bind=core", "p"}) ==
        "dlaunch: --bind core and --numa-binding node exclude each other: both say on which cores "
        "workers run\n");
  CHECK(refusal({"--bind-to=core", "p"}) ==
        "dlaunch: unknown option --bind-to; did you mean "
        "--bind?\n");
}

TEST_CASE("--bind: workers that take turns are told of once") {
  Machine host = box();
  for (int core = 0; core < 4; ++core) {
    host.topology.cores.push_back({.number = core, .core = core, .cache = core / 2 * 2});
  }
  const auto note = [&](const std::string& unit, int workers) {
    return note_of_shared_cores(job_of({unit, "p"}), host, {}, workers).value_or("");
  };
  CHECK(note("--bind=core", 4).empty());
  CHECK(note("--bind=core", 5) ==
        "--bind core: 5 workers take turns on 4 cores: there are no more that they may use");
  CHECK(note("--bind=l3", 2).empty());
  CHECK(note("--bind=l3", 3) ==
        "--bind l3: 3 workers take turns on 2 groups of cores: there are no more that they may "
        "use");
  CHECK(note("--bind=numa", 9).empty());
  CHECK(note("--numa-binding=core-complex", 9).empty());
  const auto job = job_of({"--nproc-per-node=2", "--bind=core", "p"});
  const auto plan = make_plan(job, host, {}, assignment_before_meeting(job, 2));
  CHECK(plan.workers[1].cores == std::vector<int>{2, 3});
}

TEST_CASE("--cwd: a whole path, which the workers also find in PWD") {
  CHECK(job_of({"--cwd", "sub", "p"}).directory == "/home/me/sub");
  const auto job = job_of({"--cwd=/data", "--log-dir=logs", "p"});
  CHECK(job.directory == "/data");
  CHECK(job.log_dir == "/home/me/logs");
  CHECK(job_of({"--log-dir=logs", "p"}).log_dir == "logs");
  const auto plan = plan_of(job, {"PWD=/home/me"});
  CHECK(plan.programs[0].directory == "/data");
  CHECK(lookup(plan.programs[0].environment, "PWD") == "/data");
  const auto nowhere = read_job(Strings{"--cwd=sub", "p"}, Strings{});
  CHECK(std::get<EarlyExit>(nowhere).text ==
        "dlaunch: --cwd sub: where dlaunch was started is not known; give a whole path\n");
}

TEST_CASE("a line of several programs: each has workers, variables and a directory of its own") {
  const auto job = job_of({"--max-restarts=2", "--nproc-per-node=2", "--env=A=1", "./server", "-v",
                           ":", "--cwd=sub", "--nproc_per_node", "3", "--env", "B=2", "client.py",
                           "\\:", "\\\\:", "\\x:", ":", "-m", "pkg.watch"});
  CHECK(job.program == Strings{"./server", "-v"});
  CHECK(job.max_restarts == 2);
  REQUIRE(job.later_parts.size() == 2);
  CHECK(job.later_parts[0].program == Strings{"client.py", ":", "\\:", "\\x:"});
  CHECK(job.later_parts[0].directory == "/home/me/sub");
  CHECK(job.later_parts[1].module);
  const auto count = worker_count(job, box(), {});
  CHECK(std::get<int>(count) == 6);
  const auto plan = plan_of(job, {"A=0", "PWD=/"}, 6);
  std::string programs;
  for (const auto& worker : plan.workers) programs += std::to_string(worker.program);
  CHECK(programs == "001112");
  CHECK(plan.programs[1].argv == Strings{"python3", "-u", "client.py", ":", "\\:", "\\x:"});
  CHECK(plan.programs[1].script == "client.py");
  CHECK(plan.programs[2].argv == Strings{"python3", "-u", "-m", "pkg.watch"});
  const auto variable = [&](std::size_t program, std::string_view name) {
    return std::string(lookup(plan.programs[program].environment, name).value_or("-"));
  };
  CHECK(variable(0, "A") + variable(0, "B") + variable(0, "PWD") == "1-/");
  CHECK(variable(1, "A") + variable(1, "B") + variable(1, "PWD") == "02/home/me/sub");
  CHECK(variable(2, "WORLD_SIZE") == "6");
  const auto text = describe_plan(job, box(), plan, Strings{"/s", "/py, which reads x", ""}, {});
  CHECK(text.find("  command         ./server -v\n"
                  "  program         /s\n"
                  "  of ranks        0-1\n"
                  "  command         python3 -u client.py : '\\:' '\\x:'\n"
                  "  program         /py, which reads x\n"
                  "  directory       /home/me/sub\n"
                  "  of ranks        2-4\n"
                  "  command         python3 -u -m pkg.watch\n"
                  "  program         none that can be run\n"
                  "  of ranks        5\n"
                  "  workers         6 on box, world of 6\n") != std::string::npos);
}

TEST_CASE("a line of several programs: what is refused") {
  const std::string empty =
      " of the line is empty: each ':' stands between two programs; one that is an argument is "
      "written \\:\n";
  CHECK(refusal({"p", ":"}) == "dlaunch: part 2" + empty);
  CHECK(refusal({":", "p"}) == "dlaunch: part 1" + empty);
  CHECK(refusal({"p", ":", ":", "q"}) == "dlaunch: part 2" + empty);
  CHECK(refusal({"p", ":", "--env", "A=1"}) == "dlaunch: part 2 of the line names no program\n");
  CHECK(refusal({"p", ":", "--max-restarts=1", "q"}) ==
        "dlaunch: --max-restarts 1: it is of the whole job; give it before the first ':'\n");
  CHECK(refusal({"p", ":", "--bind", "core", "q"}) ==
        "dlaunch: --bind core: it is of the whole job; give it before the first ':'\n");
  CHECK(refusal({"p", ":", "--env", "X", "q"}).starts_with("dlaunch: --env X: there is no such "));
  CHECK(refusal({"p", ":", "-m", "--no-python", "q"}) ==
        "dlaunch: -m and --no-python exclude each other: a module needs the interpreter (in part 2 "
        "of the line, behind ':'; an argument ':' is written '\\:')\n");
  CHECK(
      refusal({"train.py", "--sep", ":", "--lr", "3"}) ==
      "dlaunch: unknown option --lr; dlaunch --help all lists the options (in part 2 of the line, "
      "behind ':'; an argument ':' is written '\\:')\n");
  CHECK(refusal({"p", ":", "q", ":", "--nproc-per-node=x", "r"})
            .ends_with(" (in part 3 of the line, behind ':'; an argument ':' is written '\\:')\n"));
  CHECK(refusal({"--nproc-per-node=4000", "p", ":", "--nproc-per-node=97", "q"}) ==
        "dlaunch: the parts of the line have 4097 workers and more; at most 4096 are allowed on "
        "one node\n");
  // The benchmark is alone, and its own options are its own.
  CHECK(job_of({"bench", ":"}).later_parts.empty());
  // A variable is of the first part.
  const auto job = job_of({"p", ":", "q"}, {"PET_NPROC_PER_NODE=3"});
  CHECK(job.workers.number == 3);
  CHECK(job.later_parts[0].workers.number == 1);
}
