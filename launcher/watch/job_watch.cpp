#include "launcher/watch/job_watch.hpp"

#include "launcher/watch/stuck_exchange.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dlaunch::launcher {
namespace {

/// All nodes are asked at most so often of themselves, however often it rings.
constexpr auto pause = std::chrono::seconds(1);
/// And so often whether a call that was told is still stuck.
constexpr auto look_again_after = std::chrono::seconds(5);

std::string ranks_of(const rendezvous::Admission::Entry& node) {
  const std::string first = std::to_string(node.first_rank);
  if (node.workers == 1) return "rank " + first;
  return "ranks " + first + "-" + std::to_string(node.first_rank + node.workers - 1);
}

}  // namespace

JobWatch::JobWatch(boost::asio::io_context& io, Inquiries::Respond respond, Say say)
    : say_(std::move(say)),
      timer_(io),
      inquiries_(io, std::move(respond), [this] { look_at(next_look_); }) {}

void JobWatch::begin(store::Uplink& uplink, const Assignment& assignment, Roster roster) {
  timer_.cancel();
  epoch_ = assignment.epoch;
  world_size_ = assignment.world_size;
  nodes_ = assignment.node_count;
  roster_ = std::move(roster);
  lost_.clear();
  judge_.forget();
  stuck_.clear();
  looking_ = false;
  inquiries_.begin(uplink, assignment);
}

void JobWatch::lost(int first_rank, int count, const std::string& why) {
  for (int rank = first_rank; rank < first_rank + count; ++rank) lost_.try_emplace(rank, why);
}

void JobWatch::ask(const std::string& question, Gathered gathered, Clock::duration patience) {
  const auto collect = [gathered = std::move(gathered)](Inquiries::Answers answers) {
    std::vector<std::string> documents;
    for (auto& [node, document] : answers) documents.push_back(std::move(document));
    gathered(std::move(documents));
  };
  inquiries_.ask(question, collect, patience);
}

// ---- Stuck calls: first all nodes' calls that wait, then who is absent from the one to tell ----

void JobWatch::look_at(Clock::time_point when) {
  if (std::exchange(looking_, true)) return;
  timer_.expires_at(when);
  timer_.async_wait([this](auto error) {
    if (!error) look();
  });
}

void JobWatch::look() {
  next_look_ = Clock::now() + pause;
  inquiries_.ask("waits", [this, epoch = epoch_](Inquiries::Answers answers) {
    if (epoch == epoch_) judge(answers);
  });
}

void JobWatch::judge(const Inquiries::Answers& answers) {
  std::vector<CallWait> waits;
  for (const auto& [node, text] : answers) {
    auto theirs = read_waits(text);
    std::move(theirs.begin(), theirs.end(), std::back_inserter(waits));
  }
  const auto found = judge_.judge(merge_waits(std::move(waits)));
  looking_ = false;
  if (!judge_.is_stuck()) return stuck_.clear();
  look_at(Clock::now() + look_again_after);
  if (!found) return;
  inquiries_.ask("stuck " + wait_text(*found),
                 [this, wait = *found, epoch = epoch_](Inquiries::Answers parts) {
                   if (epoch == epoch_) tell(wait, parts);
                 });
}

void JobWatch::tell(CallWait wait, const Inquiries::Answers& answers) {
  StuckCall stuck;
  stuck.wait = std::move(wait);
  for (const auto& [node, part] : answers) add_part(stuck, part);
  // It has gone on meanwhile.
  if (stuck.waiting.empty()) return judge_.forget();
  add_silent(stuck, answers);
  stuck_ = to_string(stuck);
  say_(stuck_);
}

void JobWatch::add_silent(StuckCall& stuck, const Inquiries::Answers& answers) const {
  const CallWait& wait = stuck.wait;
  const bool whole_world = wait.sequence != 0 && wait.group_size == world_size_;
  for (int node = 0; node < nodes_; ++node) {
    if (answers.contains(node)) continue;
    const auto place = static_cast<std::size_t>(node);
    if (place >= roster_.size()) {
      stuck.silent.push_back("node rank " + std::to_string(node) + " does not answer");
      continue;
    }
    const auto& entry = roster_[place];
    if (!whole_world) {
      stuck.silent.push_back("node " + entry.id + " (" + ranks_of(entry) + ") does not answer");
      continue;
    }
    for (int rank = entry.first_rank; rank < entry.first_rank + entry.workers; ++rank) {
      const auto known = lost_.find(rank);
      ++stuck.known;
      stuck.absent.emplace_back(
          rank, known != lost_.end() ? known->second : "node " + entry.id + " does not answer");
    }
  }
  std::sort(stuck.absent.begin(), stuck.absent.end());
}

}  // namespace dlaunch::launcher
