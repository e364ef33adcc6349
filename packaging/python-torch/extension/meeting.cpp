#include "packaging/python-torch/extension/meeting.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <dlaunch/port.hpp>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

namespace dlaunch::torch_backend {
namespace {

constexpr const char* key = "dlaunch/world";
constexpr const char* loopback = "127.0.0.1";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Names the run of a job of our launcher in which this process has that very place.
std::optional<std::string> run_of_launcher(const Place& place) {
  const bool is_worker =
      !variable("DLAUNCH_WORKER_CONTROL").empty() || !variable("DLAUNCH_WORKER_AGENT").empty();
  if (!place.is_whole_job || !is_worker || variable("RANK") != std::to_string(place.rank) ||
      variable("WORLD_SIZE") != std::to_string(place.size)) {
    return std::nullopt;
  }
  return "job " + variable("DLAUNCH_WORKER_JOB") + ", epoch " + variable("DLAUNCH_WORKER_EPOCH") +
         ", attempt " + variable("TORCHELASTIC_RESTART_COUNT");
}

/// Where the store of a torch program was reached, if that is told.
std::string host_of(c10d::Store& store) {
  c10d::Store* inner = &store;
  c10::intrusive_ptr<c10d::Store> held;
  while (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(inner)) {
    held = prefix->getUnderlyingStore();
    inner = held.get();
  }
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(inner);
  return tcp != nullptr ? tcp->getHost() : "";
}

/// Where the others reach rank 0: the host by which they reach its store or its job, as far as it
/// is this one.
std::string address_for_others(c10d::Store& store) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  for (const std::string& host : {host_of(store), variable("MASTER_ADDR"), std::string(name)}) {
    if (host.empty()) continue;
    try {
      const Listener listener(0, host);
      return "tcp://" + (host.find(':') != host.npos ? "[" + host + "]" : host) + ":" +
             std::to_string(listener.port());
    } catch (const Error&) {
      continue;  // Another host's.
    }
  }
  return std::string("tcp://") + loopback + ":" + std::to_string(find_free_port().port());
}

World join(const std::string& url, const Place& place) {
  InitOptions options;
  options.timeout = place.timeout;
  options.rank = place.rank;
  options.world_size = place.size;
  return World::init(url, options);
}

std::string told_by_rank_zero(c10d::Store& store, const Place& place) {
  store.wait({key}, place.timeout);
  return store.get_to_str(key);
}

}  // namespace

World meet(c10d::Store& store, const Place& place) {
  const auto own_run = run_of_launcher(place);
  if (place.size == 1 && !own_run) {
    return join(std::string("tcp://") + loopback + ":1", place);
  }
  if (place.rank != 0) {
    const std::string told = told_by_rank_zero(store, place);
    if (told.starts_with("tcp://")) return join(told, place);
    if (own_run != told) {
      fail("rank 0 was started by dlaunch (" + told + "), and rank " + std::to_string(place.rank) +
           " was not, or not as that rank of it" + (own_run ? " (" + *own_run + ")" : "") +
           ": the ranks of a process group are started in one way");
    }
    return World::init("dlaunch://", {.timeout = place.timeout});
  }
  const std::string way = own_run ? *own_run : address_for_others(store);
  store.set(key, std::vector<std::uint8_t>(way.begin(), way.end()));
  World world = own_run ? World::init("dlaunch://", {.timeout = place.timeout}) : join(way, place);
  // All have read it. The next group in this store finds none of it.
  store.deleteKey(key);
  return world;
}

}  // namespace dlaunch::torch_backend
