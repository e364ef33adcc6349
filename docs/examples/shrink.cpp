// Going on without the dead: ranks die in the middle of their work, the others go on with a
// communicator of those that live.
//
//   dlaunch --on-failure continue --nproc_per_node 4 shrink [--deaths 1]
#include <dlaunch/dlaunch.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr int steps = 50;
/// The step in whose middle the next rank dies.
constexpr int steps_per_life = 10;

/// A step of the computation: it leaves the same behind on every rank.
void work_on(std::vector<float>& model, dlaunch::Communicator& comm) {
  for (float& element : model) element += 1.0F;
  comm.all_reduce(model, dlaunch::ReduceOp::mean);
}

}  // namespace

int main(int argc, char** argv) try {
  const int deaths = argc == 3 && std::string_view(argv[1]) == "--deaths" ? std::atoi(argv[2]) : 1;
  const dlaunch::World world = dlaunch::World::init();
  dlaunch::Communicator comm(world);
  std::vector<float> model(1 << 20);
  for (int step = 0; step < steps;) {
    // The last ranks die, one after the other.
    const int dead = world.size() - 1 - step / steps_per_life;
    if (step % steps_per_life == steps_per_life - 1 && world.rank() == dead && dead > 0 &&
        world.size() - dead <= deaths) {
      std::raise(SIGKILL);
    }
    const std::vector<float> before = model;
    bool lives = true;
    try {
      work_on(model, comm);
    } catch (const dlaunch::Error& error) {
      if (error.errc() != dlaunch::Errc::peer_lost && error.errc() != dlaunch::Errc::revoked) throw;
      std::printf("rank %d: %s\n", world.rank(), error.what());
      std::fflush(stdout);
      comm.revoke();  // Ranks that have not noticed yet come along.
      lives = false;
    }
    // Some may have ended the step and some not: either all count it, or all do it again.
    if (comm.agree(lives ? 1 : 0) == 1) {
      ++step;
      continue;
    }
    model = before;
    comm = comm.shrink();
    if (comm.rank() == 0) std::printf("%d ranks go on with step %d\n", comm.size(), step);
  }
  if (comm.rank() == 0) {
    std::printf("%d of %d ranks did %d steps, the model is %g everywhere\n", comm.size(),
                world.size(), steps, static_cast<double>(model.front()));
  }
  return model.front() == static_cast<float>(steps) ? 0 : 1;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "shrink: %s\n", error.what());
  return 1;
}
