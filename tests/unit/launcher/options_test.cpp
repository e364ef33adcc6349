// Command lines, option by option. Longer than a sitting: each has its rows.
#include "launcher/cli/read_request.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

using Strings = std::vector<std::string>;

JobSpec parsed(const Strings& arguments, const Strings& environment = {},
               const FileReader& read_file = {}) {
  auto result = read_job(arguments, environment, read_file);
  if (const auto* stop = std::get_if<EarlyExit>(&result)) {
    FAIL_CHECK("refused: " << stop->text);
    return {};
  }
  return std::get<JobSpec>(std::move(result));
}

/// The sentence of a refusal, without the program's name and the newline.
std::string refusal(const Strings& arguments, const Strings& environment = {}, int code = 64,
                    const FileReader& read_file = {}) {
  const auto result = read_job(arguments, environment, read_file);
  const auto* stop = std::get_if<EarlyExit>(&result);
  if (stop == nullptr) return "accepted";
  CHECK(stop->code == code);
  CHECK(stop->text.starts_with("dlaunch: "));
  CHECK(stop->text.ends_with("\n"));
  return stop->text.substr(9, stop->text.size() - 10);
}

Setting setting(const JobSpec& options, std::string_view flag) {
  const auto found = std::find_if(options.settings.begin(), options.settings.end(),
                                  [&](const Setting& s) { return s.flag == flag; });
  REQUIRE(found != options.settings.end());
  return *found;
}

FileReader file(const std::string& text) {
  return [text](const std::string& path) -> std::optional<std::string> {
    if (path == "job.toml") return text;
    return std::nullopt;
  };
}

}  // namespace

