#include "launcher/watch/job_watch.hpp"

#include <utility>
#include <variant>

namespace dlaunch::launcher {

JobWatch::JobWatch(boost::asio::io_context& io, Inquiries::Respond respond, Say say)
    : say_(std::move(say)),
      tell_timer_(io),
      look_timer_(io),
      inquiries_(io, [this, respond = std::move(respond)](const Question& question) -> Answer {
        if (!std::holds_alternative<AskLook>(question)) return respond(question);
        step(stuck::Alerted{});
        return Looking{};
      }) {}

void JobWatch::begin(QuestionLine& line, const Assignment& assignment, Roster roster) {
  step(stuck::Begun{assignment.epoch, assignment.world_size, assignment.node_count,
                    std::move(roster)});
  inquiries_.begin(line, assignment);
}

void JobWatch::step(const stuck::Event& event) {
  for (const auto& effect : core_.step(event, Clock::now())) {
    std::visit([this](const auto& e) { execute(e); }, effect);
  }
}

void JobWatch::execute(const stuck::Rest&) {
  tell_timer_.cancel();
  look_timer_.cancel();
}

void JobWatch::execute(const stuck::TellNode0& effect) {
  inquiries_.ask_one(0, AskLook{}, [this, epoch = effect.epoch](const Answers& answers) {
    step(stuck::Heard{epoch, answers.contains(0)});
  });
}

void JobWatch::execute(const stuck::List& effect) {
  inquiries_.ask_all(AskWaits{}, [this, epoch = effect.epoch](Answers answers) {
    step(stuck::Listed{epoch, std::move(answers)});
  });
}

void JobWatch::execute(const stuck::Describe& effect) {
  inquiries_.ask_all(AskPart{effect.wait}, [this, effect](Answers answers) {
    step(stuck::Described{effect.epoch, effect.wait, std::move(answers)});
  });
}

void JobWatch::execute(const stuck::TellAgain& effect) {
  tell_timer_.expires_at(effect.at);
  tell_timer_.async_wait([this](auto error) {
    if (!error) step(stuck::TellAgainDue{});
  });
}

void JobWatch::execute(const stuck::LookLater& effect) {
  look_timer_.expires_at(effect.at);
  look_timer_.async_wait([this](auto error) {
    if (!error) step(stuck::LookDue{});
  });
}

}  // namespace dlaunch::launcher
