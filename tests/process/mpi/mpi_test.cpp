// Programs of real MPIs under dlaunch: those that this machine has, MPICH and Open MPI.
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <csignal>
#include <filesystem>
#include <functional>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;

struct Mpi {
  std::string name;
  std::string program;  ///< mpi_rank, compiled by it.
  bool runs = false;
};

bool exists(const std::string& path) { return std::filesystem::exists(path); }

std::string built(const std::string& file) { return std::string(DLAUNCH_BINARY_DIR) + "/" + file; }

const std::vector<Mpi>& mpis() {
  static const std::vector<Mpi> all = {
      {"mpich", built("tests/mpi_rank.mpich"), exists(built("tests/mpi_rank.mpich"))},
      {"openmpi", built("tests/mpi_rank.openmpi"),
       exists(built("tests/mpi_rank.openmpi")) && exists(built("lib/libdlaunch_pmix.so.0"))}};
  return all;
}

/// Runs a case with each MPI that is here; skipped where there is none.
void with_each(const std::function<void(const Mpi&)>& check) {
  bool some = false;
  for (const Mpi& mpi : mpis()) {
    if (!mpi.runs) continue;
    some = true;
    INFO(mpi.name);
    check(mpi);
  }
  if (!some) testing::skipped("neither mpicc.mpich nor mpicc.openmpi with libpmix-dev is here");
}

/// Ranks of several tests share few processors.
/// Open MPI 5 finds no way over TCP between two nodes that are one host, unless it is told that.
const Job::Environment calm = {{"OMPI_MCA_mpi_yield_when_idle", "1"},
                               {"OMPI_MCA_btl_tcp_if_include", "lo"}};

Job run(const Mpi& mpi, int ranks, const std::string& mode, Strings options = {}) {
  options.insert(options.end(),
                 {"--standalone", "--nproc-per-node", std::to_string(ranks), mpi.program, mode});
  return Job(options, calm);
}

}  // namespace

TEST_CASE("ranks of one node are one world") {
  with_each([](const Mpi& mpi) {
    for (const int ranks : {1, 2, 4}) {
      Job job = run(mpi, ranks, "work");
      CHECK(job.wait().code == 0);
      INFO(job.out() << job.err());
      CHECK(count(job.out(), " of " + std::to_string(ranks) + ": right") == ranks);
      CHECK(job.err().empty());
    }
  });
}

TEST_CASE("ranks of two nodes are one world") {
  with_each([](const Mpi& mpi) {
    for (const int of_node : {1, 2}) {
      Nodes nodes("2", {mpi.program, "work"}, {"--nproc-per-node", std::to_string(of_node)}, calm);
      Job& a = nodes.add({"--node-id", "a"});
      Job& b = nodes.add({"--node-id", "b"});
      CHECK(a.wait().code == 0);
      CHECK(b.wait().code == 0);
      INFO(a.out() << a.err() << b.out() << b.err());
      const std::string world = " of " + std::to_string(2 * of_node) + ": right";
      CHECK(count(a.out(), world) == of_node);
      CHECK(count(b.out(), world) == of_node);
    }
  });
}

TEST_CASE("MPI_Abort ends the job with its code, and is told") {
  with_each([](const Mpi& mpi) {
    Job job = run(mpi, 2, "abort");
    CHECK(job.wait().code == 3);
    INFO(job.err());
    CHECK(contains(job.err(), "dlaunch: rank 1 called MPI_Abort, code 3"));
  });
}

TEST_CASE("MPI_Abort on one node ends the other") {
  with_each([](const Mpi& mpi) {
    Nodes nodes("2", {mpi.program, "abort"}, {"--nproc-per-node", "2"}, calm);
    Job& a = nodes.add({"--node-id", "a"});
    Job& b = nodes.add({"--node-id", "b"});
    CHECK(a.wait().code == 3);
    CHECK(b.wait().code == 3);
  });
}

TEST_CASE("a rank that exits or dies in the middle of MPI ends the job, and is named") {
  with_each([](const Mpi& mpi) {
    Job exits = run(mpi, 2, "exit");
    CHECK(exits.wait().code == 5);
    CHECK(contains(exits.err(), " exited with 5"));
    Job dies = run(mpi, 2, "die");
    CHECK(dies.wait().code == 134);
    Job leaves = run(mpi, 2, "leave");
    CHECK(leaves.wait().code == 1);
    INFO(leaves.err());
    CHECK(contains(leaves.err(), "rank 1 exited with 0 between MPI_Init and MPI_Finalize"));
  });
}

TEST_CASE("MPI_Comm_spawn is refused in words") {
  with_each([](const Mpi& mpi) {
    Job job = run(mpi, 2, "spawn");
    CHECK(job.wait().code == 0);
    INFO(job.out() << job.err());
    CHECK(contains(job.out(), "not spawned"));
    // Some builds of MPICH, Debian's among them, know that they cannot, and do not ask.
    if (mpi.name != "mpich") CHECK(contains(job.err(), "rank 0: MPI_Comm_spawn is refused"));
  });
}

TEST_CASE("after a restart the ranks are one world again") {
  with_each([](const Mpi& mpi) {
    const Strings once = {
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--no-python",
        "/bin/sh",
        "-c",
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 9; exec " + mpi.program + " work"};
    Strings line = {"--mpi", mpi.name == "mpich" ? "pmi" : "pmix"};
    line.insert(line.end(), once.begin(), once.end());
    Job job(line, calm);
    CHECK(job.wait().code == 0);
    INFO(job.out() << job.err());
    CHECK(count(job.out(), " of 2: right") == 2);
  });
}

TEST_CASE("an MPI that the program's file does not tell of is told of") {
  with_each([](const Mpi& mpi) {
    Job job({"--nproc-per-node", "2", "/bin/sh", "-c", "exec " + mpi.program + " stay"}, calm);
    CHECK(job.saw("dlaunch: rank 0 has loaded an MPI ("));
    const std::string cure = mpi.name == "mpich" ? "--mpi pmi makes" : "--mpi pmix makes";
    CHECK(job.saw("each rank is a world of its own; " + cure));
    job.send(SIGTERM);
    CHECK(job.wait().code == 128 + SIGTERM);
  });
}

TEST_CASE("what was asked for by name, and not used, is told") {
  with_each([](const Mpi& mpi) {
    const std::string other = mpi.name == "mpich" ? "pmix" : "pmi";
    if (other == "pmix" && !exists(built("lib/libdlaunch_pmix.so.0"))) return;
    Job job = run(mpi, 2, "work", {"--mpi", other});
    CHECK(job.wait().code == 0);
    INFO(job.err());
    CHECK(contains(job.err(), "--mpi " + other + ": no rank of "));
  });
}

TEST_CASE("--mpi none leaves each rank a world of its own") {
  with_each([](const Mpi& mpi) {
    Job job = run(mpi, 2, "work", {"--mpi", "none"});
    CHECK(job.wait().code == 0);
    CHECK(count(job.out(), "rank 0 of 1") == 2);
  });
}

}  // namespace dlaunch::process_test
