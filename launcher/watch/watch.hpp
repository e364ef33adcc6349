#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/process/workers.hpp"
#include "launcher/watch/core/call_news.hpp"
#include "launcher/watch/core/questions.hpp"
#include "launcher/watch/core/stopped_ranks.hpp"
#include "launcher/watch/core/stuck_watch.hpp"
#include "launcher/watch/job_watch.hpp"
#include "launcher/watch/stall_watch.hpp"
#include "launcher/watch/status_socket.hpp"
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

/// Watches the workers of a node. Ten times a second it looks for calls that wait, in the memory
/// that workers share with the agent; it looks closer when asked. It says once that a call is stuck
/// (among several nodes, node rank 0's agent says it), or that the ranks do not agree. For programs
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
    std::function<std::uint64_t(int rank)> output_of;  ///< Number of bytes it has written.
    Say stalled;  ///< The job has made no progress for that long: its ranks are to be ended.
  };
  /// Before the first attempt. Without it this node counts as one that always goes on.
  void expect_progress(Stall stall);
  /// A rank has declared progress.
  void progressed();
  /// `wanted` is called when a worker of any node needs so long until the job's deadline.
  using TimeWanted = std::function<void(Clock::duration time)>;
  void expect_time_wanted(TimeWanted wanted) { time_wanted_ = std::move(wanted); }
  /// A worker of this node needs so long: all nodes hear of it.
  void tell_time_wanted(Clock::duration time);

  /// From here on `dlaunch status`, `ps` and the like find the job, which waits for its first
  /// attempt. If that fails it is said, and the job goes on.
  void open(const std::string& job, const std::string& host, const std::string& node_id,
            StatusSocket::Launcher launcher);
  /// Tells the clients that wait for the launcher's end.
  void tell_end(int exit_code);
  /// A new attempt. The job may have another name than before.
  void begin(const Assignment& assignment, const std::string& host, const std::string& node_id);
  /// The same, with other nodes. The line outlives us.
  void begin_with_others(const Assignment& assignment, QuestionLine& line, JobWatch::Roster roster);
  /// The rendezvous' sentence on how the job stands.
  void note_standing(const std::string& sentence) { attempt_.known.standing = sentence; }
  /// Messages over the line may be lost.
  void on_reconnected();
  /// Takes other nodes' questions and answers, also before our first epoch has begun.
  Inquiries& inquiries() { return job().inquiries(); }
  /// Ranks of another node will not come back.
  void lost(const rendezvous::RanksLost& lost);
  void started(const std::vector<pid_t>& pids);
  void joined(int local_rank);
  void ended(const Workers::Ended& ended);
  /// A rank has reported a failure. If the ranks report a mismatch themselves, we do not.
  void reported(Errc code);
  /// The user stops the job (Ctrl-Z) or lets it go on: stopped ranks are then not reported.
  void suspend(bool suspended);
  /// Whether ranks of other nodes have waited in a call, until it timed out, for a rank of this
  /// node.
  bool holds_up_others() const { return attempt_.holds_up_others; }
  /// The attempt is over. The last state can still be asked for.
  void stop();
  /// Says in which call the ranks do not agree, if that was found and nobody has said it.
  void tell_disagreement();

  /// This node's snapshot, with up to so many calls of each rank.
  NodeSnapshot sight(std::size_t calls) const;
  /// This node's snapshot, for others to read.
  NodeSnapshot snapshot(AskSnapshot::Detail detail) const;
  /// The snapshot of all nodes that answer in time.
  void ask(AskSnapshot::Detail detail, std::function<void(JobSnapshot job)> gathered);
  /// The activity of these ranks, from those of their agents that answer in a short time.
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
  /// A disagreement of the ranks, and until when they may report it themselves.
  struct Disagreement {
    std::string sentence;
    Clock::time_point theirs_until;
    bool told = false;
  };
  struct Attempt {
    NodeSnapshot known = {};  ///< Without logs.
    WaitTimes times;
    std::vector<CallWait> waits = {};  ///< The waits at the last look.
    StuckJudge judge = {};
    std::optional<CallNews> news = std::nullopt;  ///< Set with several nodes.
    std::uint64_t calls_seen = 0;
    std::optional<Disagreement> disagreement = std::nullopt;
    bool ranks_told_mismatch = false;
    bool holds_up_others = false;
    bool has_members = false;
  };
  Attempt attempt_;
  StoppedRanks stopped_;
  std::unique_ptr<JobWatch> job_;  ///< Null on one node.
  QuestionLine* line_ = nullptr;   ///< Null on one node, too.
  TimeWanted time_wanted_;
  std::optional<Stall> stall_;
  std::unique_ptr<StallWatch> stall_watch_;  ///< Null without --stall-timeout.
  bool looking_ = false;
  StatusSocket::Launcher launcher_;
  std::unique_ptr<StatusSocket> status_;
};

}  // namespace dlaunch::launcher
