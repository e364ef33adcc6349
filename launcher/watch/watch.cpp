#include "launcher/watch/watch.hpp"

#include "launcher/watch/stuck_exchange.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// How often we look at calls, and, if no rank has joined the world, at processes: there is less to
/// see.
constexpr auto interval = std::chrono::milliseconds(100);
constexpr auto outside_interval_max = std::chrono::seconds(1);
/// A rank that has returned from a call that does not agree hears of it in its next one, if any.
constexpr auto ranks_say_it_within = std::chrono::seconds(1);
/// So many of each rank's last calls are compared with the others'.
constexpr std::size_t compared_calls = 16;
/// All nodes of a job together, and one node, tell so much of their calls; a call takes half a
/// kilobyte.
constexpr std::size_t flight_bytes_max = 256u << 20, node_flight_bytes_max = 4u << 20;
constexpr std::size_t call_bytes = 512;
/// A worker that asks waits for little longer.
constexpr auto doing_patience = std::chrono::milliseconds(500);
/// So that the questions of many nodes, which all answer each, do not grow with their square.
constexpr int asking_nodes_max = 8;

std::vector<std::int32_t> read_ranks(std::string_view text) {
  std::vector<std::int32_t> ranks;
  std::istringstream words{std::string(text)};
  for (std::int32_t rank = 0; words >> rank;) ranks.push_back(rank);
  return ranks;
}

/// The more ranks there are, the fewer of each one's last calls.
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
      times_(stuck_after),
      stopped_(stuck_after) {}

void Watch::begin(const Assignment& assignment, const std::string& host,
                  const std::string& node_id) {
  known_ = NodeSight{.job = assignment.job,
                     .node = node_id.empty() ? host : node_id,
                     .host = host,
                     .agent = ::getpid(),
                     .node_rank = assignment.node_rank,
                     .node_count = assignment.node_count,
                     .epoch = assignment.epoch,
                     .attempt = assignment.attempt,
                     .world_size = assignment.world_size,
                     .ranks = {},
                     .stuck = ""};
  for (int i = 0; i < assignment.local_size; ++i) {
    known_.ranks.emplace_back().rank = assignment.first_rank + i;
  }
  times_.forget();
  waits_.clear();
  judge_.forget();
  stopped_.forget();
  has_members_ = false;
  calls_seen_ = 0;
  disagreement_.reset();
  ranks_told_mismatch_ = false;
  if (!status_) open_status();
}

void Watch::open_status() {
  try {
    status_ = std::make_unique<StatusSocket>(
        io_, known_.job, known_.node, [this](const std::string& question, auto reply) {
          ask(question == "flight" ? "flight" : "status", [reply](const auto& documents) {
            std::string all;
            for (const auto& document : documents) all += document;
            reply(std::move(all));
          });
        });
  } catch (const Error& error) {
    say_(std::string("dlaunch status will not find this job: ") + error.what());
  }
}

void Watch::begin_with_others(const Assignment& assignment, store::Uplink& uplink,
                              JobWatch::Roster roster) {
  if (!job_) {
    job_ = std::make_unique<JobWatch>(
        io_, [this](const std::string& question) { return answer(question); }, say_);
  }
  job_->begin(uplink, assignment, std::move(roster));
}

void Watch::lost(int first_rank, int count, const std::string& cause) {
  if (job_) job_->lost(first_rank, count, cause);
}

void Watch::started(const std::vector<pid_t>& pids) {
  for (std::size_t i = 0; i < std::min(pids.size(), known_.ranks.size()); ++i) {
    known_.ranks[i].pid = pids[i];
  }
  if (stuck_after_ <= stuck_after_.zero()) return;
  looking_ = true;
  arm();
}

void Watch::joined(int local_rank) {
  known_.ranks.at(static_cast<std::size_t>(local_rank)).member = true;
  if (std::exchange(has_members_, true)) return;
  looking_ = true;
  arm();
}

void Watch::ended(const Workers::Ended& ended) {
  auto& rank = known_.ranks.at(static_cast<std::size_t>(ended.local_rank));
  rank.state = RankSight::State::ended;
  rank.end = describe(ended.status);
  rank.ended = Clock::now();
}

void Watch::stop() {
  looking_ = false;
  timer_.cancel();
}

