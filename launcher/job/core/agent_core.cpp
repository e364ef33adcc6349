#include "launcher/job/core/agent_core.hpp"

#include "runtime/base/exit_code.hpp"

#include <utility>

namespace dlaunch::launcher::life {

Effects AgentCore::step(const Event& event) {
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

bool AgentCore::is_winding_up() const { return is<Draining>() || is<Gathering>(); }

/// An admission that is repeated after a reconnect, or comes late, names an epoch that we have had.
void AgentCore::on(const Admitted& e) {
  const bool had =
      last_ && last_->incarnation == e.epoch.incarnation && last_->epoch >= e.epoch.epoch;
  if (is_decided() || had || !(is<Waiting>() || is<Placing>())) return;
  last_ = e.epoch;
  state_ = Placing{e.epoch};
  effects_.push_back(FindPlace{});
}

void AgentCore::on(const Placed& e) {
  const auto* placing = std::get_if<Placing>(&state_);
  if (placing == nullptr || placing->epoch != e.epoch) return;
  state_ = Working{e.epoch};
  effects_.push_back(Begin{});
}

void AgentCore::on(const Unfit& e) {
  if (e.epoch == EpochName{} && is<Waiting>() && !last_) {
    return leave({exit_code::node_lost, Leave::Why::unfit});
  }
  const auto* placing = std::get_if<Placing>(&state_);
  if (placing == nullptr || placing->epoch != e.epoch) return;
  leave({exit_code::node_lost, Leave::Why::unfit});
}

void AgentCore::on(const Ordered& e) {
  const bool kills = e.manner == StopOrder::Manner::kill;
  if (const auto* placing = std::get_if<Placing>(&state_)) {
    if (placing->epoch.epoch != e.epoch && !kills) return;
    effects_.push_back(Decline{placing->epoch.epoch});
    state_ = Waiting{};
    return;
  }
  if (has_workers() && (last_->epoch == e.epoch || kills)) effects_.push_back(Stop{e.manner});
}

void AgentCore::on(const JobOver& e) {
  if (is_decided()) return;
  job_over_ = e.exit_code;
  if (!has_workers()) return finish(e.exit_code);
  using Manner = StopOrder::Manner;
  effects_.push_back(Stop{e.node_lost ? Manner::report_first : Manner::at_once});
}

/// If all processes are gone, only a reader that does not read, or a node that does not end, holds
/// us. After a first signal we still tell the other nodes; after a second one we wait for nobody.
void AgentCore::on(const Signalled& e) {
  if (stop_signals_.take(e.number) == StopSignals::Turn::hangup) return;
  if (is<Over>()) return effects_.push_back(ExitNow{});
  const bool again = leaving_.has_value();
  leave({e.exit_code, Leave::Why::signal, e.number});
  if (!is_winding_up() || !(again || alone_)) return;
  abandoned_ = true;
  state_ = Concluding{};
  effects_.push_back(Conclude{});
}

void AgentCore::on(const Expired& e) {
  if (!is_decided()) leave({e.exit_code, Leave::Why::expired});
}

void AgentCore::on(const FrontGone&) { leave({exit_code::internal, Leave::Why::front_lost}); }

void AgentCore::on(const NothingLeft&) {
  if (!is<Working>()) return;
  state_ = Draining{};
  effects_.push_back(Drain{});
}

void AgentCore::on(const Drained&) {
  if (!is<Draining>()) return;
  state_ = Gathering{};
  effects_.push_back(Gather{!is_decided()});
}

void AgentCore::on(const Gathered&) {
  if (!is<Gathering>()) return;
  state_ = Concluding{};
  effects_.push_back(Conclude{});
}

void AgentCore::on(const Ended& e) {
  if (!has_workers()) return;
  state_ = Waiting{};
  if (job_over_) return finish(*job_over_);
  // No other attempt can begin beside the processes that are left of this one; and a node that has
  // no verdict of its own has not done its part.
  if (e.unkillable && e.outcome != Outcome::succeeded) {
    leave({e.exit_code != 0 ? e.exit_code : exit_code::node_lost, Leave::Why::unkillable});
  }
  if (leaving_) return finish(*leaving_);
  effects_.push_back(Report{});
}

void AgentCore::leave(const Leave& how) {
  if (is<Over>() || leaving_) return;
  leaving_ = how.exit_code;
  effects_.push_back(how);
  if (!has_workers()) finish(how.exit_code);
}

void AgentCore::finish(int exit_code) {
  if (is<Over>()) return;
  state_ = Over{};
  effects_.push_back(Finish{exit_code});
}

}  // namespace dlaunch::launcher::life
