#include <dlaunch/process_info.hpp>

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace dlaunch {

ProcessInfo ProcessInfo::of(const World& world) {
  const WorldInfo& info = world.info();
  ProcessInfo process;
  process.master_addr = info.master_addr;
  process.master_port = info.master_port;
  process.nnodes = info.node_count;
  process.nproc_per_node = info.local_size;
  process.node_rank = info.node_rank;
  process.world_size = info.size;
  process.init_method = info.init_method;
  process.global_rank = info.rank;
  process.local_world_size = info.local_size;
  process.local_rank = info.local_rank;
  process.hostname = info.hostname;
  process.process_id = ::getpid();
  return process;
}

std::string ProcessInfo::to_json(int indent) const {
  nlohmann::ordered_json json;
  json["master_addr"] = master_addr;
  json["master_port"] = master_port;
  json["nnodes"] = nnodes;
  json["nproc_per_node"] = nproc_per_node;
  json["node_rank"] = node_rank;
  json["world_size"] = world_size;
  json["backend"] = backend;
  json["init_method"] = init_method;
  json["global_rank"] = global_rank;
  json["local_world_size"] = local_world_size;
  json["local_rank"] = local_rank;
  json["hostname"] = hostname;
  json["process_id"] = process_id;
  // Bytes of a host name that are not UTF-8 become replacement marks instead of an exception.
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace dlaunch
