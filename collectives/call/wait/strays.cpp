#include "collectives/call/wait/strays.hpp"

#include "collectives/call/wait/records.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

/// How often a rank that waits through its node looks at ranks that it does not wait for.
constexpr auto interval_by_node = 10ms;
/// The same for a rank that waits for others directly, once it has waited for long.
constexpr auto interval_in_flat = 100ms;

}  // namespace

std::optional<Ending> StrayWatch::look(Clock::time_point now, NextLook& next) {
  const bool is_first = due_ == Clock::time_point{};
  if (!is_first && now < due_) {
    next.at_latest(due_);
    return std::nullopt;
  }
  due_ = now + (frame_.nodes != nullptr ? interval_by_node : interval_in_flat);
  next.at_latest(due_);
  if (is_first || frame_.tolerant) return std::nullopt;
  transport::ShmGroup* shm = frame_.nodes != nullptr ? frame_.nodes->shm() : nullptr;
  for (int member = 0; shm != nullptr && member < shm->size(); ++member) {
    const std::uint32_t ahead = shm->call_ahead(member);
    const auto call = ahead != 0 ? call_of(frame_, member, ahead) : std::nullopt;
    if (!call || !is_other(*call)) continue;
    return ending::CallDiffers{frame_.setting.group.world_rank(frame_.nodes->rank_of(member)),
                               *call};
  }
  const auto stray = frame_.setting.mesh.inbox().find_parked(
      frame_.setting.group.id,
      [&](const transport::Header& header) { return is_other(fingerprint_of(header)); });
  if (!stray) return std::nullopt;
  return ending::CallDiffers{stray->first, fingerprint_of(stray->second)};
}

}  // namespace dlaunch
