#include "rendezvous/service/service_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// How long records and keys of jobs from before a restart are kept if none of their nodes comes
/// back.
constexpr auto before_max = std::chrono::minutes(10);

}  // namespace

void Service::State::load_before() {
  for (const auto& record : journal->load()) {
    epoch_max = std::max(epoch_max, record.epoch);
    incarnation_max = std::max(incarnation_max, record.incarnation);
    if (!record.job.empty()) known_before.emplace(record.job, record);
    if (record.job.empty()) drained_before = record.drained;
  }
  draining = drained_before.has_value();
  if (!known_before.empty()) forget_before = began + before_max;
}

const JobRecord* Service::State::find_before(std::string_view name) const {
  const auto found = known_before.find(name);
  return found == known_before.end() ? nullptr : &found->second;
}

/// Lets a newcomer to a job from before the restart wait: the job's own nodes may need a few
/// seconds to notice the restart.
bool Service::State::came_after_restart(store::ConnectionId who, const std::string& name,
                                        message::Join& join, store::MemoryCharge& charge) {
  const JobRecord* record = find_before(name);
  if (record == nullptr || record->epoch == 0) return false;
  if (record->exit_code) {
    if (!join.holding || join.holding->incarnation > record->incarnation) return false;
    joined(who, true);
    Finish finish;
    finish.exit_code = *record->exit_code;
    finish.sentence = "the job ended with exit code " + std::to_string(finish.exit_code) +
                      " while this node was away, and the rendezvous was started again since";
    tell(who, message::Finished{finish});
    return true;
  }
  const auto until = deadline_after(join.rules.liveness.comes_back_within(), began);
  if (join.holding || Clock::now() >= until) return false;
  const Standing standing{0,
                          "the rendezvous was started again, and waits for the nodes of the job "
                          "that runs under this id"};
  tell(who, message::Standing{standing});
  // One entry for each connection; a later message replaces an earlier one.
  std::erase_if(early, [&](const Early& each) { return each.connection == who; });
  early.push_back({who, name, std::move(join), std::min(until, forget_before), std::move(charge)});
  return true;
}

bool Service::State::is_early(store::ConnectionId who) const {
  return std::ranges::find(early, who, &Early::connection) != early.end();
}

void Service::State::call_early(const std::function<bool(const Early&)>& which) {
  std::vector<Early> called;
  std::erase_if(early, [&](Early& each) {
    if (!which(each)) return false;
    called.push_back(std::move(each));
    return true;
  });
  for (Early& each : called) {
    // The connection may have gone meanwhile.
    if (callers.contains(each.connection)) join(each.connection, std::move(each.join));
  }
}

void Service::State::drain_again(Job& job) {
  if (const auto why = std::exchange(job.drained_before, std::nullopt)) {
    step(job, DrainJob{*why}, Clock::now());
  }
}

void Service::State::forget_those_before() {
  forget_before = Clock::time_point::max();
  for (const auto& [name, record] : std::exchange(known_before, {})) journal->job_forgotten(name);
  journal->forget_unclaimed();
}

}  // namespace dlaunch::rendezvous
