#include "launcher/job/history.hpp"

#include "launcher/machine/core_file.hpp"
#include "runtime/base/departure.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
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

std::optional<WallClock::time_point> written_at(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return std::nullopt;
  return WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(
      std::chrono::seconds(file.st_mtim.tv_sec) + std::chrono::nanoseconds(file.st_mtim.tv_nsec)));
}

/// What became of the memory of a worker that died of a signal.
void add_core(WorkerEnd& end, WallClock::time_point since) {
  if (end.stopped_by_us || !dumps_core(end.status.signal)) return;
  const CoreRule rule = read_core_rule();
  if (end.status.core_dumped) {
    end.core_file = find_core_file(rule, end.pid, end.status.signal, since);
  }
  if (end.core_file.empty()) end.core_note = core_note(rule, end.pid, end.status.core_dumped);
}

constexpr int signal_base = 128;

std::string outcome_text(const JobEnd& end) {
  switch (end.outcome) {
    case Outcome::succeeded:
      return "succeeded";
    case Outcome::failed:
      return "failed";
    case Outcome::stopped:
      // By a deadline, say, it ends with a code that is no signal's.
      return end.exit_code > signal_base ? "stopped by " + signal_name(end.exit_code - signal_base)
                                         : "stopped";
    case Outcome::spawn_failed:
      return "not started";
    case Outcome::front_lost:
      return "the front process was lost";
  }
  return "";
}

}  // namespace

History::History(const JobSpec& spec, std::string job, std::string host) : spec_(spec) {
  result_.job = std::move(job);
  result_.host = std::move(host);
  result_.started = WallClock::now();
}

