#include "launcher/plan/plan.hpp"

#include "launcher/cli/read_request.hpp"
#include "launcher/plan/environment.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

using Strings = std::vector<std::string>;

JobSpec options_of(Strings arguments) {
  const Strings nothing;
  auto result = read_job(arguments, nothing);
  REQUIRE(std::holds_alternative<JobSpec>(result));
  return std::get<JobSpec>(std::move(result));
}

Machine machine(int cores = 8, int gpus = 0) {
  return {.hostname = "box",
          .usable_cores = cores,
          .cores_reason = "8 in the affinity mask",
          .gpus = gpus};
}

Assignment workers(int count) {
  Assignment assignment;
  assignment.job = "job-7";
  assignment.local_size = assignment.world_size = count;
  assignment.agent_store = count > 1;
  assignment.control_socket = "@dlaunch-job-7";
  assignment.run_directory = "/log/job-7_x1";
  return assignment;
}

LaunchPlan plan_of(Strings arguments, const Assignment& assignment, const Strings& env = {}) {
  return make_plan(options_of(std::move(arguments)), machine(), env, assignment);
}

std::string count_of(Strings arguments, const Machine& host, const Strings& env = {}) {
  const auto result = worker_count(options_of(std::move(arguments)), host, env);
  if (const auto* count = std::get_if<int>(&result)) return std::to_string(*count);
  CHECK(std::get<EarlyExit>(result).code == 64);
  return std::get<EarlyExit>(result).text;
}

}  // namespace

TEST_CASE("how many workers") {
  CHECK(count_of({"p"}, machine()) == "1");
  CHECK(count_of({"--nproc-per-node=64", "p"}, machine(2)) == "64");
  CHECK(count_of({"--nproc-per-node=cpu", "p"}, machine(3, 8)) == "3");
  CHECK(count_of({"--nproc-per-node=gpu", "p"}, machine(3, 8)) == "8");
  CHECK(count_of({"--nproc-per-node=gpu", "p"}, machine(3, 8), {"CUDA_VISIBLE_DEVICES=1,2"}) ==
        "2");
  CHECK(count_of({"--nproc-per-node=auto", "p"}, machine(3, 8)) == "8");
  CHECK(count_of({"--nproc-per-node=auto", "p"}, machine(3, 0)) == "3");
  CHECK(count_of({"--nproc-per-node=auto", "p"}, machine(3, 8), {"CUDA_VISIBLE_DEVICES="}) == "3");
  CHECK(count_of({"--nproc-per-node=gpu", "p"}, machine()) ==
        "dlaunch: --nproc-per-node gpu: this host shows no GPU (no /dev/nvidia0); use a number, or "
        "auto\n");
  CHECK(count_of({"--nproc-per-node=gpu", "p"}, machine(3, 8), {"CUDA_VISIBLE_DEVICES=-1"}) ==
        "dlaunch: --nproc-per-node gpu: CUDA_VISIBLE_DEVICES=-1 hides all GPUs of this host\n");
  CHECK(count_of({"--nproc-per-node=gpu", "p"}, machine(3, 8), {"CUDA_VISIBLE_DEVICES=0,0"}) ==
        "dlaunch: --nproc-per-node gpu: CUDA_VISIBLE_DEVICES=0,0 hides all GPUs of this host\n");
  CHECK(count_of({"--virtual-local-rank", "--nproc-per-node=4", "p"}, machine(8, 2)) ==
        "dlaunch: --virtual-local-rank: 4 workers need a GPU each, 2 can be seen; lower "
        "--nproc-per-node\n");
  CHECK(count_of({"--virtual-local-rank", "--nproc-per-node=4", "p"}, machine(8, 0)) == "4");
  CHECK(count_of({"--virtual-local-rank", "--nproc-per-node=4", "p"}, machine(8, 0),
                 {"CUDA_VISIBLE_DEVICES="}) == "4");
  CHECK(count_of({"--virtual-local-rank", "--nproc-per-node=2", "p"}, machine(8, 2),
                 {"CUDA_VISIBLE_DEVICES="}) ==
        "dlaunch: --virtual-local-rank: 2 workers need a GPU each, and CUDA_VISIBLE_DEVICES= hides "
        "all GPUs of this host; leave out the one or the other\n");
}

