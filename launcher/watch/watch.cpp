#include "launcher/watch/watch.hpp"

#include "launcher/process/process_tree.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// How often we look at calls; and at processes, if no rank has joined the world, where there is
/// less to see.
constexpr auto interval = std::chrono::milliseconds(100);
constexpr auto outside_interval_max = std::chrono::seconds(1);
/// How long the ranks have to report a mismatch themselves: one that has returned from the call
/// learns of it in its next call, if it makes one.
constexpr auto ranks_say_it_within = std::chrono::seconds(1);
/// The number of each rank's last calls that are compared with the others'.
constexpr std::size_t compared_calls = 16;
/// The most bytes of records that all nodes together, and one node, send; a call takes less than
/// half a kilobyte.
constexpr std::size_t flight_bytes_max = 256u << 20, node_flight_bytes_max = 4u << 20;
constexpr std::size_t call_bytes = 512;
/// The time for other nodes to answer; the worker that asks waits for little longer.
constexpr auto doing_patience = std::chrono::milliseconds(500);
/// Only so many nodes ask the others: if all did, the number of questions would grow with its
/// square.
constexpr int asking_nodes_max = 8;

/// The number of each rank's last calls that are sent: fewer, the more ranks there are.
std::size_t flight_records(int nodes, std::size_t ranks) {
  const std::size_t bytes =
      nodes < 2
          ? flight_bytes_max
          : std::min(node_flight_bytes_max, flight_bytes_max / static_cast<std::size_t>(nodes));
  return std::clamp<std::size_t>(bytes / call_bytes / std::max<std::size_t>(ranks, 1), 1,
                                 FlightRing::records_max);
}

}  // namespace

Watch::Watch(boost::asio::io_context& io, Clock::duration stuck_after, FindSegment segment, Say say)
    : io_(io),
      stuck_after_(stuck_after),
      find_segment_(std::move(segment)),
      say_(std::move(say)),
      timer_(io),
      attempt_{.times = WaitTimes(stuck_after)},
      stopped_(stuck_after) {}

void Watch::expect_progress(Stall stall) {
  stall_ = std::move(stall);
  const auto ask = [this](const Question& question, Inquiries::Gathered gathered) {
    ask_all(question, std::move(gathered));
  };
  stall_watch_ = std::make_unique<StallWatch>(
      io_, StallWatch::Setting{stall_->limit, [this] { return work_signs(); }, ask});
}

/// This node answers, too.
void Watch::ask_all(const Question& question, Inquiries::Gathered gathered) {
  if (!job_) return gathered({{attempt_.known.node_rank, respond(question)}});
  job_->inquiries().ask_all(question, std::move(gathered));
}

void Watch::tell_time_wanted(Clock::duration time) {
  ask_all(AskTime{time}, [](const auto&) {});
}

void Watch::progressed() {
  if (stall_watch_) stall_watch_->declare();
}

void Watch::suspend(bool suspended) {
  stopped_.suspend(suspended);
  if (stall_watch_) stall_watch_->suspend(suspended);
}

void Watch::open(const std::string& job, const std::string& host, const std::string& node_id,
                 StatusSocket::Launcher launcher) {
  launcher_ = std::move(launcher);
  attempt_.known.job = job;
  attempt_.known.node = node_id.empty() ? host : node_id;
  attempt_.known.host = host;
  attempt_.known.agent = ::getpid();
  open_status();
}

void Watch::tell_end(int exit_code) {
  if (status_) status_->tell_end({exit_code});
}

