#include <dlaunch/process_info.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace dlaunch;

TEST_CASE("the JSON has thirteen fields in a fixed order, and a port that is text") {
  ProcessInfo info;
  info.master_addr = "127.0.0.1";
  info.master_port = "29500";
  info.nnodes = 2;
  info.nproc_per_node = 3;
  info.node_rank = 1;
  info.world_size = 6;
  info.init_method = "env://";
  info.global_rank = 5;
  info.local_world_size = 3;
  info.local_rank = 2;
  info.hostname = "host";
  info.process_id = 42;
  CHECK(info.to_json() == R"({
    "master_addr": "127.0.0.1",
    "master_port": "29500",
    "nnodes": 2,
    "nproc_per_node": 3,
    "node_rank": 1,
    "world_size": 6,
    "backend": "dlaunch",
    "init_method": "env://",
    "global_rank": 5,
    "local_world_size": 3,
    "local_rank": 2,
    "hostname": "host",
    "process_id": 42
})");
  CHECK(info.to_json(-1).find('\n') == std::string::npos);
  info.hostname = "\xff";
  CHECK(info.to_json().find("hostname") != std::string::npos);
}

TEST_CASE("a world's process") {
  WorldInfo world;
  world.rank = 3;
  world.size = 4;
  world.local_rank = 1;
  world.local_size = 2;
  world.node_rank = 1;
  world.node_count = 2;
  world.init_method = "tcp://a:1";
  const ProcessInfo info = ProcessInfo::of(World(world, nullptr));
  CHECK(info.global_rank == info.local_rank + info.node_rank * info.nproc_per_node);
  CHECK(info.world_size == 4);
  CHECK(info.nnodes == 2);
  CHECK(info.init_method == "tcp://a:1");
  CHECK(info.process_id == ::getpid());
  CHECK(info.backend == "dlaunch");
}