TEST_CASE("more workers than GPUs are said once, where the program may use GPUs") {
  const auto note = [](const Strings& arguments, const Machine& host, int count,
                       const Strings& env = {}) {
    return note_of_few_gpus(options_of(arguments), host, env, count).value_or("");
  };
  CHECK(note({"--nproc-per-node=4", "p"}, machine(8, 2), 4) ==
        "4 workers and 2 GPUs that they see: local ranks from 2 on have none of their own "
        "(--nproc-per-node gpu starts one worker for each GPU)");
  CHECK(note({"--nproc-per-node=2", "p"}, machine(8, 4), 2, {"CUDA_VISIBLE_DEVICES=3"})
            .starts_with("2 workers and 1 GPU that they see: local ranks from 1 on"));
  CHECK(note({"--nproc-per-node=2", "p"}, machine(8, 2), 2).empty());
  CHECK(note({"--nproc-per-node=4", "p"}, machine(8, 0), 4).empty());
  // A user who hides all GPUs, or asks for workers by the cores, uses none.
  CHECK(note({"--nproc-per-node=4", "p"}, machine(8, 2), 4, {"CUDA_VISIBLE_DEVICES="}).empty());
  CHECK(note({"--nproc-per-node=cpu", "p"}, machine(8, 2), 8).empty());
}

TEST_CASE("an option that names a local rank beyond the last one") {
  CHECK(count_of({"--nproc-per-node=2", "--tee=0:1,1:2", "p"}, machine()) == "2");
  CHECK(count_of({"--nproc-per-node=2", "--tee=0:1,2:2", "p"}, machine()) ==
        "dlaunch: --tee: there is no local rank 2, with 2 workers the last one is 1\n");
  CHECK(count_of({"--redirects=5:1", "p"}, machine()) ==
        "dlaunch: --redirects: there is no local rank 5, with 1 worker the last one is 0\n");
  CHECK(count_of({"--nproc-per-node=2", "--local-ranks-filter=0,3", "p"}, machine()) ==
        "dlaunch: --local-ranks-filter: there is no local rank 3, with 2 workers the last one is "
        "1\n");
}

TEST_CASE("the command") {
  auto host = machine();
  const auto command = [&host](Strings arguments, const Strings& env = {}) {
    return worker_command(options_of(std::move(arguments)), host, env);
  };
  CHECK(command({"./train", "-x"}) == Strings{"./train", "-x"});
  CHECK(command({"train.py", "-x"}) == Strings{"python3", "-u", "train.py", "-x"});
  CHECK(command({"--no-python", "train.py"}) == Strings{"train.py"});
  CHECK(command({"-m", "pkg.mod", "-x"}) == Strings{"python3", "-u", "-m", "pkg.mod", "-x"});
  CHECK(command({"--run-path", "dir"}) == Strings{"python3", "-u", "dir"});
  CHECK(command({"--run-path", "--no-python", "dir"}) == Strings{"python3", "-u", "dir"});
  CHECK(command({"train.py"}, {"PYTHON_EXEC=/venv/bin/python"}) ==
        Strings{"/venv/bin/python", "-u", "train.py"});
  CHECK(command({"train.py"}, {"PYTHON_EXEC="}).front() == "python3");
  CHECK(command({"train.pyc"}) == Strings{"train.pyc"});
  host.python = "/own/bin/python3";
  CHECK(command({"train.py"}).front() == "/own/bin/python3");
  CHECK(command({"train.py"}, {"PYTHON_EXEC=/venv/bin/python"}).front() == "/venv/bin/python");
  CHECK(command({"./train"}) == Strings{"./train"});
  CHECK(plan_of({"train.py"}, workers(1)).programs[0].script == "train.py");
  CHECK_FALSE(plan_of({"./train"}, workers(1)).programs[0].script);
  CHECK_FALSE(plan_of({"-m", "train.py"}, workers(1)).programs[0].script);
}