void Watch::begin(const Assignment& assignment, const std::string& host,
                  const std::string& node_id) {
  attempt_ = {.known = {.job = assignment.job,
                        .node = node_id.empty() ? host : node_id,
                        .host = host,
                        .agent = ::getpid(),
                        .node_rank = assignment.node_rank,
                        .node_count = assignment.node_count,
                        .epoch = assignment.epoch,
                        .attempt = assignment.attempt,
                        .world_size = assignment.world_size,
                        .standing = std::move(attempt_.known.standing)},
              .times = WaitTimes(stuck_after_)};
  for (int i = 0; i < assignment.local_size; ++i) {
    attempt_.known.ranks.emplace_back().rank = assignment.first_rank + i;
  }
  stopped_.forget();
  if (stall_watch_) stall_watch_->begin(assignment);
  // The rendezvous may have told the job's name.
  if (status_ && status_->job() != assignment.job) open_status();
}

void Watch::open_status() {
  const auto snapshot = [this](AskSnapshot::Detail detail, auto reply) {
    ask(detail, [reply](const JobSnapshot& job) { reply(encode(job)); });
  };
  try {
    status_.reset();
    status_ = std::make_unique<StatusSocket>(io_, attempt_.known.job, attempt_.known.node,
                                             StatusSocket::Answers{snapshot, launcher_});
  } catch (const Error& error) {
    say_(std::string("dlaunch status will not find this job: ") + error.what());
  }
}

void Watch::begin_with_others(const Assignment& assignment, QuestionLine& line,
                              JobWatch::Roster roster) {
  job().begin(line, assignment, std::move(roster));
  line_ = &line;
  attempt_.news.emplace(assignment.node_rank, assignment.node_count, Clock::now());
}

void Watch::on_reconnected() {
  job().inquiries().on_reconnected();
  if (attempt_.news) attempt_.news->forget();
}

JobWatch& Watch::job() {
  if (!job_) {
    job_ = std::make_unique<JobWatch>(
        io_, [this](const Question& question) { return respond(question); }, say_);
  }
  return *job_;
}

/// Answers a question, and takes the news that some questions carry.
Answer Watch::respond(const Question& question) {
  // Asked when a call has timed out.
  const auto* ask = std::get_if<AskDoing>(&question);
  if (ask != nullptr && is_about_us(*ask)) attempt_.holds_up_others = true;
  const auto* end = std::get_if<AskEnd>(&question);
  if (end != nullptr && stall_) stall_->stalled(end->sentence);
  const auto* more = std::get_if<AskTime>(&question);
  if (more != nullptr && time_wanted_) time_wanted_(more->time);
  return answer(question);
}

void Watch::lost(const rendezvous::RanksLost& lost) {
  if (job_) job_->lost(lost);
}

void Watch::started(const std::vector<pid_t>& pids) {
  for (std::size_t i = 0; i < std::min(pids.size(), attempt_.known.ranks.size()); ++i) {
    attempt_.known.ranks[i].pid = pids[i];
  }
  if (stall_watch_) stall_watch_->started();
  if (stuck_after_ <= stuck_after_.zero()) return;
  looking_ = true;
  arm();
}

void Watch::joined(int local_rank) {
  attempt_.known.ranks.at(static_cast<std::size_t>(local_rank)).member = true;
  if (std::exchange(attempt_.has_members, true)) return;
  looking_ = true;
  arm();
}

void Watch::ended(const Workers::Ended& ended) {
  auto& rank = attempt_.known.ranks.at(static_cast<std::size_t>(ended.local_rank));
  rank.state = RankSight::State::ended;
  rank.end = describe(ended.status);
  rank.ended = Clock::now();
}

void Watch::stop() {
  looking_ = false;
  timer_.cancel();
  if (stall_watch_) stall_watch_->stop();
}

NodeSnapshot Watch::sight(std::size_t calls) const {
  NodeSnapshot node = attempt_.known;
  Segment* const segment = find_segment_();
  for (auto& rank : node.ranks) {
    const int place = segment != nullptr ? segment->local_of(rank.rank) : -1;
    if (place >= 0) {
      rank.ring = &segment->flight(place);
      rank.log = read_flight(*rank.ring, calls);
    }
    if (rank.state == RankSight::State::ended) continue;
    const auto stat = process_stat(rank.pid);
    if (!stat || (stat->state != 'T' && stat->state != 't')) continue;
    rank.state = RankSight::State::stopped;
    rank.traced = stat->state == 't';
  }
  return node;
}

