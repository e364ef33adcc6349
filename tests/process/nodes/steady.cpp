// A rank of a job that lasts: an all_reduce each period, and beside it a store that is written and
// read all the time. `steady TOKEN PERIOD_MS`: ends with 0 once the file TOKEN is there for all.
#include <dlaunch/dlaunch.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>

namespace {

bool reads_what_it_writes(dlaunch::Store& store, const std::string& key) {
  store.set(key, dlaunch::as_bytes(key));
  const auto back = store.get(key);
  return back && dlaunch::as_text(*back) == key;
}

/// "rank 1 stored 17": what it wrote is what it reads. A daemon that keeps nothing, and was killed
/// between the two, has forgotten it: then it is written again, once.
void write_and_read(const std::stop_token& stop, dlaunch::Store& store, int rank,
                    std::chrono::milliseconds period) {
  for (int i = 1; !stop.stop_requested(); ++i) {
    const std::string key = "steady/" + std::to_string(rank) + "/" + std::to_string(i);
    std::printf("rank %d asks %d\n", rank, i);
    const bool same = reads_what_it_writes(store, key) || reads_what_it_writes(store, key);
    std::printf("rank %d %s %d\n", rank, same ? "stored" : "LOST", i);
    std::fflush(stdout);
    std::this_thread::sleep_for(period);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 64;
  const std::chrono::milliseconds period(std::atoi(argv[2]));
  const auto world = dlaunch::World::init();
  const int rank = world.info().rank;
  dlaunch::Communicator comm(world);
  std::jthread beside(
      [&](const std::stop_token& stop) { write_and_read(stop, *world.store(), rank, period); });
  for (int tick = 1;; ++tick) {
    int all[] = {1, std::filesystem::exists(argv[1]) ? 1 : 0};
    comm.all_reduce(all);
    if (all[0] != comm.size()) return 3;
    if (all[1] == comm.size()) break;
    std::printf("rank %d tick %d\n", rank, tick);
    std::fflush(stdout);
    std::this_thread::sleep_for(period);
  }
  std::printf("rank %d ends\n", rank);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "steady: %s\n", error.what());
  return 1;
}