TEST_CASE("filtered lines: which streams, where to, with what prefix") {
  const auto filtered = [](Strings arguments) {
    arguments.push_back("p");
    const auto plan = plan_of(std::move(arguments), workers(3));
    std::string which;
    for (const auto& worker : plan.workers) {
      which += worker.stdio.out.filtered ? "o" : "-";
      which += worker.stdio.err.filtered ? "e" : "-";
    }
    return which;
  };
  const std::string out = "--duplicate-stdout-filters=a,b";
  const std::string err = "--duplicate-stderr-filters=c";
  CHECK(filtered({}) == "------");
  CHECK(filtered({out}) == "o-o-o-");
  CHECK(filtered({out, err}) == "oeoeoe");
  CHECK(filtered({out, err, "--local-ranks-filter=1"}) == "--oe--");
  CHECK(filtered({out, err, "--tee=0:1,1:2"}) == "o--e--");
  CHECK(filtered({out, "--redirects=1"}) == "o-o-o-");
  CHECK(filtered({"--duplicate-stdout-filters=,"}) == "------");

  const auto plan = plan_of({out, "--role=trainer", "p"}, workers(3));
  REQUIRE(plan.filter_out);
  CHECK(plan.filter_out->file == "/log/job-7_x1/attempt_0/filtered_stdout.log");
  CHECK(plan.filter_out->words == Strings{"a", "b"});
  CHECK_FALSE(plan.filter_err);
  CHECK(plan.directories.front() == "/log/job-7_x1/attempt_0");
  CHECK(plan.workers[2].stdio.filtered_prefix == "[trainer2]:");
  CHECK(plan_of({out, "--log-line-prefix-template=${rank}> ", "p"}, workers(3))
            .workers[2]
            .stdio.filtered_prefix == "2> ");
  // A worker alone has to be read, too.
  CHECK_FALSE(plan_of({out, "p"}, workers(1)).workers[0].stdio.inherit);
  auto nowhere = workers(2);
  nowhere.run_directory.clear();
  const auto without = plan_of({out, "p"}, nowhere);
  CHECK_FALSE(without.filter_out);
  CHECK_FALSE(without.workers[0].stdio.out.filtered);
}

TEST_CASE("the log layout") {
  auto assignment = workers(2);
  assignment.attempt = 3;
  const auto plan = plan_of({"--redirects=0:1,1:2", "--tee=1:1", "p"}, assignment);
  CHECK(plan.directories == Strings{"/log/job-7_x1/attempt_3", "/log/job-7_x1/attempt_3/0",
                                    "/log/job-7_x1/attempt_3/1"});
  REQUIRE(plan.workers.size() == 2);
  const auto& first = plan.workers[0].stdio;
  CHECK(first.out == StreamPlan{.console = false, .file = "/log/job-7_x1/attempt_3/0/stdout.log"});
  CHECK(first.err == StreamPlan{});
  const auto& second = plan.workers[1].stdio;
  CHECK(second.out == StreamPlan{.console = true, .file = "/log/job-7_x1/attempt_3/1/stdout.log"});
  CHECK(second.err == StreamPlan{.console = false, .file = "/log/job-7_x1/attempt_3/1/stderr.log"});
  CHECK(plan.workers[1].error_file == "/log/job-7_x1/attempt_3/1/error.json");
  CHECK(lookup(plan.workers[1].own_environment, "TORCHELASTIC_ERROR_FILE") ==
        plan.workers[1].error_file);
}

TEST_CASE("with no place for files nothing is lost: the console it is") {
  auto assignment = workers(2);
  assignment.run_directory.clear();
  const auto plan = plan_of({"--redirects=3", "p"}, assignment);
  CHECK(plan.directories.empty());
  CHECK(plan.workers[0].stdio.out == StreamPlan{});
  CHECK(plan.workers[0].error_file.empty());
}

TEST_CASE("--redirects and --tee of the same stream: both the file and the console") {
  const auto plan = plan_of({"-r3", "-t1", "p"}, workers(2));
  CHECK(plan.workers[0].stdio.out.console);
  CHECK(plan.workers[0].stdio.out.file);
  CHECK_FALSE(plan.workers[0].stdio.err.console);
}