NodeSnapshot Watch::snapshot(AskSnapshot::Detail detail) const {
  const bool flight = detail == AskSnapshot::Detail::flight;
  NodeSnapshot node =
      sight(flight ? flight_records(attempt_.known.node_count, attempt_.known.ranks.size()) : 1);
  if (job_ && node.stuck.empty()) node.stuck = job_->stuck();
  node.taken = Clock::now();
  node.wall = WallClock::now();
  for (auto& rank : node.ranks) {
    add_names(rank, node.taken);
    if (flight) continue;
    rank.call_names.clear();
    rank.wait_names.clear();
    rank.log.calls.clear();
    rank.log.waits.clear();
  }
  return node;
}

Answer Watch::answer(const Question& question) const {
  struct Respond {
    const Watch& watch;
    Answer operator()(const AskSnapshot& ask) const { return watch.snapshot(ask.detail); }
    Answer operator()(const AskWaits&) const { return CallWaits{foremost(watch.attempt_.waits)}; }
    Answer operator()(const AskPart& ask) const {
      const auto ranks = watch.sight(compared_calls).ranks;
      StuckPart part = describe(ask.wait, ranks, watch.attempt_.known.world_size, Clock::now());
      part.shorten();
      return part;
    }
    Answer operator()(const AskDoing& ask) const { return watch.doing_here(ask.ranks); }
    Answer operator()(const AskLook&) const { return Looking{}; }
    Answer operator()(const AskProgress&) const { return watch.progress(); }
    Answer operator()(const AskEnd&) const { return Ending{}; }
    Answer operator()(const AskTime&) const { return Waiting{}; }
  };
  return std::visit(Respond{*this}, question);
}

void Watch::ask(AskSnapshot::Detail detail, std::function<void(JobSnapshot job)> gathered) {
  if (!job_ || attempt_.known.world_size == 0) return gathered({{snapshot(detail)}});
  const auto collect = [gathered = std::move(gathered)](Answers answers) {
    JobSnapshot job;
    for (auto& [rank, answer] : answers) {
      if (auto* node = std::get_if<NodeSnapshot>(&answer)) job.add(std::move(*node));
    }
    gathered(std::move(job));
  };
  job_->inquiries().ask_all(AskSnapshot{detail}, collect);
}

NodeProgress Watch::progress() const {
  NodeProgress node = stall_watch_ ? stall_watch_->progress() : NodeProgress{};
  const auto now = Clock::now();
  for (const auto& rank : sight(1).ranks) {
    if (rank.pid == 0 || rank.state == RankSight::State::ended) continue;
    if (node.doing.size() == NodeProgress::doing_max) break;
    node.doing.emplace_back(rank.rank, doing_text(rank, now));
  }
  return node;
}

std::vector<WorkSigns> Watch::work_signs() const {
  std::vector<WorkSigns> signs;
  for (const auto& rank : sight(compared_calls).ranks) {
    WorkSigns sign{.rank = rank.rank, .ended = rank.state == RankSight::State::ended};
    const auto under_way = std::ranges::count_if(
        rank.log.calls, [](const FlightCall& call) { return !call.ended.has_value(); });
    sign.calls = 2 * rank.log.begun - static_cast<std::uint64_t>(under_way);
    if (!sign.ended && sign.calls == 0) {
      sign.output_bytes = stall_->output_of(rank.rank);
      sign.cpu_time = cpu_time_below(rank.pid);
    }
    signs.push_back(sign);
  }
  return signs;
}

bool Watch::is_about_us(const AskDoing& ask) const {
  return std::ranges::any_of(attempt_.known.ranks, [&](const RankSight& rank) {
    return std::ranges::find(ask.ranks, rank.rank) != ask.ranks.end();
  });
}

