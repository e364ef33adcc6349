#pragma once

#include "launcher/job/core/supervisor.hpp"
#include "launcher/machine/memory_kills.hpp"
#include "launcher/output/console.hpp"
#include "launcher/process/workers.hpp"
#include "launcher/report/result.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::launcher {

/// How a job ended, for this node.
struct JobEnd {
  Outcome outcome = Outcome::succeeded;
  int exit_code = 0;
};

/// Collects what happened to the workers, for the failure summary and --result.
class History {
 public:
  /// The job has to outlive it.
  History(const JobSpec& spec, std::string job, std::string host);

  void begin_attempt(LaunchPlan plan);
  /// The attempt's workers have this cgroup for themselves.
  void know_cgroup(std::string directory) { cgroup_ = std::move(directory); }
  bool empty() const { return result_.attempts.empty(); }
  /// Whether workers were started under this attempt number before, in an epoch with other nodes.
  bool has_attempt(int attempt) const;
  const LaunchPlan& plan() const { return result_.attempts.back().plan; }
  void add(const Workers::Ended& ended);
  /// A call failed in a rank, which tells of it in a sentence.
  void reported(int rank, std::string sentence);
  /// No process of the attempt is left: completes the ends by what the supervisor knows, the last
  /// lines of stderr and the error files. Returns which workers wrote one, and when.
  std::vector<WroteErrorFile> end_attempt(const Supervisor& supervisor, const Console& console);
  /// The attempt has ended, as the supervisor judges; the job's verdict counts for more.
  void attempt_ended(const Ended& end);
  /// The last attempt's flight, to where its plan says. Returns what went wrong.
  std::optional<std::string> write_flight(std::string_view text);
  /// The attempt is ended because the job made no progress, as the sentence tells.
  void stalled(const std::string& sentence) { result_.attempts.back().stall = sentence; }
  /// The workers' stacks are where the plan says, and what they amount to.
  void wrote_stacks(std::string headline) {
    result_.attempts.back().stacks_file = plan().stacks_file.value_or("");
    result_.attempts.back().stacks_headline = std::move(headline);
  }
  /// The job has ended, as the rendezvous judged; `told`: the user has read its sentence.
  void job_ended(rendezvous::Finish end, bool told);
  /// Whether the summary repeats the sentence that `job_ended` was given.
  bool tells_end() const { return told_ && is_cause_elsewhere(root_cause()); }
  /// The phases of the last attempt.
  void timed(std::vector<Phase> phases) { result_.timings = std::move(phases); }
  /// Completes the story: --result, and the root cause's error file for an outer launcher's
  /// TORCHELASTIC_ERROR_FILE (`outer_error_file`, may be empty). Returns what could not be written.
  std::vector<std::string> finish(const JobEnd& end, const std::string& outer_error_file);
  /// A worker left an error file, or its output went to one.
  bool has_files() const;

  /// The block about the last attempt; nullopt where nobody failed. `code` is the job's:
  /// with 0 it has ended well all the same.
  std::optional<FailureBlock> summary(int max_restarts, int code) const;
  /// "rank 1 on h was killed by SIGKILL".
  std::string reason() const;
  std::string verdict_sentence(const Verdict& verdict) const;
  /// Details, for people, of the ranks of the last attempt that may be to blame.
  std::vector<rendezvous::RankDetails> details(const Facts& facts) const;

 private:
  const WorkerEnd* root_cause() const;
  const WorkerEnd* end_of(int rank) const;
  std::string cause_text(const Verdict& verdict, bool several_nodes) const;
  bool is_cause_elsewhere(const WorkerEnd* cause) const;
  bool tells_another_node(const WorkerEnd* cause) const;

  const JobSpec& spec_;
  JobResult result_;
  bool told_ = false;
  std::optional<KillCount> kills_before_;  ///< When the last attempt began.
  std::string cgroup_;                     ///< The last attempt's own; empty: it has none.
  std::optional<rendezvous::Finish> job_end_;
  /// The last attempt's reports that count, by rank.
  struct Complaint {
    std::string sentence;
    Clock::time_point at{};
  };
  std::map<int, Complaint> complaints_;
};

}  // namespace dlaunch::launcher
