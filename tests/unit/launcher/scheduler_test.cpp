// What follows from the variables of schedulers, as they were recorded from the real ones
// (tests/process/schedulers/record_environments) where those run here, else as their documents say.
#include "launcher/scheduler/scheduler.hpp"

#include "tests/unit/launcher/recorded.hpp"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

namespace dlaunch::launcher {
namespace {

using Lines = std::vector<std::string>;

SchedulerPlace place_in(const Environment& environment, const FileReader& read_file = {}) {
  auto place = scheduler_place(environment, read_file);
  REQUIRE(place.has_value());
  return *place;
}

/// "nnodes=3 (Slurm: SLURM_STEP_NUM_NODES)", or the note or refusal.
Lines told(const Environment& environment, const AskedOfNodes& asked = {},
           const FileReader& read_file = {}) {
  const auto settings = scheduler_settings(place_in(environment, read_file), asked);
  Lines lines;
  for (const auto& s : settings.settings) {
    lines.push_back(std::string(s.flag) + "=" + s.value + " (" + s.where + ")");
  }
  if (!settings.note.empty()) lines.push_back("note: " + settings.note);
  if (!settings.refusal.empty()) lines.push_back("refused: " + settings.refusal);
  return lines;
}

AskedOfNodes nodes(int most, bool meeting = false) {
  return {.standalone = false, .most = most, .meeting = meeting};
}

/// One of the lines has that part.
bool one_has(const Lines& lines, std::string_view part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const auto& line) { return line.find(part) != std::string::npos; });
}

FileReader hosts_file(std::string text) {
  return [text = std::move(text)](const std::string& path) -> std::optional<std::string> {
    if (path != "/etc/hosts") return std::nullopt;
    return text;
  };
}

}  // namespace

TEST_CASE("no scheduler, no place") {
  CHECK_FALSE(scheduler_place(Environment{"PATH=/bin", "HOSTNAME=n1"}).has_value());
  CHECK_FALSE(scheduler_place(Environment{"SLURM_JOB_ID=", "PMI_RANK=1", "RANK=0"}).has_value());
}

TEST_CASE("a worker that launches again launches for itself") {
  const auto environment = recorded("slurm_srun", 1);
  CHECK_FALSE(scheduler_place(with(environment, "DLAUNCH_WORKER_JOB", "j")).has_value());
  CHECK_FALSE(scheduler_place(with(environment, "TORCHELASTIC_RUN_ID", "j")).has_value());
}

TEST_CASE("srun: all that several nodes need") {
  for (const int process : {0, 1, 2}) {
    const std::string rank = std::to_string(process);
    CHECK(told(recorded("slurm_srun", process)) ==
          Lines{"nnodes=3 (Slurm: SLURM_STEP_NUM_NODES)",
                "node-rank=" + rank + " (Slurm: SLURM_NODEID)",
                "node-id=n" + std::to_string(process + 1) + " (Slurm: SLURM_STEP_NODELIST)",
                "rdzv-id=slurm-1.0 (Slurm: SLURM_JOB_ID, SLURM_STEP_ID)",
                "rdzv-endpoint=n1:15099 (Slurm: SLURM_STEP_NODELIST)",
                "rdzv-role=" + std::string(process == 0 ? "host" : "join") +
                    " (Slurm: SLURM_NODEID)"});
  }
}

TEST_CASE("srun: what was asked for counts more") {
  const auto environment = recorded("slurm_srun", 2);
  CHECK(told(environment, nodes(1)).empty());
  CHECK(told(environment, {.standalone = true, .most = {}, .meeting = false}).empty());
  const Lines elsewhere = told(environment, {.standalone = false, .most = {}, .meeting = true});
  CHECK(one_has(elsewhere, "node-rank=2"));
  CHECK(one_has(elsewhere, "rdzv-id=slurm-1.0"));
  CHECK_FALSE(one_has(elsewhere, "rdzv-endpoint"));
  CHECK_FALSE(one_has(elsewhere, "rdzv-role"));
  // Two nodes of three: the third is a spare, without a number.
  const Lines spare = told(environment, nodes(2));
  CHECK_FALSE(one_has(spare, "nnodes"));
  CHECK_FALSE(one_has(spare, "node-rank"));
  CHECK(one_has(spare, "rdzv-endpoint=n1:15099"));
}