/// The activity of those of the ranks that are on this node.
wire::Doing Watch::doing_here(const std::vector<std::int32_t>& ranks) const {
  wire::Doing doing;
  const auto now = Clock::now();
  for (const auto& rank : sight(1).ranks) {
    if (std::find(ranks.begin(), ranks.end(), rank.rank) == ranks.end()) continue;
    const bool is_up = rank.state == RankSight::State::running && rank.log.ready;
    doing.ranks.push_back(
        {rank.rank, seen_in(is_up ? call_under_way(rank.log) : nullptr, doing_text(rank, now))});
  }
  return doing;
}

void Watch::ask_doing(const std::vector<std::int32_t>& ranks,
                      std::function<void(wire::Doing doing)> told) {
  // When a job is stuck all its nodes would ask, so only the first ones do.
  if (!job_ || attempt_.known.node_rank >= asking_nodes_max) return told({});
  const auto collect = [told = std::move(told)](const Answers& answers) {
    wire::Doing all;
    for (const auto& [node, answer] : answers) {
      const auto* doing = std::get_if<wire::Doing>(&answer);
      for (std::size_t i = 0; doing != nullptr && i < doing->ranks.size(); ++i) {
        if (all.ranks.size() < wire::inquired_ranks_max) all.ranks.push_back(doing->ranks[i]);
      }
    }
    told(std::move(all));
  };
  job_->inquiries().ask_all(AskDoing{ranks}, collect, doing_patience);
}

void Watch::arm() {
  timer_.expires_after(
      attempt_.has_members
          ? interval
          : std::clamp<Clock::duration>(stuck_after_ / 4, interval, outside_interval_max));
  timer_.async_wait([this](auto error) {
    if (error || !looking_) return;
    look();
    arm();
  });
}

void Watch::look() {
  const NodeSnapshot node = sight(compared_calls);
  const auto now = Clock::now();
  if (const auto stopped = stopped_.look(node.ranks, now)) say_(*stopped);
  if (!attempt_.has_members) return;
  look_at_calls(node, now);
  tell_calls(node, now);
}

void Watch::tell_calls(const NodeSnapshot& node, Clock::time_point now) {
  if (!attempt_.news) return;
  auto told = attempt_.news->look(node.ranks, now);
  if (told) line_->say(rendezvous::message::CallsNow{node.epoch, *std::move(told)});
}

void Watch::look_at_calls(const NodeSnapshot& node, Clock::time_point now) {
  attempt_.waits = attempt_.times.look(node.ranks, now);
  const auto found = attempt_.judge.judge(attempt_.waits);
  if (found && job_) {
    job_->notice();
  } else if (found) {
    attempt_.known.stuck = to_string(describe(*found, node.ranks, node.world_size, now));
    say_(attempt_.known.stuck);
  } else if (!attempt_.judge.is_stuck()) {
    attempt_.known.stuck.clear();
  }
  look_for_disagreement(node, now);
}

void Watch::look_for_disagreement(const NodeSnapshot& node, Clock::time_point now) {
  if (attempt_.disagreement && now >= attempt_.disagreement->theirs_until) tell_disagreement();
  std::uint64_t calls = 0;
  for (const auto& rank : node.ranks) calls += rank.log.begun;
  if (std::exchange(attempt_.calls_seen, calls) == calls || attempt_.disagreement) return;
  if (auto sentence = find_disagreement(node.ranks)) {
    attempt_.disagreement = Disagreement{std::move(*sentence), now + ranks_say_it_within};
  }
}

void Watch::tell_disagreement() {
  auto& found = attempt_.disagreement;
  if (!found || std::exchange(found->told, true) || attempt_.ranks_told_mismatch) return;
  say_(found->sentence);
}

void Watch::reported(Errc code) {
  if (code == Errc::mismatch) attempt_.ranks_told_mismatch = true;
}

}  // namespace dlaunch::launcher
