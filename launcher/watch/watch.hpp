#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/process/workers.hpp"
#include "launcher/watch/call_news.hpp"
#include "launcher/watch/job_watch.hpp"
#include "launcher/watch/questions.hpp"
#include "launcher/watch/stall_watch.hpp"
#include "launcher/watch/status_socket.hpp"
#include "launcher/watch/stopped_ranks.hpp"
#include "launcher/watch/stuck_watch.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

/// Looks at what the workers of a node do: ten times a second at the calls that wait, by the memory
/// that they share with the agent, and closer when asked. Says, once, that a call is stuck, or that
/// the ranks do not agree; among several nodes the former is said by node rank 0's. For programs
/// that do not use the runtime it says which ranks are stopped. One thread: that of `io`.
class Watch {
 public:
  using Say = std::function<void(const std::string& sentence)>;
  /// The memory of the current attempt; null where there is none, or not yet.
  using FindSegment = std::function<Segment*()>;

  /// `stuck_after`: how long a call may wait before it is told, unless its communicator has a limit
  /// of its own; 0: it is not told.
  Watch(boost::asio::io_context& io, Clock::duration stuck_after, FindSegment segment, Say say);

  /// --stall-timeout.
  struct Stall {
    Clock::duration limit{};
    std::function<std::uint64_t(int rank)> output_of;  ///< So many bytes it has written.
    Say stalled;  ///< The job has made no progress for that long: its ranks are to be ended.
  };
  /// Before the first attempt. Without it this node counts as one that always goes on.
  void expect_progress(Stall stall);
  /// A rank has declared progress.
  void progressed();
  /// `wanted` is called when a worker of any node needs so long until the job's deadline.
  using TimeWanted = std::function<void(Clock::duration time)>;
  void expect_time_wanted(TimeWanted wanted) { time_wanted_ = std::move(wanted); }
  /// A worker of this node does: all nodes hear of it.
  void tell_time_wanted(Clock::duration time);

  /// From here on `dlaunch status`, `ps` and the like find the job, which waits for its first
  /// attempt; where that cannot be, it is said, and the job goes on.
  void open(const std::string& job, const std::string& host, const std::string& node_id,
            StatusSocket::Launcher launcher);
  /// Those who have asked how the launcher ends are told.
  void tell_end(int exit_code);
  /// A new attempt. The job may have another name than before.
  void begin(const Assignment& assignment, const std::string& host, const std::string& node_id);
  /// The same, with other nodes. The line outlives us.
  void begin_with_others(const Assignment& assignment, QuestionLine& line, JobWatch::Roster roster);
  /// How the job stands, as people are told.
  void note_standing(const std::string& sentence) { attempt_.known.standing = sentence; }
  /// What was said over the line may be lost.
  void on_reconnected();
  /// Takes other nodes' questions and answers, also before our first epoch has begun.
  Inquiries& inquiries() { return job().inquiries(); }
  /// Ranks of another node will not come back.
  void lost(const rendezvous::RanksLost& lost);
  void started(const std::vector<pid_t>& pids);
  void joined(int local_rank);
  void ended(const Workers::Ended& ended);
  /// A rank has told what failed. If the ranks say themselves that they do not agree, we do not.
  void reported(Errc code);
  /// The user stops the job (Ctrl-Z), or lets it go on: not worth a sentence.
  void suspend(bool suspended);
  /// Ranks of other nodes have waited in a call until it timed out, and a rank of this one did not
  /// come.
  bool holds_up_others() const { return attempt_.holds_up_others; }
  /// The attempt is over. The last state can still be asked for.
  void stop();
  /// Says what the ranks do not agree in, if it was found and nobody has told of it.
  void tell_disagreement();

  /// With up to so many calls of each rank.
  NodeSnapshot sight(std::size_t calls) const;
  /// What this node knows, for others to read.
  NodeSnapshot snapshot(AskSnapshot::Detail detail) const;
  /// What all nodes know; of those that answer in time.
  void ask(AskSnapshot::Detail detail, std::function<void(JobSnapshot job)> gathered);
  /// What these ranks do, as their agents see it; of those that answer in a short time.
  void ask_doing(const std::vector<std::int32_t>& ranks,
                 std::function<void(wire::Doing doing)> told);

 private:
  JobWatch& job();
  Answer respond(const Question& question);
  void ask_all(const Question& question, Inquiries::Gathered gathered);
  NodeProgress progress() const;
  std::vector<WorkSigns> work_signs() const;
  Answer answer(const Question& question) const;
  bool is_about_us(const AskDoing& ask) const;
  wire::Doing doing_here(const std::vector<std::int32_t>& ranks) const;
  void open_status();
  void arm();
  void look();
  void look_at_calls(const NodeSnapshot& node, Clock::time_point now);
  void tell_calls(const NodeSnapshot& node, Clock::time_point now);
  void look_for_disagreement(const NodeSnapshot& node, Clock::time_point now);

  boost::asio::io_context& io_;
  const Clock::duration stuck_after_;
  const FindSegment find_segment_;
  const Say say_;
  boost::asio::steady_timer timer_;
  /// The calls in which the ranks do not agree, and until when they may say so themselves.
  struct Disagreement {
    std::string sentence;
    Clock::time_point theirs_until;
    bool told = false;
  };
  struct Attempt {
    NodeSnapshot known = {};  ///< Without logs.
    WaitTimes times;
    std::vector<CallWait> waits = {};  ///< As of the last look.
    StuckJudge judge = {};
    std::optional<CallNews> news = std::nullopt;  ///< With other nodes.
    std::uint64_t calls_seen = 0;
    std::optional<Disagreement> disagreement = std::nullopt;
    bool ranks_told_mismatch = false;
    bool holds_up_others = false;
    bool has_members = false;
  };
  Attempt attempt_;
  StoppedRanks stopped_;
  std::unique_ptr<JobWatch> job_;  ///< Null on one node.
  QuestionLine* line_ = nullptr;   ///< Likewise.
  TimeWanted time_wanted_;
  std::optional<Stall> stall_;
  std::unique_ptr<StallWatch> stall_watch_;  ///< Null without --stall-timeout.
  bool looking_ = false;
  StatusSocket::Launcher launcher_;
  std::unique_ptr<StatusSocket> status_;
};

}  // namespace dlaunch::launcher