NodeSight Watch::sight(std::size_t calls) const {
  NodeSight node = known_;
  Segment* const segment = find_segment_();
  for (std::size_t i = 0; i < node.ranks.size(); ++i) {
    auto& rank = node.ranks[i];
    if (segment != nullptr && static_cast<int>(i) < segment->size()) {
      rank.ring = &segment->flight(static_cast<int>(i));
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

std::string Watch::answer(const std::string& question) const {
  constexpr std::string_view stuck = "stuck ";
  if (question == "flight") {
    return flight_json(sight(flight_records(known_.node_count, known_.ranks.size())), Clock::now());
  }
  if (question == "waits") return waits_text(waits_);
  if (question.starts_with(stuck)) {
    const auto wait = read_wait(std::string_view(question).substr(stuck.size()));
    if (!wait) return "";
    return part_text(describe(*wait, sight(compared_calls).ranks, known_.world_size, Clock::now()));
  }
  constexpr std::string_view doing = "doing ";
  if (question.starts_with(doing)) {
    return doing_document(doing_here(read_ranks(std::string_view(question).substr(doing.size()))));
  }
  NodeSight node = sight(1);
  if (job_ && node.stuck.empty()) node.stuck = job_->stuck();
  return status_json(node, Clock::now());
}

void Watch::ask(const std::string& question, JobWatch::Gathered gathered) {
  if (job_) return job_->ask(question, std::move(gathered));
  gathered({answer(question)});
}

/// Tells what those of the ranks do that live here.
wire::Doing Watch::doing_here(const std::vector<std::int32_t>& ranks) const {
  wire::Doing doing;
  const auto now = Clock::now();
  for (const auto& rank : sight(1).ranks) {
    if (std::find(ranks.begin(), ranks.end(), rank.rank) == ranks.end()) continue;
    doing.ranks.push_back(rank.rank);
    doing.texts.push_back(doing_text(rank, now));
  }
  return doing;
}

void Watch::ask_doing(const std::vector<std::int32_t>& ranks,
                      std::function<void(wire::Doing doing)> told) {
  // When a job is stuck, all its nodes want to know.
  if (!job_ || known_.node_rank >= asking_nodes_max) return told({});
  std::string question = "doing";
  for (const auto rank : ranks) question += " " + std::to_string(rank);
  job_->ask(
      question,
      [told = std::move(told)](const std::vector<std::string>& documents) {
        wire::Doing doing;
        for (const auto& document : documents) add_doing(doing, document);
        told(std::move(doing));
      },
      doing_patience);
}

void Watch::arm() {
  timer_.expires_after(
      has_members_ ? interval
                   : std::clamp<Clock::duration>(stuck_after_ / 4, interval, outside_interval_max));
  timer_.async_wait([this](auto error) {
    if (error || !looking_) return;
    look();
    arm();
  });
}

void Watch::look() {
  const NodeSight node = sight(compared_calls);
  const auto now = Clock::now();
  if (const auto stopped = stopped_.look(node.ranks, now)) say_(*stopped);
  if (has_members_) look_at_calls(node, now);
}

void Watch::look_at_calls(const NodeSight& node, Clock::time_point now) {
  waits_ = times_.look(node.ranks, now);
  const auto found = judge_.judge(waits_);
  if (found && job_) {
    job_->ring();
  } else if (found) {
    known_.stuck = to_string(describe(*found, node.ranks, node.world_size, now));
    say_(known_.stuck);
  } else if (!judge_.is_stuck()) {
    known_.stuck.clear();
  }
  look_for_disagreement(node, now);
}

void Watch::look_for_disagreement(const NodeSight& node, Clock::time_point now) {
  if (disagreement_ && now >= disagreement_->theirs_until) tell_disagreement();
  std::uint64_t calls = 0;
  for (const auto& rank : node.ranks) calls += rank.log.begun;
  if (std::exchange(calls_seen_, calls) == calls || disagreement_) return;
  if (auto sentence = find_disagreement(node.ranks)) {
    disagreement_ = Disagreement{std::move(*sentence), now + ranks_say_it_within};
  }
}

void Watch::tell_disagreement() {
  if (!disagreement_ || std::exchange(disagreement_->told, true) || ranks_told_mismatch_) return;
  say_(disagreement_->sentence);
}

void Watch::reported(Errc code) {
  if (code == Errc::mismatch) ranks_told_mismatch_ = true;
}

}  // namespace dlaunch::launcher
