#include "rendezvous/service/service_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

/// What time brings: the jobs of earlier services, which are waited for and then forgotten, and the
/// deadlines of all jobs.
namespace dlaunch::rendezvous {
namespace {

/// What could not be done for want of memory is looked at again then.
constexpr auto look_again_after = std::chrono::milliseconds(100);
/// How long records and keys of jobs from before a restart are kept if none of their nodes comes
/// back.
constexpr auto before_max = std::chrono::minutes(10);

}  // namespace

// ---- Jobs of earlier services ----

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

// ---- Deadlines ----

void Service::State::refresh(Job& job) {
  if (job.finished) return;
  std::vector<std::pair<Clock::time_point, Session>> heard;
  for (auto& [session, member] : job.members) {
    const auto last = server.last_heard(member.connection);
    if (!last || *last <= member.heard) continue;
    member.heard = *last;
    heard.emplace_back(*last, session);
  }
  std::ranges::sort(heard);
  for (const auto& [when, session] : heard) step(job, Heartbeat{session}, when);
}

void Service::State::schedule(Job& job) noexcept {
  std::optional<Clock::time_point> next;
  if (!job.finished) {
    next = job.rounds.next_deadline();
    const auto question = job.questions.next_deadline();
    if (question && (!next || *question < *next)) next = question;
    if (job.looks_again < next.value_or(Clock::time_point::max())) next = job.looks_again;
  } else if (rules.only_job.empty()) {
    next = job.forget;
  }
  if (next == job.scheduled) return;
  if (job.scheduled) job.place = deadlines.extract({*job.scheduled, &job});
  job.scheduled = next;
  if (!next) return;
  job.place.value() = {*next, &job};
  deadlines.insert(std::move(job.place));
}

void Service::State::look_again(Job& job) noexcept {
  job.looks_again = Clock::now() + look_again_after;
  schedule(job);
}

void Service::State::forget(Job& job) {
  epoch_max = std::max(epoch_max, job.rounds.epoch());
  incarnation_max = std::max(incarnation_max, job.incarnation);
  if (journal != nullptr) journal->job_forgotten(job.name);
  erase(job);
}

void Service::State::erase(Job& job) {
  part_from_members(job);
  if (job.scheduled) deadlines.erase({*job.scheduled, &job});
  if (job.finished) ended.erase(job.entry_at);
  jobs.erase(jobs.find(job.name));
}

void Service::State::forget_some() {
  while (!ended.empty() && ended.size() >= rules.jobs_max) forget(*ended.front());
}

void Service::State::arm() {
  if (stopped) return;
  auto next = Clock::time_point::max();
  if (!deadlines.empty()) next = deadlines.begin()->first;
  if (!unjoined.empty()) next = std::min(next, unjoined.front().first);
  next = std::min(next, forget_before);
  for (const Early& each : early) next = std::min(next, each.until);
  if (!visitors.empty()) next = std::min(next, visitors.front().first);
  next = std::min(next, refusals.next_deadline().value_or(next));
  if (next < armed) arm_at(next);
}

/// It waits already, and does so anew until then.
void Service::State::arm_at(Clock::time_point when) {
  armed = when;
  timer.cancel();
}

void Service::State::wait_for_time() {
  timer.expires_at(armed);
  timer.async_wait(store::WaitHandler(
      time_memory, [self = shared_from_this()](const boost::system::error_code& error) {
        if (self->stopped) return;
        if (!error) self->keep_time();  // Else it was armed anew, for an earlier time.
        self->wait_for_time();
      }));
}

void Service::State::keep_time() {
  armed = Clock::time_point::max();
  try {
    server.carry_out([this] { on_time(); });
    arm();
  } catch (const std::exception& failure) {  // Memory may be short, say, which may pass.
    armed = Clock::now() + look_again_after;
    try {
      if (!log) return;
      log({LogLine::Level::error, "", std::string("keeping time failed: ") + failure.what()});
    } catch (const std::exception&) {  // It is tried again even so.
    }
  }
}

void Service::State::on_time() {
  const auto now = Clock::now();
  call_early([now](const Early& each) { return each.until <= now; });
  if (forget_before <= now) forget_those_before();
  close_strangers(now);
  refusals.tick(now, tell_refusal());
  std::vector<Job*> due;
  for (const auto& [when, job] : deadlines) {
    if (when > now) break;
    due.push_back(job);
  }
  for (Job* job : due) {
    if (job->finished) {
      forget(*job);
    } else {
      refresh(*job);
      send(*job, job->questions.tick(now));
      const auto held = journal == nullptr ? std::nullopt : journal->held_since();
      if (!job->finished) step(*job, Tick{held}, now);
    }
  }
}

}  // namespace dlaunch::rendezvous
