#include "launcher/watch/stall_watch.hpp"

#include <utility>
#include <variant>

namespace dlaunch::launcher {

StallWatch::StallWatch(boost::asio::io_context& io, Setting setting)
    : setting_(std::move(setting)), core_(setting_.limit), look_timer_(io), ask_timer_(io) {}

void StallWatch::begin(const Assignment& assignment) {
  step(stall::Begun{assignment.epoch, assignment.node_count, assignment.node_rank});
}

void StallWatch::step(const stall::Event& event) {
  for (const auto& effect : core_.step(event, Clock::now())) {
    std::visit([this](const auto& e) { execute(e); }, effect);
  }
}

void StallWatch::execute(const stall::Rest&) {
  look_timer_.cancel();
  ask_timer_.cancel();
}

void StallWatch::execute(const stall::LookLater& effect) {
  look_timer_.expires_at(effect.at);
  look_timer_.async_wait([this](auto error) {
    if (!error) step(stall::Looked{setting_.look()});
  });
}

void StallWatch::execute(const stall::AskLater& effect) {
  ask_timer_.expires_at(effect.at);
  ask_timer_.async_wait([this](auto error) {
    if (!error) step(stall::AskDue{});
  });
}

void StallWatch::execute(const stall::Ask& effect) {
  setting_.ask_all(AskProgress{}, [this, epoch = effect.epoch](const Answers& answers) {
    JobProgress job;
    for (const auto& [node, answer] : answers) {
      if (const auto* progress = std::get_if<NodeProgress>(&answer)) job.emplace(node, *progress);
    }
    step(stall::Told{epoch, std::move(job)});
  });
}

void StallWatch::execute(const stall::End& effect) {
  setting_.ask_all(AskEnd{effect.sentence}, [](const auto&) {});
}

}  // namespace dlaunch::launcher
