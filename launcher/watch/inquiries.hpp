#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/watch/core/questions.hpp"
#include "rendezvous/service/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// The way to the rendezvous, which forwards the agents' questions to each other and shows what
/// ranks do. Messages are lost while there is no connection.
class QuestionLine {
 public:
  virtual ~QuestionLine() = default;
  virtual void say(const rendezvous::message::Ask& ask) = 0;
  virtual void say(const rendezvous::message::Answer& answer) = 0;
  virtual void say(const rendezvous::message::AnswerTaken& taken) = 0;
  virtual void say(const rendezvous::message::CallsNow& calls) = 0;
};

/// How the agents of a job ask each other what their workers do. One thread: that of `io`.
class Inquiries {
 public:
  /// Our own answer to a question.
  using Respond = std::function<Answer(const Question& question)>;
  using Gathered = std::function<void(Answers answers)>;

  Inquiries(boost::asio::io_context& io, Respond respond);
  ~Inquiries() { stop(); }

  /// A new epoch; what was asked in the last one is answered with what has come. The line outlives
  /// us, or stop() is called before it goes.
  void begin(QuestionLine& line, const Assignment& assignment);
  void stop();
  /// The time for an answer; an agent on a healthy node answers within milliseconds.
  static constexpr Clock::duration usual_patience = std::chrono::seconds(2);
  /// Asks all nodes. Calls `gathered` once, later: when all have answered, when no more answers can
  /// come, or when the time is over. Our own answer is among them.
  void ask_all(const Question& question, Gathered gathered,
               Clock::duration patience = usual_patience);
  /// The same, for one node; it may be this one.
  void ask_one(int node, const Question& question, Gathered gathered);

  void on_asked(const rendezvous::message::Asked& asked);
  void on_answered(const rendezvous::message::Answered& answered);
  /// Earlier messages may be lost, so open questions are asked again.
  void on_reconnected();

 private:
  struct Asking {
    rendezvous::message::Ask ask;
    Answers answers;
    Gathered gathered;
    boost::asio::steady_timer timer;
  };

  void ask(rendezvous::message::Ask ask, Answers known, Gathered gathered);
  void conclude(std::uint64_t asking);

  boost::asio::io_context& io_;
  const Respond respond_;
  QuestionLine* line_ = nullptr;
  std::uint64_t epoch_ = 0;
  int node_ = 0, nodes_ = 1;
  std::map<std::uint64_t, Asking> askings_;
  std::uint64_t next_asking_ = 1;
  /// Questions of an epoch that has begun elsewhere, but not here yet.
  std::vector<rendezvous::message::Asked> early_;
};

}  // namespace dlaunch::launcher
