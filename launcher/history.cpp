#include "launcher/history.hpp"

#include "launcher/exit_status.hpp"
#include "launcher/wall_clock.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// Enough for any traceback; a worker's file is not trusted to end.
constexpr std::size_t error_file_bytes_max = 1u << 20;

std::string read_bounded(const std::string& path) {
  std::string text;
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  while (file && text.size() < error_file_bytes_max) {
    char block[4096];
    const auto size = ::read(file.get(), block, sizeof block);
    if (size <= 0) break;
    text.append(block, static_cast<std::size_t>(size));
  }
  return text;
}

bool write_file(const std::string& path, std::string_view text) {
  const unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  while (file && !text.empty()) {
    const auto size = ::write(file.get(), text.data(), text.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
  }
  return static_cast<bool>(file);
}

std::string outcome_text(const JobEnd& end) {
  switch (end.outcome) {
    case Outcome::succeeded:
      return "succeeded";
    case Outcome::failed:
      return "failed";
    case Outcome::stopped:
      return "stopped by " + signal_name(end.exit_code - 128);
    case Outcome::spawn_failed:
      return "not started";
    case Outcome::front_lost:
      return "the front process was lost";
  }
  return "";
}

}  // namespace

History::History(Options options, std::string job, std::string host) {
  result_.options = std::move(options);
  result_.job = std::move(job);
  result_.host = std::move(host);
  result_.started = WallClock::now();
}

void History::begin_attempt(LaunchPlan plan) {
  AttemptResult attempt;
  attempt.plan = std::move(plan);
  attempt.started = WallClock::now();
  result_.attempts.push_back(std::move(attempt));
}

void History::add(const Workers::Ended& ended) {
  AttemptResult& attempt = result_.attempts.back();
  const auto& worker = attempt.plan.workers[static_cast<std::size_t>(ended.local_rank)];
  WorkerEnd end;
  end.rank = worker.rank;
  end.local_rank = ended.local_rank;
  end.host = result_.host;
  end.pid = ended.pid;
  end.status = ended.status;
  end.time = WallClock::now();
  attempt.ends.push_back(std::move(end));
}

void History::left_elsewhere(std::string who) {
  if (result_.attempts.empty()) return;
  result_.attempts.back().left_elsewhere = LeftEarly{std::move(who), WallClock::now()};
}

void History::end_attempt(const Supervisor& supervisor, const Output* output) {
  if (result_.attempts.empty()) return;
  AttemptResult& attempt = result_.attempts.back();
  attempt.ended = WallClock::now();
  if (const auto cause = supervisor.root_cause()) {
    attempt.root_cause = attempt.plan.workers[static_cast<std::size_t>(*cause)].rank;
  }
  for (auto& end : attempt.ends) {
    const auto place = static_cast<std::size_t>(end.local_rank);
    const WorkerRecord& record = supervisor.workers()[place];
    end.stopped_by_us = record.stopped_by_us;
    end.member = record.member;
    // Nobody kills itself for the loss of a peer: it had gone on, and died of something else.
    const bool killed = end.status.signal == SIGKILL && !end.stopped_by_us;
    end.peer_lost = !killed && record.report && record.report->code == Errc::peer_lost;
    if (end.status.succeeded()) continue;
    if (output) end.last_lines = output->error_tail(end.rank);
    end.lines_of_both =
        output && output->is_one_place() && attempt.plan.workers[place].stdio.only_console();
    const std::string& path = attempt.plan.workers[place].error_file;
    if (path.empty()) continue;
    end.error = parse_error_file(read_bounded(path));
    if (end.error) end.error_file = path;
  }
}

void History::ended_elsewhere(std::string sentence, std::optional<int> root_cause) {
  elsewhere_ = std::move(sentence);
  job_root_cause_ = root_cause;
}

bool History::has_attempt(int attempt) const {
  return std::any_of(result_.attempts.begin(), result_.attempts.end(),
                     [&](const auto& a) { return a.plan.assignment.attempt == attempt; });
}