TEST_CASE("--local-ranks-filter hides from the console, not from the files") {
  const auto plan = plan_of({"--local-ranks-filter=1", "--tee=3", "p"}, workers(2));
  CHECK_FALSE(plan.workers[0].stdio.out.console);
  CHECK(plan.workers[0].stdio.out.file);
  CHECK(plan.workers[1].stdio.out.console);
}

TEST_CASE("a worker alone keeps the terminal, unless its output is wanted elsewhere too") {
  CHECK(plan_of({"p"}, workers(1)).workers[0].stdio.inherit);
  CHECK(plan_of({"p"}, workers(1)).workers[0].stdio.input);
  CHECK(plan_of({"p"}, workers(1)).workers[0].stdio.prefix.empty());
  CHECK_FALSE(plan_of({"--tee=1", "p"}, workers(1)).workers[0].stdio.inherit);
  CHECK_FALSE(plan_of({"--log-line-prefix-template=x", "p"}, workers(1)).workers[0].stdio.inherit);
  const auto two = plan_of({"p"}, workers(2));
  CHECK_FALSE(two.workers[0].stdio.inherit);
  CHECK(two.workers[0].stdio.input);
  CHECK_FALSE(two.workers[1].stdio.input);
  CHECK(two.workers[1].stdio.prefix == "[1] ");
  // A world of one that may grow, or has shrunk.
  const auto elastic = plan_of({"--nnodes=1:2", "--rdzv-endpoint=h", "p"}, workers(1)).workers[0];
  CHECK_FALSE(elastic.stdio.inherit);
  CHECK(elastic.stdio.prefix == "[box:0] ");
}

TEST_CASE("--stdin: which rank has our stdin") {
  const auto reads = [](const Strings& arguments) {
    std::string which;
    for (const auto& worker : plan_of(arguments, workers(2)).workers) {
      which += worker.stdio.input ? "y" : "n";
    }
    return which;
  };
  CHECK(reads({"p"}) == "yn");
  CHECK(reads({"--stdin=1", "p"}) == "ny");
  CHECK(reads({"--stdin=none", "p"}) == "nn");
  CHECK(reads({"--stdin=2", "p"}) == "nn");
}

TEST_CASE("the line prefix, as Python's string.Template") {
  const auto expand = [](std::string_view pattern) {
    return expand_prefix(pattern, "role", 1, 9, "host");
  };
  CHECK(expand("[${role_name}${local_rank}]:") == "[role1]:");
  CHECK(expand("${hostname}:${rank} ") == "host:9 ");
  CHECK(expand("$rank|$hostname.x") == "9|host.x");
  CHECK(expand("$$rank $ ${unknown} ${rank $") == "$rank $ ${unknown} ${rank $");
  CHECK(expand("$ranks") == "$ranks");
  CHECK(expand("") == "");
  CHECK(
      plan_of({"--log-line-prefix-template=<${rank}>", "p"}, workers(2)).workers[1].stdio.prefix ==
      "<1>");
}

TEST_CASE("where the run's files go") {
  const auto directory = [](Strings arguments, const Strings& env = {}) {
    const auto prefix = run_directory_prefix(options_of(std::move(arguments)), env);
    return run_directory_name(prefix, "job", "x1");
  };
  CHECK(directory({"--log-dir=/logs", "p"}) == "/logs/job_x1");
  CHECK(directory({"p"}) == "/tmp/dlaunch_job_x1");
  CHECK(directory({"p"}, {"TMPDIR=/scratch"}) == "/scratch/dlaunch_job_x1");
  CHECK(directory({"p"}, {"TMPDIR="}) == "/tmp/dlaunch_job_x1");
}

TEST_CASE("the same inputs give the same plan, whatever the size") {
  const auto plan = plan_of({"p"}, workers(4096));
  REQUIRE(plan.workers.size() == 4096);
  CHECK(plan.workers[4095].rank == 4095);
  CHECK(lookup(plan.programs[0].environment, "OMP_NUM_THREADS") == "1");
}

