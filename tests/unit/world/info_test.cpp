#include "runtime/world/member/info.hpp"

#include "tests/support/expect.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using testing::contains;

std::string refusal(const Environment& environment, const Asked& asked = {}) {
  try {
    place_from(environment, launcher_of(environment), asked);
  } catch (const Error& error) {
    CHECK(error.code() == Errc::misuse);
    return error.what();
  }
  return "";
}

const Environment by_hand{
    {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}, {"RANK", "1"}, {"WORLD_SIZE", "3"}};

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}
Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment.insert_or_assign(name, value);
  return environment;
}

const Asked with_master{.master = true};

}  // namespace

TEST_CASE("what is written to the environment reads back as the same place") {
  WorldInfo info;
  info.rank = 5;
  info.size = 6;
  info.local_rank = 1;
  info.local_size = 2;
  info.node_rank = 2;
  info.node_count = 3;
  info.epoch = 7;
  info.attempt = 2;
  info.job = "job-1";
  info.master_addr = "10.0.0.1";
  info.master_port = "29500";
  const WorldPlace place = place_from(environment_of(info), Launcher::dlaunch);
  CHECK(place.info == info);
  CHECK(place.on_node);
}

TEST_CASE("under dlaunch the true local rank counts, LOCAL_RANK may be 0 for all") {
  WorldInfo info;
  info.rank = info.local_rank = 2;
  info.size = info.local_size = 3;
  const auto virtual_rank = with(environment_of(info), "LOCAL_RANK", "0");
  CHECK(place_from(virtual_rank, Launcher::dlaunch).info.local_rank == 2);
  // A user who starts ranks by hand from within a worker says LOCAL_RANK.
  CHECK(place_from(virtual_rank, Launcher::variables).info.local_rank == 0);
}

TEST_CASE("four variables are enough, and leave the place on the node open") {
  const WorldPlace place = place_from(by_hand, Launcher::variables, with_master);
  CHECK(place.info.rank == 1);
  CHECK(place.info.size == 3);
  CHECK(place.info.master_addr == "127.0.0.1");
  CHECK(place.info.master_port == "29500");
  CHECK_FALSE(place.on_node);
}

TEST_CASE("each missing variable is named, and all of them at once") {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"}) {
    const std::string why = refusal(without(by_hand, name), with_master);
    CHECK(contains(why, std::string(name) + " is missing"));
  }
  CHECK(contains(refusal({}, with_master),
                 "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are missing"));
  // An empty variable says nothing.
  CHECK(contains(refusal(with(by_hand, "MASTER_ADDR", ""), with_master), "MASTER_ADDR is missing"));
}

TEST_CASE("wrong numbers are shown, with what they may be") {
  CHECK(contains(refusal(with(by_hand, "RANK", "one")), "RANK is 'one'"));
  CHECK(contains(refusal(with(by_hand, "RANK", "-1")), "RANK is '-1'"));
  CHECK(contains(refusal(with(by_hand, "RANK", "1 ")), "RANK is '1 '"));
  CHECK(contains(refusal(with(by_hand, "RANK", "99999999999999999999")), "not a number from 0"));
  CHECK(contains(refusal(with(by_hand, "WORLD_SIZE", "0")), "not a number from 1 to"));
  CHECK(contains(refusal(with(by_hand, "MASTER_PORT", "70000"), with_master), "1 to 65535"));
  CHECK(contains(refusal(with(by_hand, "MASTER_PORT", "0"), with_master), "1 to 65535"));
}

TEST_CASE("a rank outside of the world is refused, whoever says it") {
  const std::string why = refusal(with(by_hand, "RANK", "3"));
  CHECK(contains(why, "RANK is 3, but WORLD_SIZE is 3"));
  CHECK(contains(refusal(by_hand, {.rank = 4, .size = 4}), "the rank is 4"));
}

TEST_CASE("a URL's rank and size win over the environment") {
  const WorldPlace place = place_from(by_hand, Launcher::variables, {.rank = 4, .size = 9});
  CHECK(place.info.rank == 4);
  CHECK(place.info.size == 9);
}

TEST_CASE("the environment's place on a node is that of its rank and size alone") {
  auto environment = with(by_hand, "LOCAL_RANK", "1");
  environment = with(with(environment, "LOCAL_WORLD_SIZE", "3"), "GROUP_RANK", "0");
  environment = with(environment, "GROUP_WORLD_SIZE", "1");
  CHECK(place_from(environment, Launcher::variables, {.rank = 1, .size = 3}).on_node);
  // Two of those ranks are a world of their own, where LOCAL_WORLD_SIZE cannot be 3.
  const WorldPlace place = place_from(environment, Launcher::variables, {.rank = 1, .size = 2});
  CHECK_FALSE(place.on_node);
  CHECK(place.info.local_size == 1);
  CHECK_FALSE(place_from(environment, Launcher::variables, {.rank = 0, .size = 3}).on_node);
}

TEST_CASE("foreign launchers are recognised and believed") {
  const Environment open_mpi{{"OMPI_COMM_WORLD_RANK", "2"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK(launcher_of(open_mpi) == Launcher::open_mpi);
  const WorldPlace place = place_from(open_mpi, Launcher::open_mpi);
  CHECK(place.info.rank == 2);
  CHECK(place.info.local_size == 2);

  const Environment hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  CHECK(launcher_of(hydra) == Launcher::pmi);
  CHECK(place_from(hydra, Launcher::pmi).info.rank == 1);

  const Environment slurm{{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NUM_NODES", "2"}};
  CHECK(launcher_of(slurm) == Launcher::slurm);
  const WorldPlace task = place_from(slurm, Launcher::slurm);
  CHECK(task.info.rank == 3);
  CHECK(task.info.node_count == 2);
  CHECK(task.info.local_rank == 1);
  // srun -n 2 within an allocation of four tasks.
  CHECK(refusal(with(slurm, "SLURM_STEP_NUM_TASKS", "2")) != "");
}

TEST_CASE("a foreign launcher that does not say where rank 0 is: the sentence says what to do") {
  const Environment hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  const std::string why = refusal(hydra, with_master);
  CHECK(contains(why, "MASTER_ADDR and MASTER_PORT are missing"));
  CHECK(contains(why, "PMI_RANK"));
  CHECK(contains(why, "dlaunch"));
  // Alone, nobody needs to be found.
  CHECK(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, with_master) == "");
}

TEST_CASE("our own launcher is believed before all others") {
  Environment environment = by_hand;
  environment.emplace("OMPI_COMM_WORLD_RANK", "0");
  CHECK(launcher_of(environment) == Launcher::variables);
  environment.emplace("DLAUNCH_WORKER_AGENT", "@dlaunch-1");
  CHECK(launcher_of(environment) == Launcher::dlaunch);
  CHECK(launcher_of({}) == Launcher::none);
}
