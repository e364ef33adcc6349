#include "packaging/python-torch/extension/meeting.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <dlaunch/port.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

namespace dlaunch::torch_backend {
namespace {

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

/// The host at which a torch program reached its store, if the store tells it.
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

/// The URL at which the others reach rank 0: they reach its store, or its job, by that host, unless
/// another machine has it.
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

/// The job's world, and its run; not destroyed behind main, where threads may still be in it.
struct JobWorld {
  std::mutex mutex;
  std::string run;
  std::shared_ptr<const World> world;
};
JobWorld& job_world() {
  static JobWorld& kept = *new JobWorld;
  return kept;
}

std::shared_ptr<const World> world_of(const std::string& run) {
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  return kept.run == run ? kept.world : nullptr;
}

std::shared_ptr<const World> join_job(const std::string& run, const Place& place) {
  auto world = std::make_shared<const World>(World::init("dlaunch://", {.timeout = place.timeout}));
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  kept.run = run;
  kept.world = world;
  return world;
}

std::shared_ptr<const World> join(const std::string& url, const Place& place) {
  InitOptions options;
  options.timeout = place.timeout;
  options.rank = place.rank;
  options.world_size = place.size;
  return std::make_shared<const World>(World::init(url, options));
}

/// Another one for each default group that this process makes: a rank may come to the next before
/// rank 0 has taken the key of the last away.
std::string next_key(const Place& place) {
  static std::atomic<int> groups = 0;
  return "dlaunch/world/" + std::to_string(place.is_whole_job ? ++groups : 0);
}

}  // namespace

std::shared_ptr<const World> meet(c10d::Store& store, const Place& place) {
  const auto own_run = run_of_launcher(place);
  // The others have it, too: all ranks were in the group for which it was joined.
  if (own_run) {
    if (auto world = world_of(*own_run)) return world;
  }
  const std::string key = next_key(place);
  if (place.size == 1 && !own_run) {
    return join(std::string("tcp://") + loopback + ":1", place);
  }
  if (place.rank != 0) {
    store.wait({key}, place.timeout);
    const std::string told = store.get_to_str(key);
    if (told.starts_with("tcp://")) return join(told, place);
    if (own_run != told) {
      fail("rank 0 was started by dlaunch (" + told + "), and rank " + std::to_string(place.rank) +
           " was not, or not as that rank of it" + (own_run ? " (" + *own_run + ")" : "") +
           ": the ranks of a process group are started in one way");
    }
    return join_job(told, place);
  }
  const std::string way = own_run ? *own_run : address_for_others(store);
  store.set(key, std::vector<std::uint8_t>(way.begin(), way.end()));
  auto world = own_run ? join_job(way, place) : join(way, place);
  // All have read it. The next group in this store finds none of it.
  store.deleteKey(key);
  return world;
}

bool is_job(const std::shared_ptr<const World>& world) {
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  return kept.world == world;
}

void leave_job() {
  std::shared_ptr<const World> world;
  JobWorld& kept = job_world();
  {
    const std::lock_guard lock(kept.mutex);
    world = std::move(kept.world);
    kept.world = nullptr;
  }
}

}  // namespace dlaunch::torch_backend
