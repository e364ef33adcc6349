#pragma once

#include "launcher/plan/plan.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// How the agents of a job ask each other what their workers do: by the store of the job's epoch.
/// A question is put under the next number, for which every agent waits; the answers go into the
/// asking agent's queue. An agent that sees that a call is stuck rings node rank 0's. One thread:
/// that of `io`.
class Inquiries {
 public:
  /// Our own answer to a question.
  using Respond = std::function<std::string(const std::string& question)>;
  /// By node rank, ours included. A node that did not answer in time is missing.
  using Answers = std::map<int, std::string>;
  using Gathered = std::function<void(Answers answers)>;

  /// `rung` is called on node rank 0, for each ring.
  Inquiries(boost::asio::io_context& io, Respond respond, std::function<void()> rung);
  ~Inquiries();

  /// A new epoch; what was asked in the last one is answered with what has come. The uplink
  /// outlives us, or stop() is called before it goes.
  void begin(store::Uplink& uplink, const Assignment& assignment);
  void stop();
  /// For an answer. An agent whose node is well has it within milliseconds.
  static constexpr Clock::duration usual_patience = std::chrono::seconds(2);
  /// Calls `gathered` once, later: when all nodes have answered, or some have not in time.
  void ask(const std::string& question, Gathered gathered,
           Clock::duration patience = usual_patience);
  void ring();

 private:
  struct Asking {
    Asking(boost::asio::io_context& io, Gathered call) : gathered(std::move(call)), timer(io) {}
    std::uint64_t question = 0;  ///< Its number; 0: it has none yet.
    Answers answers;
    Gathered gathered;
    boost::asio::steady_timer timer;
  };
  using Answer = std::function<void(const wire::FrameHeader&, BytesView)>;

  void request(const auto& message, Answer answer);
  void listen();
  void catch_up();
  void reply_to(std::string_view question);
  void await_rings();
  void collect();
  void take(std::string_view answer);
  void conclude(std::uint64_t asking);

  boost::asio::io_context& io_;
  const Respond respond_;
  const std::function<void()> rung_;
  store::Uplink* uplink_ = nullptr;
  std::uint64_t epoch_ = 0;
  int node_ = 0, nodes_ = 1;
  std::uint64_t next_ = 1;  ///< The question we wait for.
  std::set<std::uint64_t> requests_;
  std::map<std::uint64_t, Asking> askings_;
  std::uint64_t next_asking_ = 1;
  bool collecting_ = false;
};

}  // namespace dlaunch::launcher
