#include "launcher/watch.hpp"

#include "runtime/base/process_stat.hpp"
#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr auto interval = std::chrono::milliseconds(100);
/// Of each rank's last calls, so many are compared with the others'.
constexpr std::size_t compared_calls = 16;

}  // namespace

Watch::Watch(boost::asio::io_context& io, Clock::duration stuck_after, FindSegment segment, Say say)
    : io_(io),
      stuck_after_(stuck_after),
      find_segment_(std::move(segment)),
      say_(std::move(say)),
      timer_(io),
      stuck_watch_(stuck_after) {}

void Watch::begin(const Assignment& assignment, const std::string& host,
                  const std::string& node_id) {
  known_ = NodeSight{.job = assignment.job,
                     .node = node_id.empty() ? host : node_id,
                     .host = host,
                     .agent = ::getpid(),
                     .epoch = assignment.epoch,
                     .attempt = assignment.attempt,
                     .world_size = assignment.world_size,
                     .ranks = {},
                     .stuck = ""};
  for (int i = 0; i < assignment.local_size; ++i) {
    known_.ranks.emplace_back().rank = assignment.first_rank + i;
  }
  stuck_watch_.forget();
  calls_seen_ = 0;
  told_disagreement_ = false;
  if (!status_) open_status();
}

void Watch::open_status() {
  try {
    status_ = std::make_unique<StatusSocket>(
        io_, known_.job, known_.node,
        [this](const std::string& question) { return answer(question); });
  } catch (const Error& error) {
    say_(std::string("dlaunch status will not find this job: ") + error.what());
  }
}

void Watch::started(const std::vector<pid_t>& pids) {
  for (std::size_t i = 0; i < std::min(pids.size(), known_.ranks.size()); ++i) {
    known_.ranks[i].pid = pids[i];
  }
}

/// Before the first of them there is nothing to look at.
void Watch::joined(int local_rank) {
  known_.ranks.at(static_cast<std::size_t>(local_rank)).member = true;
  if (!std::exchange(looking_, true)) arm();
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
    if (stat && (stat->state == 'T' || stat->state == 't')) rank.state = RankSight::State::stopped;
  }
  return node;
}

std::string Watch::answer(const std::string& question) const {
  if (question == "flight") return flight_json(sight(FlightRing::records_max), Clock::now());
  return status_json(sight(1), Clock::now());
}

bool Watch::has_calls() const {
  const auto node = sight(1);
  return std::any_of(node.ranks.begin(), node.ranks.end(),
                     [](const RankSight& rank) { return rank.log.begun > 0; });
}

void Watch::arm() {
  timer_.expires_after(interval);
  timer_.async_wait([this](auto error) {
    if (error || !looking_) return;
    look();
    arm();
  });
}

void Watch::look() {
  const NodeSight node = sight(compared_calls);
  const auto now = Clock::now();
  if (stuck_after_ > Clock::duration::zero()) {
    if (const auto stuck = stuck_watch_.look(node.ranks, node.world_size, now)) {
      known_.stuck = to_string(*stuck);
      say_(known_.stuck);
    } else if (!stuck_watch_.is_stuck()) {
      known_.stuck.clear();
    }
  }
  std::uint64_t calls = 0;
  for (const auto& rank : node.ranks) calls += rank.log.begun;
  if (std::exchange(calls_seen_, calls) == calls || told_disagreement_) return;
  if (const auto disagreement = find_disagreement(node.ranks)) {
    told_disagreement_ = true;
    say_(*disagreement);
  }
}

}  // namespace dlaunch::launcher
