#include "launcher/watch/job_watch.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace dlaunch::launcher {
namespace {

/// The pause between two rounds of questions to all nodes, however often nodes ring.
constexpr auto pause = std::chrono::seconds(1);
/// How often we look whether a call that was reported is still stuck.
constexpr auto look_again_after = std::chrono::seconds(5);

}  // namespace

JobWatch::JobWatch(boost::asio::io_context& io, Inquiries::Respond respond, Say say)
    : say_(std::move(say)),
      timer_(io),
      ring_timer_(io),
      inquiries_(io, [this, respond = std::move(respond)](const Question& question) -> Answer {
        if (!std::holds_alternative<AskLook>(question)) return respond(question);
        look_at(next_look_);
        return Looking{};
      }) {}

void JobWatch::begin(QuestionLine& line, const Assignment& assignment, Roster roster) {
  timer_.cancel();
  ring_timer_.cancel();
  epoch_ = {assignment.epoch, assignment.world_size, assignment.node_count, std::move(roster)};
  inquiries_.begin(line, assignment);
}

void JobWatch::lost(const rendezvous::RanksLost& lost) {
  for (int rank = lost.first_rank; rank < lost.first_rank + lost.count; ++rank) {
    epoch_.lost.try_emplace(rank, lost.how);
  }
}

// ---- Stuck calls: all nodes list their waiting calls; then each says who is absent from one ----

void JobWatch::ring() {
  inquiries_.ask_one(0, AskLook{},
                     [this, epoch = epoch_.number](const Inquiries::Answers& answers) {
                       if (epoch != epoch_.number || answers.contains(0)) return;
                       ring_timer_.expires_after(pause);
                       ring_timer_.async_wait([this](auto error) {
                         if (!error) ring();
                       });
                     });
}

void JobWatch::look_at(Clock::time_point when) {
  if (std::exchange(epoch_.looking, true)) return;
  timer_.expires_at(when);
  timer_.async_wait([this](auto error) {
    if (!error) look();
  });
}

void JobWatch::look() {
  next_look_ = Clock::now() + pause;
  inquiries_.ask_all(AskWaits{}, [this, epoch = epoch_.number](const Inquiries::Answers& answers) {
    if (epoch == epoch_.number) judge(answers);
  });
}

void JobWatch::judge(const Inquiries::Answers& answers) {
  std::vector<CallWait> waits;
  for (const auto& [node, answer] : answers) {
    const auto* told = std::get_if<CallWaits>(&answer);
    if (told != nullptr) waits.insert(waits.end(), told->waits.begin(), told->waits.end());
  }
  const auto found = epoch_.judge.judge(merge_waits(std::move(waits)));
  epoch_.looking = false;
  if (!epoch_.judge.is_stuck()) return epoch_.stuck.clear();
  look_at(Clock::now() + look_again_after);
  if (!found) return;
  inquiries_.ask_all(AskPart{*found},
                     [this, wait = *found, epoch = epoch_.number](const Inquiries::Answers& parts) {
                       if (epoch == epoch_.number) tell(wait, parts);
                     });
}

void JobWatch::tell(CallWait wait, const Inquiries::Answers& answers) {
  StuckCall stuck;
  stuck.wait = std::move(wait);
  for (const auto& [node, answer] : answers) {
    if (const auto* part = std::get_if<StuckPart>(&answer)) stuck.add(*part);
  }
  // The call has gone on meanwhile.
  if (stuck.waiting.empty()) return epoch_.judge.forget();
  add_silent(stuck, answers);
  epoch_.stuck = to_string(stuck);
  say_(epoch_.stuck);
}

void JobWatch::add_silent(StuckCall& stuck, const Inquiries::Answers& answers) const {
  const CallWait& wait = stuck.wait;
  const bool whole_world = wait.sequence != 0 && wait.group_size == epoch_.world_size;
  for (int node = 0; node < epoch_.nodes; ++node) {
    if (answers.contains(node)) continue;
    const auto place = static_cast<std::size_t>(node);
    if (place >= epoch_.roster.size()) {
      stuck.silent.push_back("node rank " + std::to_string(node) + " does not answer");
      continue;
    }
    const auto& entry = epoch_.roster[place];
    if (!whole_world) {
      stuck.silent.push_back("node " + entry.id + " (" +
                             ranks_text(entry.first_rank, entry.workers) + ") does not answer");
      continue;
    }
    for (int rank = entry.first_rank; rank < entry.first_rank + entry.workers; ++rank) {
      const auto known = epoch_.lost.find(rank);
      ++stuck.known;
      stuck.absent.emplace_back(rank, known != epoch_.lost.end()
                                          ? text_of(known->second)
                                          : "node " + entry.id + " does not answer");
    }
  }
  std::sort(stuck.absent.begin(), stuck.absent.end());
}

}  // namespace dlaunch::launcher