TEST_CASE("srun in a batch script, on a part of the job, of several components, in any order") {
  CHECK(one_has(told(recorded("slurm_sbatch", 1)), "rdzv-endpoint=n1:"));
  const auto part = told(recorded("slurm_part_of_job", 1));
  CHECK(one_has(part, "nnodes=2"));
  CHECK(one_has(part, "node-id=n3"));
  CHECK(one_has(part, "rdzv-endpoint=n2:"));
  const auto third = told(recorded("slurm_heterogeneous", 2));
  CHECK(one_has(third, "nnodes=3"));
  CHECK(one_has(third, "node-rank=2"));
  CHECK(one_has(third, "rdzv-endpoint=n1:"));
  // Task 0 runs on n3, the second node.
  CHECK(place_in(recorded("slurm_arbitrary", 0)).node_rank == 1);
  CHECK(one_has(told(recorded("slurm_arbitrary", 0)), "rdzv-endpoint=n1:"));
  // Its PMI_RANK is not hydra's.
  CHECK(place_in(recorded("slurm_pmi2", 1)).scheduler == "Slurm");
}

TEST_CASE("the deadline is a little before the end of the Slurm job, whoever started us in it") {
  const Environment job{"SLURM_JOB_ID=7", "SLURM_JOB_END_TIME=1795442410"};
  CHECK(scheduler_deadline(job) == Told{"@1795442400", "SLURM_JOB_END_TIME"});
  CHECK(scheduler_deadline(with(job, "OMPI_COMM_WORLD_SIZE", "2")).value == "@1795442400");
  CHECK(scheduler_deadline(with(job, "DLAUNCH_WORKER_JOB", "j")).value.empty());
  for (const auto end : {"", "0", "4294967294", "4294967295", "99999999999999999", "soon"}) {
    CAPTURE(end);
    CHECK(scheduler_deadline(with(job, "SLURM_JOB_END_TIME", end)).value.empty());
  }
  CHECK(scheduler_deadline(Environment{"SLURM_JOB_END_TIME=1795442410"}).value.empty());
}

TEST_CASE("the steps of a Slurm job meet at different ports, and have ids of their own") {
  const auto first = place_in(recorded("slurm_sbatch", 0));
  const auto second = place_in(recorded("slurm_part_of_job", 0));
  CHECK(first.port != second.port);
  CHECK(first.job_id.value != second.job_id.value);
}

TEST_CASE("more than one task on a node is refused, with the line that is right") {
  const Lines four = told(recorded("slurm_four_tasks", 5));
  CHECK(four == Lines{"refused: srun started dlaunch 12 times on 3 nodes, but it is to be started "
                      "once on each and starts the workers itself: srun --ntasks=3 "
                      "--ntasks-per-node=1 dlaunch --nproc-per-node ...; --standalone where each "
                      "is a job of its own"});
  CHECK(one_has(told(recorded("slurm_uneven", 4)), "refused: srun started dlaunch 5 times on 3"));
  // The batch script's --ntasks-per-node=4 came in by SLURM_NTASKS; --ntasks overrides it.
  CHECK(one_has(told(recorded("slurm_ntasks_exported", 3)), "srun --ntasks=2 --ntasks-per-node=1"));
  CHECK(one_has(told(recorded("slurm_ntasks_given", 1)), "nnodes=2"));
  CHECK(told(recorded("slurm_four_tasks", 5), nodes(1)).empty());
  const Environment one_node{"SLURM_JOB_ID=7",          "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1",
                             "SLURM_STEP_NUM_TASKS=4",  "SLURM_NODEID=0",  "SLURM_LOCALID=2",
                             "SLURM_STEP_NODELIST=gpu1"};
  CHECK(one_has(told(one_node), "srun started dlaunch 4 times on one node, but"));
}

