#include "launcher/watch/inquiries.hpp"

#include "runtime/base/deadline.hpp"

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

namespace message = rendezvous::message;

/// The most questions that are kept until their epoch begins here.
constexpr std::size_t early_max = 16;

}  // namespace

Inquiries::Inquiries(boost::asio::io_context& io, Respond respond)
    : io_(io), respond_(std::move(respond)) {}

void Inquiries::begin(QuestionLine& line, const Assignment& assignment) {
  stop();
  line_ = &line;
  epoch_ = assignment.epoch;
  node_ = assignment.node_rank;
  nodes_ = assignment.node_count;
  for (const auto& asked : std::exchange(early_, {})) on_asked(asked);
}

void Inquiries::stop() {
  line_ = nullptr;
  while (!askings_.empty()) conclude(askings_.begin()->first);
}

// ---- What others ask ----

void Inquiries::on_asked(const message::Asked& asked) {
  if (asked.epoch > epoch_ && early_.size() < early_max) early_.push_back(asked);
  if (line_ == nullptr || asked.epoch != epoch_) return;
  const auto question = decode_question(asked.question);
  if (!question) return;
  message::Answer answer{epoch_, asked.number, encode(respond_(*question))};
  if (answer.answer.size() <= message::answer_bytes_max) line_->say(answer);
}

// ---- What we ask ----

void Inquiries::ask_all(const Question& question, Gathered gathered, Clock::duration patience) {
  Answers known;
  known.emplace(node_, respond_(question));
  ask({epoch_, 0, message::Ask::all_nodes, patience, encode(question)}, std::move(known),
      std::move(gathered));
}

void Inquiries::ask_one(int node, const Question& question, Gathered gathered) {
  Answers known;
  if (node == node_) known.emplace(node_, respond_(question));
  ask({epoch_, 0, node, usual_patience, encode(question)}, std::move(known), std::move(gathered));
}

void Inquiries::ask(message::Ask ask, Answers known, Gathered gathered) {
  const bool answered = nodes_ < 2 || ask.node == node_;
  const auto number = ask.number = next_asking_++;
  const auto patience = ask.patience;
  Asking& asking = askings_
                       .emplace(number, Asking{std::move(ask), std::move(known),
                                               std::move(gathered), boost::asio::steady_timer(io_)})
                       .first->second;
  if (line_ == nullptr || answered || askings_.size() > message::questions_max) {
    return conclude(number);
  }
  asking.timer.expires_after(patience);
  asking.timer.async_wait([this, number](auto error) {
    if (!error) conclude(number);
  });
  line_->say(asking.ask);
}

void Inquiries::on_answered(const message::Answered& answered) {
  const auto asked = askings_.find(answered.number);
  if (answered.node >= 0 && line_ != nullptr) line_->say(message::AnswerTaken{answered.number});
  if (asked == askings_.end()) return;
  if (answered.node < 0) return conclude(answered.number);
  if (auto answer = decode_answer(answered.answer)) {
    asked->second.answers.insert_or_assign(answered.node, std::move(*answer));
  }
}

void Inquiries::on_reconnected() {
  if (line_ == nullptr) return;
  for (const auto& [number, asking] : askings_) line_->say(asking.ask);
}

void Inquiries::conclude(std::uint64_t asking) {
  auto ended = askings_.extract(asking);
  if (ended.empty()) return;
  boost::asio::post(io_, [gathered = std::move(ended.mapped().gathered),
                          answers = std::move(ended.mapped().answers)]() mutable {
    gathered(std::move(answers));
  });
}

}  // namespace dlaunch::launcher
