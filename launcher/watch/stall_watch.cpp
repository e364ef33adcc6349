#include "launcher/watch/stall_watch.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace dlaunch::launcher {
namespace {

constexpr Clock::duration look_interval_min = std::chrono::milliseconds(100);
constexpr Clock::duration look_interval_max = std::chrono::seconds(1);

}  // namespace

StallWatch::StallWatch(boost::asio::io_context& io, Setting setting)
    : setting_(std::move(setting)), look_timer_(io), ask_timer_(io) {}

void StallWatch::begin(const Assignment& assignment) {
  look_timer_.cancel();
  ask_timer_.cancel();
  clock_.reset();
  epoch_ = assignment.epoch;
  nodes_ = assignment.node_count;
  decides_ = assignment.node_rank == 0;
}

void StallWatch::started() {
  clock_.emplace(Clock::now());
  look_later();
  if (decides_) ask_after(setting_.limit);
}

void StallWatch::stop() {
  // With several nodes it goes on looking, since other nodes' ranks may still run.
  if (nodes_ > 1) return;
  look_timer_.cancel();
  ask_timer_.cancel();
}

void StallWatch::declare() {
  if (clock_) clock_->declare(Clock::now());
}

void StallWatch::suspend(bool suspended) {
  if (clock_) clock_->suspend(suspended);
}

NodeProgress StallWatch::progress() const {
  return clock_ ? clock_->at(Clock::now()) : NodeProgress{};
}

void StallWatch::look_later() {
  look_timer_.expires_after(
      std::clamp<Clock::duration>(setting_.limit / 4, look_interval_min, look_interval_max));
  look_timer_.async_wait([this](auto error) {
    // The timer may have fired just before the next attempt began.
    if (error || !clock_) return;
    const auto signs = setting_.look();
    clock_->look(signs, Clock::now());
    look_later();
  });
}

void StallWatch::ask_after(Clock::duration time) {
  ask_timer_.expires_after(time);
  ask_timer_.async_wait([this](auto error) {
    if (!error) ask();
  });
}

void StallWatch::ask() {
  setting_.ask_all(AskProgress{}, [this, epoch = epoch_](const Inquiries::Answers& answers) {
    if (epoch == epoch_) judge(answers);
  });
}

void StallWatch::judge(const Inquiries::Answers& answers) {
  JobProgress job;
  for (const auto& [node, answer] : answers) {
    if (const auto* progress = std::get_if<NodeProgress>(&answer)) job.emplace(node, *progress);
  }
  const auto judgement = judge_progress(job, nodes_, setting_.limit);
  if (!judgement.stalled) return ask_after(judgement.look_again_after);
  setting_.ask_all(AskEnd{stall_sentence(job, setting_.limit)}, [](const auto&) {});
}

}  // namespace dlaunch::launcher
