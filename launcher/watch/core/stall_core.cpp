#include "launcher/watch/core/stall_core.hpp"

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher::stall {
namespace {

constexpr Clock::duration look_interval_min = std::chrono::milliseconds(100);
constexpr Clock::duration look_interval_max = std::chrono::seconds(1);

}  // namespace

Effects StallCore::step(const Event& event, Clock::time_point now) {
  now_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

NodeProgress StallCore::progress(Clock::time_point now) const {
  return clock_ ? clock_->at(now) : NodeProgress{};
}

void StallCore::on(const Begun& e) {
  attempt_ = e;
  clock_.reset();
  effects_.push_back(Rest{});
}

void StallCore::on(const Started&) {
  clock_.emplace(now_);
  look_later();
  if (attempt_.node_rank == 0) ask_after(limit_);
}

/// With several nodes it goes on looking, since other nodes' ranks may still run.
void StallCore::on(const Stopped&) {
  if (attempt_.nodes < 2) effects_.push_back(Rest{});
}

void StallCore::on(const Declared&) {
  if (clock_) clock_->declare(now_);
}

void StallCore::on(const Suspended& e) {
  if (clock_) clock_->suspend(e.suspended);
}

void StallCore::on(const Looked& e) {
  // The timer may have fired just before the attempt began.
  if (!clock_) return;
  clock_->look(e.signs, now_);
  look_later();
}

void StallCore::on(const AskDue&) {
  if (clock_) effects_.push_back(Ask{attempt_.epoch});
}

void StallCore::on(const Told& e) {
  if (e.epoch != attempt_.epoch || !clock_) return;
  const auto judgement = judge_progress(e.job, attempt_.nodes, limit_);
  if (!judgement.stalled) return ask_after(judgement.look_again_after);
  effects_.push_back(End{stall_sentence(e.job, limit_)});
}

void StallCore::look_later() {
  const auto interval = std::clamp(limit_ / 4, look_interval_min, look_interval_max);
  effects_.push_back(LookLater{now_ + interval});
}

void StallCore::ask_after(Clock::duration time) {
  effects_.push_back(AskLater{deadline_after(time, now_)});
}

}  // namespace dlaunch::launcher::stall
