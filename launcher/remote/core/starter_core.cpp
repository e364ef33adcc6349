#include "launcher/remote/core/starter_core.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

namespace dlaunch::launcher::remote {
namespace {

/// ssh's own code for a failure. The remote command may end with it, too, which cannot be told
/// apart.
constexpr int ssh_failed = 255;
/// How long the other hosts' agents may take to hear of the job's end and end by themselves.
constexpr auto heard_within = std::chrono::seconds(5);
/// Extra time for ssh to report an end, and for agents that have to kill.
constexpr auto end_margin = std::chrono::seconds(10);

}  // namespace

Effects StarterCore::step(const Event& event, Clock::time_point now) {
  now_ = now;
  if (state_ != State::over) std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

void StarterCore::on(const Ended& e) {
  const bool lost = e.status.signal != 0 || e.status.code == ssh_failed;
  if (lost && !is_stopping()) {
    const std::string words = e.last_words.empty() ? "" : " (" + e.last_words + ")";
    effects_.emplace_back(
        Say{"host " + rules_.hosts[e.start] + ": ssh " + describe(e.status) + words + others()});
  }
  if (!lost) agents_code_ = e.status.code;
  if (lost) {
    fail(exit_code::unreachable, true);
  } else if (!e.status.succeeded()) {
    fail(e.status.code, false);
  }
  leave();
}

void StarterCore::on(const NotStarted& e) {
  if (!is_stopping()) {
    effects_.emplace_back(Say{"host " + rules_.hosts[e.start] + ": " + e.why + others()});
  }
  fail(e.exit_code, true);
  leave();
}

void StarterCore::on(const Stopped& e) {
  if (!code_) code_ = 128 + e.signal;
  const auto turn = stop_signals_.take(e.signal);
  if (!is_stopping()) return close();
  if (state_ == State::killed || turn != StopSignals::Turn::again) return;
  state_ = State::killed;
  effects_.emplace_back(KillAll{});
}

void StarterCore::on(const TimedOut&) {
  if (state_ == State::ending) return close();
  if (state_ != State::closed) return;
  state_ = State::killed;
  effects_.emplace_back(Say{"what runs on the hosts does not end; no more is waited for"});
  effects_.emplace_back(KillAll{});
}

/// An elastic job goes on while other nodes remain, which then decide how it ends.
void StarterCore::fail(int code, bool at_once) {
  if (rules_.elastic && state_ == State::running) return;
  if (!code_) code_ = code;
  if (state_ != State::running && !(state_ == State::ending && at_once)) return;
  if (running_ == 1) return;
  if (at_once) return close();
  state_ = State::ending;
  effects_.emplace_back(ArmTimer{deadline_after(heard_within, now_)});
}

void StarterCore::close() {
  state_ = State::closed;
  effects_.emplace_back(CloseInputs{});
  effects_.emplace_back(ArmTimer{deadline_after(rules_.shutdown_timeout + end_margin, now_)});
}

void StarterCore::leave() {
  if (--running_ > 0) return;
  state_ = State::over;
  effects_.emplace_back(Exit{code_ ? *code_ : agents_code_.value_or(exit_code::unreachable)});
}

std::string StarterCore::others() const {
  if (running_ == 1) return "";
  const bool go_on = rules_.elastic && state_ == State::running;
  return go_on ? "; the others go on" : "; the others are stopped";
}

}  // namespace dlaunch::launcher::remote
