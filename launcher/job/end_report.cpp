#include "launcher/job/end_report.hpp"

#include "launcher/request/stop_signals.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <csignal>

namespace dlaunch::launcher {

rendezvous::WorkersEnded report_of(const Ended& end, const Assignment& assignment,
                                   const std::string& host, const std::string& start_problem) {
  using Told = rendezvous::WorkersEnded::Outcome;
  rendezvous::WorkersEnded how;
  how.epoch = assignment.epoch;
  how.exit_code = end.exit_code;
  switch (end.outcome) {
    case Outcome::succeeded:
      how.outcome = Told::succeeded;
      break;
    case Outcome::failed:
      how.outcome = Told::failed;
      break;
    case Outcome::stopped:
    case Outcome::front_lost:
      how.outcome = Told::stopped;
      break;
    case Outcome::spawn_failed:
      how.outcome = Told::spawn_failed;
      how.sentence = "the workers of node rank " + std::to_string(assignment.node_rank) + " on " +
                     host + " could not be started: " + clipped(start_problem);
      break;
  }
  return how;
}

JobEnd job_end(const Ended& last, int code, bool left, bool never_began) {
  if (never_began || (code != 0 && last.outcome == Outcome::succeeded)) {
    return {left ? Outcome::stopped : Outcome::failed, code};
  }
  // All of this node's failed, and others went on without them.
  if (code == 0 && last.outcome == Outcome::failed) return {Outcome::succeeded, 0};
  if (last.outcome == Outcome::stopped && !left) {
    return {code == 0 ? Outcome::succeeded : Outcome::failed, code};
  }
  return {last.outcome, code};
}

std::string straggler_sentence(const TellStragglers& told, int first_rank,
                               const std::string& elsewhere) {
  const auto list = [&](std::vector<int> ranks) {
    for (int& rank : ranks) rank += first_rank;
    return ranks_text(ranks);
  };
  return (told.ended.empty() ? elsewhere : list(told.ended)) + " exited with 0, " +
         age_text(told.since) + " ago, and " + list(told.running) + " still " +
         (told.running.size() == 1 ? "runs" : "run");
}

std::string straggler_outlook(const TellStragglers& told, const JobSpec& spec) {
  if (told.over) return ": the job is ended (--straggler-timeout)";
  return spec.straggler_timeout.count() == 0 ? "; --straggler-timeout ends such a job" : "";
}

std::string unready_sentence(const TellUnready& told, int first_rank, Clock::duration limit) {
  std::vector<int> ranks = told.ranks;
  for (int& rank : ranks) rank += first_rank;
  return ranks_text(ranks) +
         " never became ready: neither World::init nor MPI_Init nor a connection to PyTorch's "
         "store within " +
         duration_text(limit);
}

std::string stopping_sentence(int signal_number, const std::vector<int>& ranks,
                              Clock::duration left) {
  if (left <= Clock::duration::zero()) return "";
  const bool one = ranks.size() == 1;
  const std::string time = duration_text(std::chrono::ceil<std::chrono::seconds>(left));
  const std::string running =
      "stopping: " + ranks_text(ranks) + (one ? " still runs" : " still run");
  const bool by_itself = signal_number == 0 || !kills_when_repeated(signal_number);
  if (by_itself) return running + (one ? "; it is" : "; they are") + " killed in " + time;
  const std::string again = signal_number == SIGINT
                                ? "; Ctrl-C again kills "
                                : "; another " + signal_name(signal_number) + " kills ";
  return running + again + (one ? "it" : "them") + ", or wait " + time;
}

std::string deadline_sentence(WallClock::time_point at) {
  return "the deadline " + deadline_text(at) + " has come";
}

std::string deadline_notice(WallClock::time_point at, WallClock::duration left) {
  const auto whole = std::chrono::round<std::chrono::seconds>(left);
  return "the job ends in " + duration_text(std::max(whole, std::chrono::seconds(0))) +
         ", at its deadline " + deadline_text(at);
}

std::string put_off_sentence(const PutOff& put_off, Clock::duration wanted) {
  const std::string at = deadline_text(put_off.at);
  const std::string need = "a worker needs " + duration_text(wanted);
  if (!put_off.moved) {
    return need + ", and the deadline " + at + " cannot be put off further (--deadline-latest)";
  }
  return "the deadline is put off to " + at +
         (put_off.whole ? ": " : ", the latest there may be (--deadline-latest): ") + need;
}

std::string told_text(int signal_number, const std::vector<int>& ranks) {
  if (ranks.empty()) return "; no worker here catches " + signal_name(signal_number);
  return "; " + ranks_text(ranks) + (ranks.size() == 1 ? " is" : " are") + " told by " +
         signal_name(signal_number);
}

std::string restart_text(int attempt, const JobSpec& spec) {
  std::string text = "; all workers are started again (restart " + std::to_string(attempt);
  text += spec.restart_window.count() > 0 ? ", at most " : " of ";
  text += std::to_string(spec.max_restarts);
  if (spec.restart_window.count() > 0) text += " within " + duration_text(spec.restart_window);
  return text + ")";
}

std::vector<int> ranks_running(const std::vector<pid_t>& pids, int first_rank) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    if (pids[i] > 0) ranks.push_back(first_rank + static_cast<int>(i));
  }
  return ranks;
}

}  // namespace dlaunch::launcher
