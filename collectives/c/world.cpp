#include "collectives/c/c_api.hpp"

/// Worlds, what they know, and what runs in turns on them.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Clock;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::World;

// The sizes of the structures when they were published.
constexpr std::size_t init_options_size_first = 32;
constexpr std::size_t world_info_size_first = 88;
static_assert(sizeof(dl_init_options) >= init_options_size_first);
static_assert(sizeof(dl_world_info) >= world_info_size_first);

dlaunch::InitOptions init_options_of(const dl_init_options* options) {
  const auto given = known_part(options, init_options_size_first, "dl_init_options");
  dlaunch::InitOptions made;
  require(given.timeout_ms >= 0, "timeout_ms is not negative");
  if (given.timeout_ms > 0) made.timeout = duration_of(given.timeout_ms);
  if (given.linger_ms != 0) made.linger = duration_of(std::max<std::int64_t>(given.linger_ms, 0));
  require(given.world_size >= 0, "world_size is not negative");
  if (given.world_size > 0) {
    made.rank = given.rank;
    made.world_size = given.world_size;
  }
  return made;
}

/// Fills as much of the caller's structure as the caller knows.
dl_world_info info_of(const dlaunch::WorldInfo& info, std::size_t size) {
  return {size,
          info.rank,
          info.size,
          info.local_rank,
          info.local_size,
          info.node_rank,
          info.node_count,
          info.epoch,
          info.attempt,
          0,
          info.job.c_str(),
          info.hostname.c_str(),
          info.master_addr.c_str(),
          info.master_port.c_str(),
          info.init_method.c_str()};
}

}  // namespace

dl_status dl_world_init(const char* url, const dl_init_options* options, dl_world** world) {
  return guarded([&] {
    auto& made = place(world, "world");
    made = new dl_world(World::init(text_of(url, "url"), init_options_of(options)));
  });
}

dl_status dl_world_from_env(const dl_init_options* options, dl_world** world) {
  return guarded([&] {
    auto& made = place(world, "world");
    made = new dl_world(World::from_env(init_options_of(options)));
  });
}

void dl_world_free(dl_world* world) { delete world; }

/// Destroying a World while an exception unwinds makes it lost to the others, as in C++ programs.
void dl_world_abandon(dl_world* world) {
  if (world == nullptr) return;
  struct Abandoned {};
  try {
    const std::unique_ptr<dl_world> ends_while_unwinding(world);
    throw Abandoned();
  } catch (const Abandoned&) {
  }
}

dl_status dl_world_get_info(const dl_world* world, dl_world_info* info) {
  return guarded_on(world, [&] {
    const std::size_t size = place(info, "info").struct_size;
    check_structure_size(size, world_info_size_first, "dl_world_info");
    const dl_world_info filled = info_of(world->world.info(), size);
    std::memset(info, 0, size);
    std::memcpy(info, &filled, std::min(size, sizeof filled));
  });
}

int dl_world_rank(const dl_world* world) { return world != nullptr ? world->world.rank() : -1; }
int dl_world_size(const dl_world* world) { return world != nullptr ? world->world.size() : 0; }

dl_status dl_world_store(const dl_world* world, dl_store** store) {
  return guarded_on(world, [&] {
    auto& made = place(store, "store");
    made = new dl_store(world->world.store());
  });
}

dl_status dl_process_info_json(const dl_world* world, int indent, char** text) {
  return guarded_on(world, [&] {
    auto& json = place(text, "text");
    json = copied_text(dlaunch::ProcessInfo::of(world->world).to_json(indent));
  });
}

dl_status dl_rank_zero_first(const dl_world* world, dl_block block, void* argument, int local,
                             int64_t timeout_ms) {
  return guarded_on(world, [&] {
    require(block != nullptr, "'block' is a null pointer");
    require(timeout_ms >= 0, "timeout_ms is not negative");
    const auto run = [&] {
      const int code = block(argument);
      if (code != 0) {
        throw Error(Errc::aborted, "rank_zero_first: the block of rank " +
                                       std::to_string(world->world.rank()) + " returned " +
                                       std::to_string(code));
      }
    };
    const Clock::duration timeout =
        timeout_ms == 0 ? Clock::duration(std::chrono::minutes(30)) : duration_of(timeout_ms);
    rank_zero_first(world->world, run, local != 0, timeout);
  });
}