TEST_CASE("--dry-run: the plan, and where each value came from") {
  const Strings env = {"PET_MAX_RESTARTS=2", "PATH=/bin"};
  const Strings arguments = {"--nproc-per-node=2", "--tee=0:2", "train.py", "it's", "--lr=3"};
  const auto result = read_job(arguments, env);
  const auto& options = std::get<JobSpec>(result);
  const auto text =
      describe_plan(options, machine(), make_plan(options, machine(), env, workers(2)),
                    Strings{"/bin/python3, which reads /jobs/train.py"}, {});
  CHECK(text.starts_with(R"(Dry run: nothing is started.

Plan:
  job             job-7
  command         python3 -u train.py 'it'\''s' --lr=3
  program         /bin/python3, which reads /jobs/train.py
  workers         2 on box, world of 2
  usable cores    8 (8 in the affinity mask)
  GPUs            0
  master          127.0.0.1:29500, PyTorch's store is hosted by dlaunch
  restarts        up to 2
  after a failure all are stopped; grace 500 ms, SIGKILL after 30 s
  stop signals    SIGTERM SIGINT SIGHUP SIGQUIT
  log directory   /log/job-7_x1

Workers:
)"));
  CHECK(text.find("Workers:\n"
                  "  rank 0: local rank 0, stdin ours, stdout console, stderr console and "
                  "/log/job-7_x1/attempt_0/0/stderr.log, prefix '[0] '\n"
                  "  rank 1: local rank 1, stdin /dev/null, stdout console, stderr console, "
                  "prefix '[1] '\n"
                  "\n"
                  "Variables set for rank 0:\n"
                  "  WORLD_SIZE=2\n") != std::string::npos);
  CHECK(text.find("PATH=/bin") == std::string::npos);
  CHECK(text.find("  OMP_NUM_THREADS=4\n") != std::string::npos);
  CHECK(text.find("  RANK=0\n") != std::string::npos);
  CHECK(text.find("\n  nproc-per-node            2") != std::string::npos);
  CHECK(text.find("variable PET_MAX_RESTARTS\n") != std::string::npos);
  CHECK(text.find("command line\n") != std::string::npos);
}

TEST_CASE("--dry-run of several nodes says whose view it is") {
  const auto shown = [](const Strings& arguments) {
    const auto result = read_job(arguments, {});
    const auto& options = std::get<JobSpec>(result);
    const auto assignment = assignment_before_meeting(options, 2);
    return describe_plan(options, machine(), make_plan(options, machine(), {}, assignment),
                         Strings{""}, {});
  };
  const auto met = shown({"--nnodes=2:4", "--rdzv-endpoint=head:29400", "p"});
  CHECK(
      met.find("workers         2 on box, world of 8\n"
               "  nodes           2 to 4; seen here as node rank 0, which the rendezvous decides, "
               "as if all had as many workers. They meet at head:29400\n") != std::string::npos);
  CHECK(met.find("program         none that can be run\n") != std::string::npos);
  CHECK(met.find("master          node rank 0's address:any free port") != std::string::npos);
  CHECK(met.find("MASTER_") == std::string::npos);
  const auto fixed = shown({"--nnodes=3", "--node-rank=2", "--master-addr=head", "p"});
  CHECK(fixed.find("3; seen here as node rank 2, as if all had as many workers. They meet at "
                   "head:29500, at node rank 0\n") != std::string::npos);
  CHECK(fixed.find("  rank 4: local rank 0") != std::string::npos);
  CHECK(fixed.find("  MASTER_ADDR=head\n") != std::string::npos);
}

TEST_CASE("--dry-run of many workers stays readable, and a port to come is no 0") {
  auto assignment = workers(100);
  assignment.master_port = 0;
  const auto text = describe_plan(options_of({"p"}), machine(), plan_of({"p"}, assignment),
                                  Strings{"/bin/p"}, {});
  CHECK(text.find("127.0.0.1:any free port") != std::string::npos);
  CHECK(text.find("  and 84 more\n") != std::string::npos);
}
