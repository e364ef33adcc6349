#include "launcher/job/core/front_core.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>

namespace dlaunch::launcher::front {
namespace {

/// How long killed processes may take to be gone; only one that hangs in the kernel takes longer.
/// An agent that ended by itself has already waited for them.
constexpr auto sweep_timeout = std::chrono::seconds(5);
constexpr auto second_sweep_timeout = std::chrono::milliseconds(500);
/// At the first signal the agent stops the job, when it comes again it kills; at the third we no
/// longer trust the agent.
constexpr int stop_signals_max = 3;
/// A healthy agent takes a signal within milliseconds. Ending the workers, and killing what is left
/// of them, may take longer.
constexpr auto taken_within = std::chrono::seconds(1);
constexpr auto agent_margin = std::chrono::seconds(5);

}  // namespace

Effects FrontCore::step(const Event& event, Clock::time_point now) {
  now_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

void FrontCore::on(const Signalled& e) {
  if (std::holds_alternative<Killing>(state_) || std::holds_alternative<Over>(state_)) return;
  const bool stops = std::ranges::count(rules_.stopping, e.number) > 0;
  if (!stops) return effects_.push_back(HandOn{e.number});
  const bool again = stop_signals_.take(e.number) == StopSignals::Turn::again;
  auto* ending = std::get_if<Ending>(&state_);
  if (ending && again && ++ending->signals >= stop_signals_max) {
    return kill(KillAgent::Why::third_signal);
  }
  effects_.push_back(HandOn{e.number});
  if (!ending) {
    const auto patience = deadline_after(rules_.shutdown_timeout + agent_margin, now_);
    ending = &state_.emplace<Ending>(Ending{e.number, patience});
  } else if (again) {
    ending->patience = now_;
  }
  look_later(*ending);
}

/// An agent at work has deadlines of its own, and may wait for a reader of its output.
void FrontCore::on(const Looked& e) {
  auto* ending = std::get_if<Ending>(&state_);
  if (!ending) return;
  // We stood still ourselves, and the agent may have: both get that time again.
  const auto late = now_ - ending->look_at;
  const bool stood_still = late > taken_within;
  if (stood_still) ending->patience = deadline_after(late, ending->patience);
  look_later(*ending);
  if (stood_still || !e.stands_still) return;
  if (now_ >= ending->patience) return kill(KillAgent::Why::stands_still);
  if (std::exchange(ending->warned, true)) return;
  effects_.push_back(Warn{ending->first_signal, ending->patience - now_});
}

void FrontCore::on(const AgentEnded& e) {
  if (std::holds_alternative<Over>(state_)) return;
  const auto* killing = std::get_if<Killing>(&state_);
  const bool by_itself = e.status.signal == 0;
  int code = by_itself ? e.status.code : exit_code::internal;
  effects_.push_back(Sweep{by_itself ? Clock::duration(second_sweep_timeout) : sweep_timeout});
  effects_.push_back(PutTerminalBack{!e.status.succeeded()});
  if (!by_itself) effects_.push_back(ClearAway{});
  if (!by_itself && killing) code = 128 + killing->first_signal;
  if (!by_itself && !killing) effects_.push_back(TellLost{e.status});
  effects_.push_back(Exit{code});
  state_ = Over{};
}

void FrontCore::look_later(Ending& ending) {
  ending.look_at = now_ + taken_within;
  effects_.push_back(Look{ending.look_at});
}

void FrontCore::kill(KillAgent::Why why) {
  state_ = Killing{std::get<Ending>(state_).first_signal};
  effects_.push_back(KillAgent{why});
}

}  // namespace dlaunch::launcher::front