void History::begin_attempt(LaunchPlan plan) {
  AttemptResult attempt;
  attempt.plan = std::move(plan);
  // Among several nodes the one that hosts the rendezvous gives the job its id.
  result_.job = attempt.plan.assignment.job;
  attempt.started = WallClock::now();
  kills_before_ = read_kill_count();
  cgroup_.clear();
  complaints_.clear();
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

/// The supervisor takes claims by the same rule.
void History::reported(int rank, std::string sentence) {
  const auto now = Clock::now();
  auto& known = complaints_[rank];
  const bool holds = !known.sentence.empty() && now - known.at <= claim_holds_for;
  if (!holds) known = {std::move(sentence), now};
}

std::vector<WroteErrorFile> History::end_attempt(const Supervisor& supervisor,
                                                 const Console& console) {
  std::vector<WroteErrorFile> files;
  const Output* output = console.output();
  if (result_.attempts.empty()) return files;
  const Facts facts = supervisor.facts();
  const auto now = Clock::now();
  const auto wall_now = WallClock::now();
  AttemptResult& attempt = result_.attempts.back();
  attempt.ended = WallClock::now();
  if (const auto own = read_kill_count_of(cgroup_); own && !cgroup_.empty()) {
    attempt.memory_kills = MemoryKills{own->file, own->count};
  } else if (const auto kills = read_kill_count(); kills && kills_before_) {
    attempt.memory_kills = MemoryKills{kills->file, kills->count - kills_before_->count};
  }
  attempt.reader_gone = console.reader_gone();
  for (auto& end : attempt.ends) {
    const auto place = static_cast<std::size_t>(end.local_rank);
    const WorkerRecord& record = supervisor.workers()[place];
    end.stopped_by_us = record.stopped_by_us;
    const auto fact = facts.ranks.find(end.rank);
    end.peer_lost = fact != facts.ranks.end() && Departure::of(fact->second).missed;
    end.blames_others = fact != facts.ranks.end() && fact->second.blames_others();
    if (fact != facts.ranks.end() && fact->second.claim) {
      end.blames = fact->second.claim->ranks;
      const Complaint& complaint = complaints_[end.rank];
      end.complaint = complaint.sentence;
      end.complained = complaint.at;
    }
    if (end.status.succeeded()) continue;
    // The file system's clock may be a little behind ours.
    add_core(end, attempt.started - std::chrono::seconds(1));
    if (output) end.last_lines = output->error_tail(end.rank);
    end.lines_of_both =
        output && output->is_one_place() && attempt.plan.workers[place].stdio.only_console();
    const std::string& path = attempt.plan.workers[place].error_file;
    if (path.empty()) continue;
    end.error = parse_error_file(read_bounded(path));
    if (!end.error) continue;
    end.error_file = path;
    const auto written = written_at(path).value_or(end.time);
    files.push_back(
        {end.local_rank, now - std::chrono::duration_cast<Clock::duration>(wall_now - written)});
  }
  return files;
}

void History::attempt_ended(const Ended& end) {
  if (result_.attempts.empty() || (job_end_ && job_end_->verdict)) return;
  result_.attempts.back().verdict = end.verdict;
}

void History::job_ended(rendezvous::Finish end, bool told) {
  job_end_ = std::move(end);
  told_ = told;
  if (job_end_->verdict && !result_.attempts.empty()) {
    result_.attempts.back().verdict = job_end_->verdict;
  }
}

bool History::has_attempt(int attempt) const {
  return std::any_of(result_.attempts.begin(), result_.attempts.end(),
                     [&](const auto& a) { return a.plan.assignment.attempt == attempt; });
}

std::vector<std::string> History::finish(const JobEnd& end, const std::string& outer_error_file) {
  result_.outcome = outcome_text(end);
  result_.exit_code = end.exit_code;
  result_.reason = end.exit_code == 0 ? "" : reason();
  result_.ended = WallClock::now();
  std::vector<std::string> problems;
  const auto write = [&](const std::string& path, std::string_view text) {
    if (!write_file(path, text))
      problems.push_back("cannot write " + path + ": " + errno_text(errno));
  };
  if (const auto& path = spec_.result_file) write(*path, to_json(result_, spec_));
  const WorkerEnd* cause = root_cause();
  if (cause && !cause->error_file.empty() && !outer_error_file.empty()) {
    const int code = cause->status.signal != 0 ? -cause->status.signal : cause->status.code;
    write(outer_error_file, with_error_code(read_bounded(cause->error_file), code));
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

std::optional<FailureBlock> History::summary(int max_restarts, int code) const {
  if (result_.attempts.empty()) return std::nullopt;
  const AttemptResult& attempt = result_.attempts.back();
  FailureSummary summary;
  for (const Part* part : spec_.parts()) {
    if (part->program.empty()) continue;
    summary.program += (summary.program.empty() ? "" : " : ") + part->program.front();
  }
  summary.ends = attempt.ends;
  summary.several_nodes = attempt.plan.assignment.node_count > 1;
  const WorkerEnd* cause = root_cause();
  if (spec_.ends_with_stdin && tells_another_node(cause)) return std::nullopt;
  if (is_cause_elsewhere(cause) && told_) {
    summary.cause = job_end_->sentence;
    summary.elsewhere = job_end_->details;
  } else if (cause != nullptr) {
    const Verdict& verdict = *attempt.verdict;
    summary.cause = cause_text(verdict, summary.several_nodes);
    summary.cause_is_an_end = !cause->stopped_by_us && (verdict.kind == Verdict::Kind::failed ||
                                                        verdict.kind == Verdict::Kind::left);
    summary.is_told_by_others =
        verdict.kind == Verdict::Kind::lost || verdict.kind == Verdict::Kind::disagreed;
    for (const int rank : verdict.ranks) {
      if (end_of(rank) != nullptr) summary.culprits.push_back(rank);
    }
    const auto& stdio = attempt.plan.workers[static_cast<std::size_t>(cause->local_rank)].stdio;
    summary.log_file = stdio.err.file.value_or(stdio.out.file.value_or(""));
  } else {
    summary.cause = attempt.stall;
  }
  summary.started = attempt.started;
  summary.attempt = attempt.plan.assignment.attempt;
  summary.max_restarts = max_restarts;
  summary.restart_window = spec_.restart_window;
  summary.tolerated = code == 0;
  summary.memory_kills = attempt.memory_kills;
  summary.reader_gone = attempt.reader_gone;
  summary.flight_file = attempt.flight_file;
  summary.stacks_file = attempt.stacks_file;
  summary.stacks_headline = attempt.stacks_headline;
  summary.utc_offset = local_utc_offset(attempt.ended);
  return failure_block(summary);
}

/// The sentence names hosts where there are several nodes.
std::string History::cause_text(const Verdict& verdict, bool several_nodes) const {
  if (several_nodes) {
    const bool judged = job_end_ && !job_end_->sentence.empty();
    return judged ? job_end_->sentence : verdict_sentence(verdict);
  }
  return sentence_of(verdict, [](int rank) { return "rank " + std::to_string(rank); });
}

/// Whether the cause is none of this node's ranks: a lost node, several ranks together, or another
/// node's rank. A stop by the user does not count: the user knows of it.
bool History::is_cause_elsewhere(const WorkerEnd* cause) const {
  if (!job_end_) return false;
  if (job_end_->verdict) return cause == nullptr;
  return job_end_->cause != rendezvous::Finish::Cause::told || (cause && cause->peer_lost);
}

/// Whether another node has a block about the failure, in which only ranks are missing that ended
/// because of it. With --hosts all nodes write to one place.
bool History::tells_another_node(const WorkerEnd* cause) const {
  if (cause != nullptr || !job_end_ || !job_end_->verdict) return false;
  if (job_end_->verdict->kind == Verdict::Kind::node_lost) return false;
  return std::ranges::none_of(result_.attempts.back().ends, [](const WorkerEnd& end) {
    return end.failed() && !end.peer_lost && !end.blames_others;
  });
}

const WorkerEnd* History::end_of(int rank) const {
  const auto& ends = result_.attempts.back().ends;
  const auto end =
      std::find_if(ends.begin(), ends.end(), [&](const auto& e) { return rank == e.rank; });
  return end == ends.end() ? nullptr : &*end;
}

/// The first of the ranks to blame that is on this node.
const WorkerEnd* History::root_cause() const {
  if (result_.attempts.empty() || !result_.attempts.back().verdict) return nullptr;
  for (const int rank : result_.attempts.back().verdict->ranks) {
    if (const WorkerEnd* end = end_of(rank)) return end;
  }
  return nullptr;
}

std::string History::reason() const {
  if (job_end_ && !job_end_->sentence.empty()) return job_end_->sentence;
  if (result_.attempts.empty()) return {};
  const AttemptResult& attempt = result_.attempts.back();
  return attempt.verdict ? verdict_sentence(*attempt.verdict) : attempt.stall;
}

std::string History::verdict_sentence(const Verdict& verdict) const {
  return sentence_of(verdict, [this](int rank) {
    const WorkerEnd* end = result_.attempts.empty() ? nullptr : end_of(rank);
    return "rank " + std::to_string(rank) + (end ? " on " + end->host : "");
  });
}

std::vector<rendezvous::RankDetails> History::details(const Facts& facts) const {
  std::vector<const WorkerEnd*> ends;
  for (const WorkerEnd& end : result_.attempts.back().ends) {
    const auto fact = facts.ranks.find(end.rank);
    const bool blames = fact != facts.ranks.end() && fact->second.blames_others();
    if (!blames) ends.push_back(&end);
  }
  // Those that failed, the first of them first; then those that left or were stopped, as they were
  // observed.
  const auto failed_at = [&](const WorkerEnd* end) {
    const auto fact = facts.ranks.find(end->rank);
    const bool failed = fact != facts.ranks.end() && fact->second.failed();
    return failed ? fact->second.when : Clock::time_point::max();
  };
  std::stable_sort(ends.begin(), ends.end(),
                   [&](const auto* a, const auto* b) { return failed_at(a) < failed_at(b); });
  ends.resize(std::min(ends.size(), rendezvous::details_max));
  std::vector<rendezvous::RankDetails> details;
  for (const WorkerEnd* end : ends) {
    const auto since =
        std::chrono::duration_cast<std::chrono::milliseconds>(end->time.time_since_epoch());
    details.push_back({end->rank, end->local_rank, "", end->host, end->pid, since.count(),
                       end->error_file, end->error ? end->error->message : std::string(),
                       end->last_lines, end->lines_of_both});
  }
  return details;
}

}  // namespace dlaunch::launcher