TEST_CASE("a batch script's own process is one node, and says so") {
  const auto environment = recorded("slurm_batch_script", 0);
  CHECK(told(environment) ==
        Lines{"note: this is one node of Slurm job 8, which has 3: srun --ntasks=3 "
              "--ntasks-per-node=1 dlaunch ... uses them all; --nnodes 1 says that one is meant"});
  CHECK(told(environment, nodes(1)).empty());
  CHECK(one_has(told(environment, nodes(3)), "refused: this is one node of Slurm job 8"));
  CHECK(told(with(environment, "SLURM_JOB_NUM_NODES", "1")).empty());
  // As salloc -N2 starts a shell, where Slurm is configured to do that on the first node.
  const Environment shell{"SLURM_JOB_ID=2",           "SLURM_JOB_NUM_NODES=2",  "SLURM_NODEID=0",
                          "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_NODES=1", "SLURM_LOCALID=0",
                          "SLURM_STEP_NUM_TASKS=1",   "SLURM_STEP_NODELIST=n1"};
  CHECK(one_has(told(shell), "note: this is one node of Slurm job 2, which has 2: srun"));
}

TEST_CASE("one node under srun needs nothing") {
  const Environment environment{
      "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1",  "SLURM_STEP_NUM_TASKS=1",
      "SLURM_NODEID=0", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=gpu1"};
  CHECK(told(environment).empty());
}

TEST_CASE("Slurm's variables that contradict each other are refused") {
  const auto environment = recorded("slurm_srun", 1);
  CHECK(one_has(told(with(environment, "SLURM_STEP_NODELIST", "n[1-4]")),
                "SLURM_STEP_NUM_NODES is 3, SLURM_STEP_NODELIST names 4"));
  CHECK(one_has(told(with(environment, "SLURMD_NODENAME", "n7")),
                "SLURMD_NODENAME is n7, but node SLURM_NODEID of SLURM_STEP_NODELIST is n2"));
  CHECK(one_has(told(with(environment, "SLURM_STEP_NODELIST", "n[1-")), "closing bracket"));
  CHECK(one_has(told(with(environment, "SLURM_NODEID", "3")), "at most 2 is allowed"));
  CHECK(one_has(told(with(environment, "SLURM_NODEID", "x")), "'x' is not a whole number"));
  CHECK(one_has(told(with(environment, "SLURM_NODEID", "")), "SLURM_NODEID: it is missing"));
  CHECK(one_has(told(with(environment, "SLURM_STEP_NUM_NODES", "100001")), "at most 100000"));
  CHECK(one_has(told(with(environment, "SLURM_STEP_ID", "x")), "SLURM_STEP_ID is no number"));
  CHECK(told(with(environment, "SLURM_NODEID", "x"), nodes(1)).empty());
}

TEST_CASE("ports: in range, and different for jobs and steps that run at a time") {
  std::set<std::uint16_t> ports;
  for (std::uint64_t job = 4'294'967'290; job < 4'294'967'290 + 100; ++job) {
    for (std::uint64_t step = 0; step < 99; ++step) ports.insert(port_of_job(job, step));
  }
  CHECK(ports.size() == 100 * 99);
  CHECK(*ports.begin() >= 15'000);
  CHECK(*ports.rbegin() < 25'000);
  CHECK(port_of_job(~std::uint64_t{0}, ~std::uint64_t{0}) >= 15'000);
  // The nodes of a job may run different builds: these stay as they are.
  CHECK(port_of_job("train") == 17'663);
  CHECK(port_of_job("") == 17'286);
}

TEST_CASE("mpirun: meets on the node where mpirun runs") {
  const std::string id = "rdzv-id=mpirun-";
  for (const int process : {0, 2}) {
    const Lines lines = told(recorded("open_mpi", process));
    REQUIRE(lines.size() == 5);
    CHECK(lines[0] == "nnodes=3 (Open MPI: OMPI_COMM_WORLD_SIZE)");
    CHECK(lines[1] == "node-rank=" + std::to_string(process) + " (Open MPI: OMPI_COMM_WORLD_RANK)");
    CHECK(lines[2].starts_with(id));
    CHECK(lines[3].starts_with("rdzv-endpoint=10.77.0.1:"));
    CHECK(lines[3].ends_with(" (Open MPI: OMPI_MCA_orte_hnp_uri)"));
    CHECK(lines[4].starts_with(process == 0 ? "rdzv-role=host" : "rdzv-role=join"));
    CHECK(lines[2] == told(recorded("open_mpi", 1))[2]);
    CHECK(lines[3] == told(recorded("open_mpi", 1))[3]);
  }
  CHECK(one_has(told(recorded("open_mpi_in_slurm", 0)), "rdzv-endpoint=10.77.0.1:"));
  CHECK(one_has(told(recorded("open_mpi_in_slurm", 1)), "node-rank=1"));
}

TEST_CASE("mpirun on a host that is not of the job: the first process says which option helps") {
  CHECK(told(recorded("open_mpi_from_elsewhere", 0)) ==
        Lines{"refused: mpirun runs on 10.77.0.1, which is not the job's first node, so the others "
              "cannot know where to meet: add --rdzv-endpoint HOST:PORT, HOST being the first node "
              "(n2)"});
  CHECK(one_has(told(recorded("open_mpi_from_elsewhere", 0), {false, std::nullopt, true}),
                "nnodes=2"));
}

TEST_CASE("Open MPI 5: the name of mpirun's host stands in the job's name") {
  for (const int process : {0, 1, 2}) {
    const Lines lines = told(recorded("open_mpi_5", process));
    REQUIRE(lines.size() == 5);
    CHECK(lines[1] == "node-rank=" + std::to_string(process) + " (Open MPI: OMPI_COMM_WORLD_RANK)");
    CHECK(lines[2] == "rdzv-id=mpirun-prterun-n1-40@1 (Open MPI: PMIX_NAMESPACE)");
    CHECK(lines[3].starts_with("rdzv-endpoint=n1:"));
    CHECK(lines[3].ends_with(" (Open MPI: PMIX_NAMESPACE)"));
    CHECK(lines[3] == told(recorded("open_mpi_5", 0))[3]);
    CHECK(lines[4].starts_with(process == 0 ? "rdzv-role=host" : "rdzv-role=join"));
  }
  CHECK(one_has(told(recorded("open_mpi_5_from_elsewhere", 0)),
                "refused: mpirun runs on n1, which is not the job's first node"));
  CHECK(one_has(told(recorded("open_mpi_5_four", 3)),
                "refused: mpirun started dlaunch 2 times on one node"));
  const auto named = [](const std::string& job) {
    return told(with(recorded("open_mpi_5", 0), "PMIX_NAMESPACE", job));
  };
  CHECK(one_has(named("prterun-gpu-node-7-40@1"), "rdzv-endpoint=gpu-node-7:"));
  for (const auto* job : {"prterun-40@1", "prterun--40@1", "prterun-", "prte-n1-40@1", "x"}) {
    CHECK(one_has(named(job), "refused: mpirun tells the nodes of the job no address"));
  }
}

TEST_CASE("mpirun's contact: several interfaces, IPv6 only, none") {
  const auto at = [](const std::string& contact) {
    auto environment = with(recorded("open_mpi", 0), "OMPI_MCA_orte_hnp_uri", contact);
    return told(with(environment, "OMPI_MCA_orte_local_daemon_uri", contact));
  };
  CHECK(one_has(at("35.0;tcp://10.0.0.1,10.1.0.1:423;tcp6://[fd00::2]:50"), "=10.0.0.1:"));
  CHECK(one_has(at("35.0;tcp6://[fd00::2,fd00::3]:50"), "=[fd00::2]:"));
  CHECK(one_has(at("35.0;usock"), "refused: mpirun tells the nodes of the job no address"));
  CHECK(one_has(at(""), "refused: mpirun tells the nodes of the job no address"));
  // If mpirun tells nothing, a batch job around it has a list.
  const auto in_slurm = with(recorded("open_mpi_in_slurm", 2), "OMPI_MCA_orte_hnp_uri", "");
  CHECK(one_has(told(in_slurm), "rdzv-endpoint=n1:"));
}

TEST_CASE("mpirun and mpiexec with several processes a node are refused") {
  CHECK(one_has(told(recorded("open_mpi_four", 3)),
                "refused: mpirun started dlaunch 2 times on one node, but it is to be started "
                "once on each and starts the workers itself: mpirun --map-by ppr:1:node dlaunch"));
  CHECK(one_has(told(recorded("hydra_four", 3)),
                "refused: mpiexec started dlaunch 2 times on one node, but it is to be started "
                "once on each and starts the workers itself: mpiexec -ppn 1 dlaunch"));
}

TEST_CASE("hydra: ranks, but the meeting place has to be given") {
  CHECK(
      one_has(told(recorded("hydra", 0)),
              "refused: mpiexec tells the nodes of the job no address to meet at: add "
              "--rdzv-endpoint HOST:PORT, HOST being the first of them; where mpiexec itself runs "
              "there: --rdzv-endpoint \"$(hostname):29400\""));
  CHECK(told(recorded("hydra", 1), {false, std::nullopt, true}) ==
        Lines{"nnodes=3 (MPICH hydra: PMI_SIZE)", "node-rank=1 (MPICH hydra: PMI_RANK)"});
}

TEST_CASE("hydra in a Slurm job: the job's first node") {
  for (const int process : {0, 1}) {
    const Lines lines = told(recorded("hydra_in_slurm", process));
    CHECK(one_has(lines, "node-rank=" + std::to_string(process)));
    CHECK(one_has(lines, "rdzv-endpoint=n1:"));
    CHECK(one_has(lines, "(MPICH hydra: SLURM_JOB_NODELIST)"));
  }
  // Hosts chosen by hand: the first process is elsewhere, sees it, and ends the job.
  const auto moved = with(recorded("hydra_in_slurm", 0), "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "n3");
  CHECK(one_has(told(moved), "refused: mpiexec tells"));
  const auto full = with(recorded("hydra_in_slurm", 0), "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "n1.x");
  CHECK(one_has(told(full), "rdzv-endpoint=n1:"));
}

TEST_CASE("PMIx alone tells a rank and a job") {
  const Environment environment{"PMIX_RANK=1", "PMIX_NAMESPACE=prterun-a-12@1"};
  CHECK(one_has(told(environment), "note: process 1 of a PMIx job runs as a job of its own"));
  CHECK(one_has(told(environment, nodes(2)), "refused: PMIx tells"));
  CHECK(
      told(environment, nodes(2, true)) ==
      Lines{"node-rank=1 (PMIx: PMIX_RANK)", "rdzv-id=pmix-prterun-a-12@1 (PMIx: PMIX_NAMESPACE)"});
  CHECK_FALSE(one_has(told(with(environment, "PMIX_NAMESPACE", "a b"), nodes(2, true)), "rdzv-id"));
}

TEST_CASE("Kubernetes Indexed Job: the first pod's name from the own one") {
  const Environment pod{"KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=1",
                        "HOSTNAME=train-1"};
  const auto hosts = hosts_file(
      "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\nfe00::0\tip6-localnet\n"
      "10.244.1.5\ttrain-1.train.ml.svc.cluster.local\ttrain-1\n");
  CHECK(told(pod, nodes(4), hosts) ==
        Lines{"node-rank=1 (Kubernetes Indexed Job: JOB_COMPLETION_INDEX)",
              "rdzv-id=train (Kubernetes Indexed Job: HOSTNAME)",
              "rdzv-endpoint=train-0.train.ml.svc.cluster.local:17663 (Kubernetes Indexed Job: "
              "HOSTNAME, /etc/hosts)",
              "rdzv-role=join (Kubernetes Indexed Job: JOB_COMPLETION_INDEX)"});
  CHECK(told(pod, {}, hosts) ==
        Lines{"note: pod 1 of the Kubernetes Indexed Job train runs as a job of its own: "
              "Kubernetes does not tell how many pods there are; --nnodes N makes one job of them, "
              "--nnodes 1 says that this is meant"});
  CHECK(told(pod, nodes(1), hosts).empty());
  const auto full = with(pod, "HOSTNAME", "train-1.train.ml.svc.cluster.local");
  CHECK(one_has(told(full, nodes(4)), "=train-0.train.ml.svc.cluster.local:17663"));
}

TEST_CASE("Kubernetes Indexed Job: no name to meet at") {
  const Environment pod{"JOB_COMPLETION_INDEX=1", "HOSTNAME=train-1"};
  const std::string no_domain =
      "refused: the pod train-1 has no domain, so the others cannot look up train-0: set "
      "spec.template.spec.subdomain of the Job to the name of a headless Service, or add "
      "--rdzv-endpoint HOST:PORT";
  CHECK(told(pod, nodes(2)) == Lines{no_domain});
  CHECK(told(pod, nodes(2), hosts_file("10.244.1.5 train-1 # train-1.x\n")) == Lines{no_domain});
  CHECK(told(pod, nodes(2), hosts_file("10.244.1.5 train-12.train.ml\n")) == Lines{no_domain});
  CHECK(one_has(told(with(pod, "HOSTNAME", "worker7"), nodes(2)),
                "refused: the host name 'worker7' is not the Job's name and -1"));
  CHECK(one_has(told(with(pod, "HOSTNAME", ""), nodes(2)), "refused: the host name ''"));
  CHECK(one_has(told(pod, nodes(2, true)), "node-rank=1"));
  CHECK(one_has(told(with(pod, "JOB_COMPLETION_INDEX", "x"), nodes(2)),
                "refused: Kubernetes Indexed Job's variable JOB_COMPLETION_INDEX: 'x' is not"));
}

TEST_CASE("JobSet: by its downward variables, with and without a subdomain of its own") {
  const Environment pod{"JOB_COMPLETION_INDEX=3", "HOSTNAME=llm-workers-0-3", "JOBSET_NAME=llm",
                        "REPLICATED_JOB_NAME=workers"};
  const Lines lines = told(pod, nodes(4));
  CHECK(one_has(lines, "node-rank=3 (JobSet: JOB_COMPLETION_INDEX)"));
  CHECK(one_has(lines, "rdzv-id=llm-workers"));
  CHECK(one_has(lines, "rdzv-endpoint=llm-workers-0-0.llm:"));
  CHECK(one_has(lines, "rdzv-role=join"));
  const auto hosts =
      hosts_file("10.1.0.9 llm-workers-0-3.net.ml.svc.cluster.local llm-workers-0-3\n");
  CHECK(one_has(told(pod, nodes(4), hosts), "=llm-workers-0-0.net.ml.svc.cluster.local:"));
  CHECK(one_has(told(pod), "note: pod 3 of the JobSet llm-workers runs as a job of its own"));
  // The pods of a second job: numbered where they meet, since nothing tells how many come before.
  auto second = with(pod, "HOSTNAME", "llm-workers-1-0");
  second = with(second, "JOB_COMPLETION_INDEX", "0");
  const Lines later = told(second, nodes(4));
  CHECK_FALSE(one_has(later, "node-rank"));
  CHECK(one_has(later, "rdzv-endpoint=llm-workers-0-0.llm:"));
  CHECK(one_has(later, "rdzv-role=join"));
  CHECK_FALSE(one_has(told(with(pod, "JOB_INDEX", "2"), nodes(4)), "node-rank"));
  // Without the variables it is the Indexed Job of which the JobSet consists.
  const Environment plain{"JOB_COMPLETION_INDEX=3", "HOSTNAME=llm-workers-0-3"};
  CHECK(one_has(told(plain, nodes(4), hosts), "=llm-workers-0-0.net.ml.svc.cluster.local:"));
}

TEST_CASE("Kubeflow PyTorchJob, and Trainer's PET_ variables") {
  const Environment worker{"KUBERNETES_SERVICE_HOST=10.96.0.1",
                           "RANK=2",
                           "WORLD_SIZE=3",
                           "MASTER_ADDR=train-master-0",
                           "MASTER_PORT=23456",
                           "HOSTNAME=train-worker-1"};
  CHECK(told(worker) ==
        Lines{"nnodes=3 (Kubeflow PyTorchJob: WORLD_SIZE)",
              "node-rank=2 (Kubeflow PyTorchJob: RANK)",
              "rdzv-endpoint=train-master-0:23456 (Kubeflow PyTorchJob: MASTER_ADDR)",
              "rdzv-role=join (Kubeflow PyTorchJob: RANK)"});
  auto master = with(with(worker, "RANK", "0"), "HOSTNAME", "train-master-0");
  master = with(master, "MASTER_ADDR", "localhost");
  CHECK(one_has(told(master), "rdzv-endpoint=train-master-0:23456"));
  CHECK(one_has(told(master), "rdzv-role=host"));
  CHECK(one_has(told(with(worker, "MASTER_PORT", "70000")), "refused: Kubeflow PyTorchJob's"));
  // Not in a pod, these are the four variables of torch's env://.
  CHECK_FALSE(scheduler_place(with(worker, "KUBERNETES_SERVICE_HOST", "")).has_value());
  CHECK_FALSE(scheduler_place(with(worker, "PET_NNODES", "3")).has_value());
}

}  // namespace dlaunch::launcher
