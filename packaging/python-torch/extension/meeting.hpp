#pragma once

#include <dlaunch/world.hpp>

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dlaunch::torch_backend {

/// This process' place in a process group that is to be made.
struct Place {
  int rank = 0;
  int size = 1;
  bool is_whole_job = false;  ///< It may be the world of our launcher.
  std::chrono::milliseconds timeout{0};
};

/// The world of the ranks that meet in `store`. Rank 0 says there how they come together: by our
/// agents, if they started all of them, else at a port of rank 0's. Nothing is left in the store.
/// A process joins its job's world once: later default groups have further communicators of it.
std::shared_ptr<const World> meet(c10d::Store& store, const Place& place);
/// Whether it is the world of a job of our launcher, whose agents tell how ranks end.
bool is_job(const std::shared_ptr<const World>& world);
/// Ends this process' part in its job's world, in order. From any thread.
void leave_job();

}  // namespace dlaunch::torch_backend
