#include "packaging/python-torch/extension/leaving.hpp"

#include "packaging/python-torch/extension/backend.hpp"
#include "packaging/python-torch/extension/meeting.hpp"

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace dlaunch::torch_backend {
namespace {

/// The kernel keeps so much of an exit code.
constexpr int exit_code_mask = 0xff;

using Groups = std::vector<c10::intrusive_ptr<DlaunchBackend>>;

struct NotedGroups {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<DlaunchBackend>> groups;
};
NotedGroups& noted_groups() {
  static NotedGroups& kept = *new NotedGroups;
  return kept;
}

/// A World that is destroyed while an exception unwinds is lost to the others.
void abandon(const Groups& groups) {
  struct Abandoned {};
  struct EndsWhileUnwinding {
    const Groups& groups;
    ~EndsWhileUnwinding() {
      for (const auto& group : groups) group->abandon();
    }
  };
  try {
    const EndsWhileUnwinding ends{groups};
    throw Abandoned();
  } catch (const Abandoned&) {
  }
}

/// Called by exit(). There is no interpreter any more.
void leave(int exit_code, void* kept) {
  const auto& groups = *static_cast<const Groups*>(kept);
  if ((exit_code & exit_code_mask) != 0) return abandon(groups);
  for (const auto& group : groups) group->shutdown();
  leave_job();
}

}  // namespace

c10::intrusive_ptr<DlaunchBackend> noted(c10::intrusive_ptr<DlaunchBackend> group) {
  NotedGroups& kept = noted_groups();
  const std::lock_guard lock(kept.mutex);
  std::erase_if(kept.groups, [](const auto& each) { return each.expired(); });
  kept.groups.emplace_back(group);
  return group;
}

void leave_at_exit() {
  // Not destroyed: each group would end in order as it goes.
  auto* const groups = new Groups;
  {
    NotedGroups& kept = noted_groups();
    const std::lock_guard lock(kept.mutex);
    for (const auto& each : kept.groups) {
      if (auto group = each.lock()) groups->push_back(std::move(group));
    }
  }
  ::on_exit(&leave, groups);
}

}  // namespace dlaunch::torch_backend