std::vector<std::string> History::finish(const JobEnd& end, const std::string& outer_error_file) {
  result_.outcome = outcome_text(end);
  result_.exit_code = end.exit_code;
  result_.ended = WallClock::now();
  std::vector<std::string> problems;
  const auto write = [&](const std::string& path, std::string_view text) {
    if (!write_file(path, text))
      problems.push_back("cannot write " + path + ": " + errno_text(errno));
  };
  if (const auto& path = result_.options.result_file) write(*path, to_json(result_));
  const WorkerEnd* cause = root_cause();
  if (cause && !cause->error_file.empty() && !outer_error_file.empty()) {
    write(outer_error_file, read_bounded(cause->error_file));
  }
  return problems;
}

std::optional<std::string> History::write_flight(std::string_view text) {
  AttemptResult& attempt = result_.attempts.back();
  const std::string& path = attempt.plan.flight_file.value();
  if (!write_file(path, text)) return "cannot write " + path + ": " + errno_text(errno);
  attempt.flight_file = path;
  return std::nullopt;
}

bool History::has_files() const {
  return std::any_of(result_.attempts.begin(), result_.attempts.end(), [](const auto& attempt) {
    return std::any_of(attempt.ends.begin(), attempt.ends.end(),
                       [](const auto& end) { return !end.error_file.empty(); }) ||
           attempt.plan.filter_out || attempt.plan.filter_err ||
           std::any_of(attempt.plan.workers.begin(), attempt.plan.workers.end(),
                       [](const auto& w) { return w.stdio.out.file || w.stdio.err.file; });
  });
}

std::string History::summary(int max_restarts, int code) const {
  if (result_.attempts.empty()) return "";
  const AttemptResult& attempt = result_.attempts.back();
  FailureSummary summary;
  summary.program = attempt.plan.argv.empty() ? "" : attempt.plan.argv.front();
  if (!result_.options.program.empty()) summary.program = result_.options.program.front();
  summary.ends = attempt.ends;
  summary.root_cause = attempt.root_cause;
  summary.left_elsewhere = attempt.left_elsewhere;
  const WorkerEnd* cause = root_cause();
  if (cause != nullptr) summary.root_cause = cause->rank;
  if (is_cause_elsewhere(cause, code)) summary.elsewhere = elsewhere_;
  summary.attempt = attempt.plan.assignment.attempt;
  summary.max_restarts = max_restarts;
  summary.tolerated = code == 0;
  summary.flight_file = attempt.flight_file;
  summary.utc_offset = local_utc_offset(attempt.ended);
  return failure_summary(summary);
}

bool History::is_cause_elsewhere(const WorkerEnd* cause, int code) const {
  if (job_root_cause_) return cause == nullptr || cause->rank != *job_root_cause_;
  // No rank is to blame: a node was lost, or somebody has stopped the job, who knows that.
  if (code == exit_code::node_lost) return true;
  return cause != nullptr && cause->peer_lost;
}

const WorkerEnd* History::root_cause() const {
  if (result_.attempts.empty()) return nullptr;
  const AttemptResult& attempt = result_.attempts.back();
  const auto find = [&](std::optional<int> rank) {
    const auto end = std::find_if(attempt.ends.begin(), attempt.ends.end(),
                                  [&](const auto& e) { return rank == e.rank; });
    return end == attempt.ends.end() ? nullptr : &*end;
  };
  const WorkerEnd* judged = find(job_root_cause_);
  return judged != nullptr ? judged : find(attempt.root_cause);
}

std::string History::root_cause_sentence() const {
  const WorkerEnd* end = root_cause();
  if (!end) return "a worker failed";
  const std::string rank = "rank " + std::to_string(end->rank);
  if (end->status.succeeded()) {
    return rank + " on " + end->host + " exited with 0 before the others";
  }
  const AttemptResult& attempt = result_.attempts.back();
  const auto left = left_before(*end, attempt.ends, attempt.left_elsewhere);
  return rank + (end->status.signal != 0 ? " was " : " ") + describe(end->status) +
         (left ? " (" + left_before_sentence(*left, *end) + ")" : "");
}

}  // namespace dlaunch::launcher