TEST_CASE("a bare program has torchrun's defaults") {
  const auto options = parsed({"prog", "a"});
  CHECK(options.program == Strings{"prog", "a"});
  CHECK(options.workers == WorkersAsked{.number = 1});
  CHECK(options.role == "default");
  CHECK(options.max_restarts == 0);
  CHECK(options.master_port == 29500);
  CHECK_FALSE(options.master_port_insisted);
  CHECK_FALSE(options.job_id);
  CHECK_FALSE(options.log_dir);
  CHECK_FALSE(options.continue_on_failure);
  CHECK(options.failure_grace == dlaunch::failure_grace_standard);
  CHECK(options.rdzv_times.join == std::chrono::minutes(10));
  CHECK(options.rdzv_times.last_call == std::chrono::seconds(30));
  CHECK(options.rdzv_times.liveness().lease == std::chrono::seconds(5));
  CHECK(options.shutdown_timeout == std::chrono::seconds(30));
  CHECK(options.signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  CHECK(options.notes.empty());
}

TEST_CASE("dashes and underscores, attached and apart") {
  for (const auto& arguments :
       std::vector<Strings>{{"--nproc-per-node", "4", "p"},
                            {"--nproc_per_node", "4", "p"},
                            {"--nproc-per-node=4", "p"},
                            {"--nproc_per_node=4", "p"},
                            {"--nproc-per_node=4", "p"},
                            {"run", "--nproc-per-node", "4", "p"},
                            {"--nproc-per-node", "2", "--nproc_per_node=4", "--", "p"}}) {
    const auto options = parsed(arguments);
    CHECK(options.workers == WorkersAsked{.kind = WorkersAsked::Kind::number, .number = 4});
    CHECK(options.program == Strings{"p"});
  }
  for (const auto& arguments : std::vector<Strings>{
           {"-r", "3", "p"}, {"-r3", "p"}, {"-r=3", "p"}, {"--redirects=3", "p"}}) {
    CHECK(parsed(arguments).redirects.of(0) == Streams{.out = true, .err = true});
  }
}

TEST_CASE("every option reaches its field") {
  const auto options = parsed({"--nproc-per-node=auto",
                               "--role=trainer",
                               "--rdzv-id=job-7",
                               "--node-id=n1",
                               "--master-port=4711",
                               "--torch-store=rank0",
                               "--shared-memory=node",
                               "--cgroup=none",
                               "--health-port=0.0.0.0:8080",
                               "--max-restarts=3",
                               "--restart-window=1h",
                               "--restart-backoff=1s:1m",
                               "--on-failure=continue",
                               "--failure-grace=2s",
                               "--shutdown-timeout=1m",
                               "--ready-timeout=10m",
                               "--stall-timeout=20m",
                               "--stack-on-timeout",
                               "--node-check=nvidia-smi -L",
                               "--node-check-timeout=5",
                               "--deadline=90m",
                               "--deadline-latest=100m",
                               "--deadline-notice=5m",
                               "--deadline-signal=USR2",
                               "--signals-to-handle=SIGUSR2",
                               "--log-dir=/logs",
                               "--redirects=1",
                               "--tee=0:2",
                               "--local-ranks-filter=1,0",
                               "--log-line-prefix-template=<${rank}>",
                               "--result=r.json",
                               "--quiet",
                               "--log-format=json",
                               "--timings=text",
                               "--dry-run",
                               "--virtual-local-rank",
                               "--rdzv-backend=c10d",
                               "--rdzv-endpoint=localhost:0",
                               "--no-python",
                               "p"});
  CHECK(options.workers.kind == WorkersAsked::Kind::automatic);
  CHECK(options.role == "trainer");
  CHECK(options.job_id == "job-7");
  CHECK(options.node_id == "n1");
  CHECK(options.master_port == 4711);
  CHECK(options.master_port_insisted);
  CHECK(options.torch_store == TorchStore::rank0);
  CHECK(options.shared_memory == SharedMemory::node);
  CHECK_FALSE(options.own_cgroup);
  CHECK(options.health == HealthAt{"0.0.0.0", 8080});
  CHECK(options.max_restarts == 3);
  CHECK(options.restart_window == std::chrono::hours(1));
  CHECK(options.restart_backoff == RestartPauses{std::chrono::seconds(1), std::chrono::minutes(1)});
  CHECK(options.continue_on_failure);
  CHECK(options.failure_grace == std::chrono::seconds(2));
  CHECK(options.shutdown_timeout == std::chrono::minutes(1));
  CHECK(options.ready_timeout == std::chrono::minutes(10));
  CHECK(options.stall_timeout == std::chrono::minutes(20));
  CHECK(options.stack_on_timeout);
  CHECK(options.node_check == "nvidia-smi -L");
  CHECK(options.node_check_timeout == std::chrono::seconds(5));
  CHECK(options.deadline == DeadlineAsked{.after = std::chrono::minutes(90)});
  CHECK(options.deadline_latest == DeadlineAsked{.after = std::chrono::minutes(100)});
  CHECK(options.deadline_notice == std::chrono::minutes(5));
  CHECK(options.deadline_signal == SIGUSR2);
  CHECK(options.signals == std::vector<int>{SIGUSR2});
  CHECK(options.log_dir == "/logs");
  CHECK(options.redirects.everyone.out);
  CHECK(options.tee.of(0).err);
  CHECK(options.local_ranks_filter == std::vector<int>{0, 1});
  CHECK(options.log_line_prefix_template == "<${rank}>");
  CHECK(options.result_file == "r.json");
  CHECK(options.quiet);
  CHECK(options.log_format == LogFormat::json);
  CHECK(options.timings == Timings::text);
  CHECK(options.dry_run);
  CHECK(options.virtual_local_rank);
  CHECK(options.no_python);
  CHECK(options.notes.empty());
}

TEST_CASE("parsing stops at the program") {
  // Arguments of the script that look like ours are the script's.
  CHECK(parsed({"p", "--nproc-per-node", "4", "-m", "--help", "--"}).program ==
        Strings{"p", "--nproc-per-node", "4", "-m", "--help", "--"});
  CHECK(parsed({"--", "-odd-name", "x"}).program == Strings{"-odd-name", "x"});
  CHECK(parsed({"--", "--", "x"}).program == Strings{"--", "x"});
  CHECK(parsed({"-", "x"}).program == Strings{"-", "x"});
  CHECK(parsed({"p", ""}).program == Strings{"p", ""});
  CHECK(parsed({"run", "run", "x"}).program == Strings{"run", "x"});
  CHECK(parsed({"--", "run"}).program == Strings{"run"});
  CHECK(parsed({"p", "--no-such-option"}).program == Strings{"p", "--no-such-option"});
  const auto module = parsed({"-m", "pkg.mod", "--lr", "3"});
  CHECK(module.module);
  CHECK(module.program == Strings{"pkg.mod", "--lr", "3"});
}

TEST_CASE("bench: the launcher takes its own options, all else is the benchmark's") {
  const auto options = parsed({"bench", "--sizes", "4:64K", "--nproc_per_node=3", "--json", "-",
                               "--check", "--rdzv-endpoint", "head:1", "--nnodes", "2"});
  CHECK(options.bench);
  CHECK(options.program == Strings{"dlaunch-bench", "--sizes", "4:64K", "--json", "-", "--check"});
  CHECK(options.workers.number == 3);
  CHECK(options.nodes.most == 2);
  // All cores, and a table without prefixes, unless something else is asked for.
  CHECK(options.log_line_prefix_template == "");
  CHECK(parsed({"bench"}).workers.kind == WorkersAsked::Kind::cpu);
  CHECK(parsed({"bench", "--device", "cuda"}).workers.kind == WorkersAsked::Kind::gpu);
  CHECK(parsed({"bench", "--device=cuda", "--check"}).workers.kind == WorkersAsked::Kind::gpu);
  CHECK(parsed({"bench", "--device", "host"}).workers.kind == WorkersAsked::Kind::cpu);
  CHECK(parsed({"bench", "--device=cuda", "--nproc-per-node=2"}).workers.number == 2);
  CHECK(parsed({"bench"}, {"DLAUNCH_NPROC_PER_NODE=2"}).workers.number == 2);
  CHECK(parsed({"bench", "--log-line-prefix-template", "x"}).log_line_prefix_template == "x");
  CHECK(parsed({"bench", "--help", "-h"}).program == Strings{"dlaunch-bench", "--help", "-h"});
  CHECK(refusal({"bench", "-m"}) == "--module: bench runs a program of its own, without Python");
  CHECK(refusal({"bench", "--nproc-per-node"}).starts_with("--nproc-per-node needs a value"));
  // A program of that name.
  CHECK_FALSE(parsed({"--", "bench"}).bench);
  CHECK(parsed({"run", "bench", "x"}).program == Strings{"bench", "x"});
}

TEST_CASE("no program") {
  const std::string none =
      "no program given: dlaunch [options] [--] program [args...]; "
      "dlaunch --help has examples";
  CHECK(refusal({}) == none);
  CHECK(refusal({"run"}) == none);
  CHECK(refusal({"--"}) == none);
  CHECK(refusal({"--nproc-per-node", "4"}) == none);
  CHECK(refusal({""}) == "the program's name is empty");
  CHECK(refusal({"-m"}) == "-m needs the name of a module: dlaunch -m MODULE [args...]");
  CHECK(refusal({"-m", "--no-python", "x"}) ==
        "-m and --no-python exclude each other: a module needs the interpreter");
  CHECK(refusal({"-m", "--run-path", "x"}) ==
        "-m and --run-path exclude each other: the program is a module or a path");
}

TEST_CASE("unknown options name the nearest") {
  CHECK(refusal({"--nproc-per-nod", "4", "p"}) ==
        "unknown option --nproc-per-nod; did you mean --nproc-per-node?");
  CHECK(refusal({"--nproc_per_nod=4", "p"}) ==
        "unknown option --nproc_per_nod; did you mean --nproc-per-node?");
  CHECK(refusal({"-np", "4", "p"}) == "unknown option -np; did you mean --nproc-per-node?");
  CHECK(refusal({"-n", "4", "p"}) == "unknown option -n; did you mean --nproc-per-node?");
  // No abbreviations, but we know what was meant.
  CHECK(refusal({"--max", "4", "p"}) == "unknown option --max; did you mean --max-restarts?");
  CHECK(refusal({"--nodes", "4", "p"}) == "unknown option --nodes; did you mean --nnodes?");
  CHECK(refusal({"-tee", "3", "p"}) == "unknown option -tee; did you mean --tee?");
  CHECK(refusal({"--gibberish-of-no-kind", "p"}) ==
        "unknown option --gibberish-of-no-kind; dlaunch --help all lists the options");
  CHECK(refusal({"-y", "p"}) == "unknown option -y; dlaunch --help all lists the options");
  CHECK(refusal({"-mx", "p"}) == "unknown option -mx; dlaunch --help all lists the options");
  CHECK(refusal({"--=3", "p"}) == "unknown option --; dlaunch --help all lists the options");
  CHECK(refusal({"--" + std::string(100'000, 'x'), "p"}).size() < 140);
}

TEST_CASE("nonsense values are refused with a sentence") {
  CHECK(refusal({"--nproc-per-node", "0", "p"}) == "--nproc-per-node 0: at least 1 is needed");
  CHECK(refusal({"--nproc-per-node", "-3", "p"}) == "--nproc-per-node -3: at least 1 is needed");
  CHECK(refusal({"--nproc-per-node=", "p"}) == "--nproc-per-node '': a whole number is missing");
  CHECK(refusal({"--nproc-per-node", "four", "p"}) ==
        "--nproc-per-node four: 'four' is neither a number nor cpu, gpu or auto");
  CHECK(refusal({"--nproc-per-node", "4.5", "p"}) ==
        "--nproc-per-node 4.5: '4.5' is not a whole number");
  CHECK(refusal({"--nproc-per-node", "99999999999999999999", "p"}) ==
        "--nproc-per-node 99999999999999999999: at most 4096 is allowed");
  CHECK(refusal({"--max-restarts", "-1", "p"}) == "--max-restarts -1: at least 0 is needed");
  CHECK(refusal({"--master-port", "65536", "p"}) ==
        "--master-port 65536: at most 65535 is allowed");
  CHECK(refusal({"--role", "", "p"}) == "--role '': the value is empty");
  CHECK(refusal({"--log-dir=", "p"}) == "--log-dir '': the value is empty");
  CHECK(refusal({"--on-failure", "explode", "p"}) ==
        "--on-failure explode: 'explode' is none of stop, continue");
  CHECK(refusal({"--failure-grace", "soon", "p"}) ==
        "--failure-grace soon: 'soon' is not a duration such as 500ms, 30 (seconds), 2m or 1h, "
        "up to a year");
  CHECK(refusal({"--rdzv-id", "a/b", "p"}) ==
        "--rdzv-id a/b: only letters, digits and .,:;@%+=_- are allowed");
  CHECK(refusal({"--rdzv-id", "..", "p"}) ==
        "--rdzv-id ..: only letters, digits and .,:;@%+=_- are allowed");
  CHECK(
      refusal({"--rdzv-backend", "etcd-v2", "p"}) ==
      "--rdzv-backend etcd-v2: dlaunch brings its own rendezvous and needs no etcd; leave it out");
  CHECK(refusal({"--standalone=maybe", "p"}) ==
        "--standalone: 'maybe' is neither 1 (true, yes, on) nor 0 (false, no, off)");
  CHECK(refusal({"--role", std::string(100'000, 'x'), "--tee", "9", "p"}).size() < 200);
}

TEST_CASE("a value that is missing is not taken from the next option") {
  CHECK(refusal({"--tee"}) == "--tee needs a value: STREAMS");
  CHECK(refusal({"-t"}) == "--tee needs a value: STREAMS");
  CHECK(refusal({"--log-dir", "--tee", "3", "p"}) ==
        "--log-dir needs a value: DIR; it is followed by the option --tee");
  CHECK(refusal({"--log-dir", "--", "p"}) ==
        "--log-dir needs a value: DIR; it is followed by the option --");
  CHECK(parsed({"--log-dir", "--odd", "p"}).log_dir == "--odd");
  CHECK(parsed({"--log-dir=--tee", "p"}).log_dir == "--tee");
}

TEST_CASE("where nodes meet") {
  using Kind = Meeting::Kind;
  const auto meets = [](const Strings& arguments) { return parsed(arguments).meeting; };
  CHECK(meets({"p"}) == Meeting{});
  CHECK(meets({"--nnodes=2", "--rdzv-endpoint=head", "p"}) ==
        Meeting{Kind::endpoint, "head", 29400});
  CHECK(parsed({"--nnodes=2", "--spares=3", "--rdzv-endpoint=head", "p"}).spares == 3);
  CHECK(parsed({"--spares=3", "p"}).notes ==
        Strings{"--spares 3 has no effect: no other node takes part."});
  CHECK(meets({"--nnodes=1:4", "--rdzv-endpoint=[::1]:7", "p"}) ==
        Meeting{Kind::endpoint, "::1", 7});
  // One node that reports to a rendezvous elsewhere, or that is told to.
  CHECK(meets({"--rdzv-endpoint=head", "p"}) == Meeting{Kind::endpoint, "head", 29400});
  CHECK(meets({"--rdzv-endpoint=localhost", "--rdzv-role=join", "p"}) ==
        Meeting{Kind::endpoint, "localhost", 29400});
  CHECK(meets({"--rdzv-endpoint=unix:/run/d.sock", "p"}) ==
        Meeting{Kind::endpoint, "unix:/run/d.sock", 0});
  CHECK(meets({"--rdzv-endpoint", "unix:", "p"}) ==
        Meeting{Kind::endpoint, "unix:/run/dlaunchd/dlaunchd.sock", 0});
  // torchrun's static way.
  CHECK(meets({"--nnodes=2", "--node-rank=0", "--master-addr=head", "p"}) ==
        Meeting{Kind::fixed, "head", 29500});
  CHECK(meets({"--nnodes=2", "--node-rank=1", "--master-port=7", "p"}) ==
        Meeting{Kind::fixed, "127.0.0.1", 7});
  CHECK(meets({"--nnodes=2", "--master-addr=head", "p"}) == Meeting{Kind::fixed, "head", 29500});
  // JobSpec that say one node are welcome.
  const auto options = parsed({"--nnodes=1:1", "--node-rank=0", "--rdzv-role=host",
                               "--rdzv-endpoint=127.0.0.1:29400", "--master-addr=localhost", "p"});
  CHECK(options.notes.empty());
  CHECK(options.meeting == Meeting{});
}

TEST_CASE("what does not go together with several nodes") {
  CHECK(refusal({"--nnodes", "2", "p"}) ==
        "--nnodes 2: the nodes need a place to meet: --rdzv-endpoint HOST:PORT, the same on every "
        "node (HOST is one of them, or runs dlaunchd), or --node-rank and --master-addr");
  CHECK(refusal({"p"}, {"PET_NNODES=2"}).starts_with("PET_NNODES=2: the nodes need a place"));
  CHECK(refusal({"--nnodes=2", "--standalone", "p"}) ==
        "--nnodes 2: --standalone is one node; leave one of the two out");
  CHECK(refusal({"--node-rank", "1", "p"}) ==
        "--node-rank 1: with 1 node the last node rank is 0 (--nnodes says how many there are)");
  CHECK(refusal({"--nnodes=2", "--node-rank=2", "--master-addr=h", "p"})
            .starts_with("--node-rank 2: with 2 nodes the last node rank is 1"));
  CHECK(refusal({"--rdzv-endpoint", "localhost:x", "p"}) ==
        "--rdzv-endpoint localhost:x: the port: 'x' is not a whole number");
  CHECK(
      refusal({"--nnodes=2", "--rdzv-endpoint", "head:0", "p"}) ==
      "--rdzv-endpoint head:0: the other nodes cannot know which port 0 becomes; give a port, for "
      "example 29400");
  CHECK(refusal({"--nnodes=2", "--master-addr=head", "--master-port=0", "p"})
            .starts_with("--master-port 0: the other nodes cannot know which port 0 becomes"));
  CHECK(refusal({"--rdzv-endpoint", "unix:d.sock", "p"}) ==
        "--rdzv-endpoint unix:d.sock: a whole path is needed, as in "
        "unix:/run/dlaunchd/dlaunchd.sock");
  CHECK(refusal({"--rdzv-endpoint", "unix:/d.sock", "--rdzv-role", "host", "p"})
            .starts_with("--rdzv-role host: a node hosts at HOST:PORT"));
  CHECK(refusal({"--rdzv-role", "join", "p"}) ==
        "--rdzv-role join: there is nothing to host or join without --rdzv-endpoint");
}

TEST_CASE("--rdzv-conf sets times, and names what it does not need") {
  const auto options = parsed({"--nnodes=2", "--rdzv-endpoint=h",
                               "--rdzv-conf=join_timeout=5,last_call_timeout=0,keep_alive_interval="
                               "500ms,keep_alive_max_attempt=4,close_timeout=9",
                               "p"});
  CHECK(options.rdzv_times.join == std::chrono::seconds(5));
  CHECK(options.rdzv_times.last_call == std::chrono::seconds(0));
  CHECK(options.rdzv_times.liveness().lease == std::chrono::seconds(2));
  REQUIRE(options.notes.size() == 1);
  CHECK(options.notes[0] == "--rdzv-conf close_timeout has no effect: dlaunch does not need it.");
  CHECK(refusal({"--rdzv-conf=join_timeout=soon", "p"}) ==
        "--rdzv-conf join_timeout=soon: join_timeout: 'soon' is not a duration such as 5, 500ms or "
        "2m");
}

TEST_CASE("a misspelt key or variable is not passed over in silence") {
  CHECK(refusal({"--rdzv-conf=keep_alive_intervall=2", "p"}) ==
        "--rdzv-conf keep_alive_intervall=2: there is no keep_alive_intervall; did you mean "
        "keep_alive_interval?");
  CHECK(parsed({"--rdzv-conf=store_type=file", "p"}).notes.size() == 2);  // And: of one node.
  const auto notes = [](Strings variables) { return parsed({"p"}, variables).notes; };
  CHECK(notes({"DLAUNCH_MAX_RESTART=3"}) ==
        Strings{"DLAUNCH_MAX_RESTART has no effect; did you mean DLAUNCH_MAX_RESTARTS?"});
  CHECK(notes({"PET_NNODE=1"}) == Strings{"PET_NNODE has no effect; did you mean PET_NNODES?"});
  CHECK(notes({"PET_RESULT=f"}) ==
        Strings{"PET_RESULT has no effect; did you mean DLAUNCH_RESULT?"});
  CHECK(notes({"DLAUNCH_TABLE=f", "DLAUNCH_WORKER_JOB=j", "DLAUNCH_COLOR=red", "PET_NAME=cat",
               "DLAUNCH_MAX_RESTART="})
            .empty());
}

TEST_CASE("what was ignored at the start is not handled, and that is said where it was asked for") {
  const std::vector<int> ignored = {SIGHUP, SIGPIPE};
  const auto started = [&](const Strings& arguments) {
    return std::get<JobSpec>(read_job(arguments, {}, {}, {.ignored_signals = ignored}));
  };
  auto options = started({"p"});
  CHECK(options.signals == std::vector<int>{SIGTERM, SIGINT, SIGQUIT});
  CHECK(options.signals_ignored == std::vector<int>{SIGHUP});
  CHECK(options.notes.empty());
  options = started({"--signals-to-handle=SIGHUP", "p"});
  CHECK(options.signals.empty());
  CHECK(
      options.notes ==
      Strings{"--signals-to-handle SIGHUP has no effect: it was ignored when dlaunch was started, "
              "and stays so."});
}

TEST_CASE("what has no effect is said once each") {
  const auto options =
      parsed({"--start-method=fork", "--monitor-interval=5", "p"}, {"PET_MASTER_ADDR=job-0.job"});
  REQUIRE(options.notes.size() == 3);
  CHECK(options.notes[0] ==
        "--start-method fork has no effect: workers are programs of their own, never forks of the "
        "launcher.");
  CHECK(options.notes[1] == "--monitor-interval 5 has no effect: a worker's end is seen at once.");
  CHECK(options.notes[2] ==
        "PET_MASTER_ADDR=job-0.job has no effect: on one node the workers meet at 127.0.0.1.");
  CHECK(refusal({"--start-method=teleport", "p"}) ==
        "--start-method teleport: 'teleport' is none of spawn, fork, forkserver");
}

TEST_CASE("--ends-with-stdin: no rank has the input") {
  CHECK(parsed({"p"}).stdin_rank == 0);
  const auto options = parsed({"--ends-with-stdin", "p"});
  CHECK(!options.stdin_rank);
  CHECK(options.notes.empty());
  CHECK(parsed({"--ends-with-stdin", "--stdin", "none", "p"}).notes.empty());
  const auto asked = parsed({"--ends-with-stdin", "--stdin", "1", "p"});
  CHECK(!asked.stdin_rank);
  REQUIRE(asked.notes.size() == 1);
  CHECK(asked.notes[0] ==
        "--stdin 1 has no effect: dlaunch itself waits for its end (--ends-with-stdin).");
}

TEST_CASE("--standalone takes any free port, and sets aside what speaks of a rendezvous") {
  const auto options = parsed({"--standalone", "--rdzv-id=7", "--rdzv-endpoint=head:1", "p"});
  CHECK(options.master_port == 0);
  CHECK_FALSE(options.master_port_insisted);
  CHECK_FALSE(options.job_id);
  REQUIRE(options.notes.size() == 2);
  CHECK(options.notes[0] == "--rdzv-id 7 has no effect: --standalone sets it.");
  const auto insisted = parsed({"--standalone", "--master-port=4711", "p"});
  CHECK(insisted.master_port == 4711);
  CHECK(insisted.master_port_insisted);
  CHECK_FALSE(parsed({"--master-port=0", "p"}).master_port_insisted);
}

TEST_CASE("precedence: command line, DLAUNCH_, PET_, file, default; and the origin is known") {
  const Strings pet = {"PET_NPROC_PER_NODE=3", "PET_ROLE=pet", "PET_MASTER_PORT=1"};
  const Strings both = {"PET_NPROC_PER_NODE=3", "DLAUNCH_NPROC_PER_NODE=2", "PET_ROLE=pet"};
  const auto config = file("nproc-per-node = 9\nrole = \"file\"\nmax_restarts = 7\n");

  auto options = parsed({"--nproc-per-node=4", "--config=job.toml", "p"}, both, config);
  CHECK(options.workers.number == 4);
  CHECK(setting(options, "nproc-per-node") ==
        Setting{"nproc-per-node", "4", Origin::command_line, ""});
  CHECK(setting(options, "role") == Setting{"role", "pet", Origin::pet_variable, "PET_ROLE"});
  CHECK(setting(options, "max-restarts") ==
        Setting{"max-restarts", "7", Origin::config_file, "job.toml:3"});
  CHECK(setting(options, "tee") == Setting{"tee", "0", Origin::standard, ""});

  options = parsed({"p"}, both);
  CHECK(options.workers.number == 2);
  CHECK(setting(options, "nproc-per-node").where == "DLAUNCH_NPROC_PER_NODE");
  options = parsed({"p"}, pet);
  CHECK(options.workers.number == 3);
  CHECK(options.master_port_insisted);
  options = parsed({"--config=job.toml", "p"}, {}, config);
  CHECK(options.workers.number == 9);
  CHECK(options.role == "file");
}

TEST_CASE("variables: empty ones say nothing, wrong ones are named") {
  CHECK(parsed({"p"}, {"PET_NNODES=", "DLAUNCH_TEE="}).workers.number == 1);
  CHECK(refusal({"p"}, {"DLAUNCH_NPROC_PER_NODE=many"}) ==
        "DLAUNCH_NPROC_PER_NODE=many: 'many' is neither a number nor cpu, gpu or auto");
  // A stronger value hides a wrong one.
  CHECK(parsed({"--nproc-per-node=2", "p"}, {"PET_NPROC_PER_NODE=many"}).workers.number == 2);
  CHECK(parsed({"p"}, {"DLAUNCH_STANDALONE=true"}).master_port == 0);
  CHECK(parsed({"--standalone=0", "p"}, {"PET_STANDALONE=1"}).master_port == 29500);
  // Ours alone are not torchrun's; what stands for no option, and flags that end at once, do not
  // count.
  CHECK_FALSE(parsed({"p"}, {"PET_DRY_RUN=1"}).dry_run);
  CHECK(parsed({"p"}, {"DLAUNCH_HELP=1", "DLAUNCH_WORKER_JOB=x", "DLAUNCH_=1", "PET_x"}).program ==
        Strings{"p"});
}

TEST_CASE("the configuration file") {
  const auto config = [](const std::string& text) {
    return refusal({"--config=job.toml", "p"}, {}, 78, file(text));
  };
  CHECK(refusal({"--config=none.toml", "p"}, {}, 78, file("")) ==
        "--config none.toml: cannot be read");
  CHECK(config("nproc = 3") == "job.toml:1: unknown key nproc; did you mean nproc-per-node?");
  CHECK(config("help = true") ==
        "job.toml:1: unknown key help; dlaunch --help all lists the options");
  CHECK(config("config = \"x\"").starts_with("job.toml:1: unknown key config"));
  CHECK(config("nproc-per-node = -1") == "job.toml:1: nproc-per-node = -1: at least 1 is needed");
  CHECK(config("[launch]\ntee = 3") == "job.toml:1: section [launch]: there are no sections");
  CHECK(config("tee = 3\ntee = 1") == "job.toml:2: tee is given twice; leave one out");
  const auto options = parsed({"p"}, {"DLAUNCH_CONFIG=job.toml"},
                              file("# a comment\nstandalone = true\nlocal_ranks_filter = [0, 1]\n"
                                   "log-dir = \"/a b\"\ntee = \"0:1,1:2\"\n"
                                   "signals-to-handle = ['SIGINT', 'SIGTERM']\n"));
  CHECK(options.tee.of(1) == Streams{.out = false, .err = true});
  CHECK(options.signals == std::vector<int>{SIGINT, SIGTERM});
  CHECK(options.master_port == 0);
  CHECK(options.local_ranks_filter == std::vector<int>{0, 1});
  CHECK(options.log_dir == "/a b");
}

TEST_CASE("help and version end at once, with 0") {
  const Strings nothing;
  for (const auto& arguments : std::vector<Strings>{{"--help", "all"},
                                                    {"-h", "all"},
                                                    {"--nproc-per-node=x", "--help=all"},
                                                    {"run", "-h", "all"}}) {
    const auto result = read_job(arguments, nothing);
    CHECK(std::get<EarlyExit>(result) == EarlyExit{.code = 0, .text = option_table().help()});
  }
  // Examples, and what follows from here.
  const auto brief = std::get<EarlyExit>(read_job(Strings{"--help"}, nothing));
  CHECK(brief == option_table().help_asked({}, ""));
  for (const auto& arguments :
       std::vector<Strings>{{"-h"}, {"run", "-h"}, {"--nproc-per-node=x", "-h", "train.py"}}) {
    CHECK(std::get<EarlyExit>(read_job(arguments, nothing)) == brief);
  }
  CHECK(refusal({"--help=everything"}) ==
        "--help=everything: 'everything' is none of all, program, workers, meeting, failure, "
        "output, configuration");
  const Strings version = {"--version"};
  const auto result = read_job(version, nothing);
  CHECK(std::get<EarlyExit>(result).code == 0);
  CHECK(std::get<EarlyExit>(result).text.starts_with("dlaunch "));
}

TEST_CASE("which variables stand for a flag") {
  for (const auto* name : {"DLAUNCH_NPROC_PER_NODE", "PET_NPROC_PER_NODE"}) {
    REQUIRE(option_of_variable(name) != nullptr);
    CHECK(option_of_variable(name)->flag == "nproc-per-node");
  }
  CHECK(option_of_variable("DLAUNCH_RESULT") != nullptr);
  for (const auto* name : {"PET_RESULT", "DLAUNCH_WORKER_JOB", "NPROC_PER_NODE",
                           "DLAUNCH_nproc_per_node", "DLAUNCH_HELP"}) {
    CHECK(option_of_variable(name) == nullptr);
  }
}

TEST_CASE("the table: every default is one that its own option accepts") {
  for (const auto& row : option_rows()) {
    const Option& option = row.option;
    CAPTURE(option.flag);
    CHECK(option_table().find(option.flag) == &option);
    CHECK((row.apply == nullptr) == option.ends());
    if (row.apply == nullptr || option.standard.empty()) continue;
    Draft draft;
    CHECK_FALSE(row.apply(draft, option.standard));
  }
}
