#pragma once

#include "launcher/output.hpp"
#include "launcher/result.hpp"
#include "launcher/supervisor.hpp"
#include "launcher/workers.hpp"

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
  History(Options options, std::string job, std::string host);

  void begin_attempt(LaunchPlan plan);
  bool empty() const { return result_.attempts.empty(); }
  /// The workers were started under this number before: in an epoch with other nodes.
  bool has_attempt(int attempt) const;
  const LaunchPlan& plan() const { return result_.attempts.back().plan; }
  void add(const Workers::Ended& ended);
  /// Of the ranks of other nodes this was the first to exit with 0: "rank 3 on h2".
  void left_elsewhere(std::string who);
  /// No process of the attempt is left: completes the ends by what the supervisor decided, the
  /// last lines of stderr (`output` may be null) and the error files.
  void end_attempt(const Supervisor& supervisor, const Output* output);
  /// The last attempt's flight, to where its plan says. Returns what went wrong.
  std::optional<std::string> write_flight(std::string_view text);
  /// The job ended for what `sentence` says, and by `root_cause`, a rank of any node.
  void ended_elsewhere(std::string sentence, std::optional<int> root_cause);
  /// Completes the story: --result, and the root cause's error file for an outer launcher's
  /// TORCHELASTIC_ERROR_FILE (`outer_error_file`, may be empty). Returns what could not be written.
  std::vector<std::string> finish(const JobEnd& end, const std::string& outer_error_file);
  /// A worker left an error file, or its output went to one.
  bool has_files() const;

  /// The bordered block about the last attempt; empty where nobody failed. `code` is the job's:
  /// with 0 it has ended well all the same.
  std::string summary(int max_restarts, int code) const;
  bool has_root_cause() const { return root_cause() != nullptr; }
  /// "rank 1 was killed by SIGKILL", of the last attempt.
  std::string root_cause_sentence() const;

 private:
  const WorkerEnd* root_cause() const;
  bool are_together(int code) const;
  bool is_cause_elsewhere(const WorkerEnd* cause, int code) const;

  JobResult result_;
  std::string elsewhere_;
  std::optional<int> job_root_cause_;  ///< As the rendezvous has judged.
};

}  // namespace dlaunch::launcher
