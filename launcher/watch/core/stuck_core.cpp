#include "launcher/watch/core/stuck_core.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher::stuck {
namespace {

/// The pause between two rounds of questions to all nodes, however many nodes tell us.
constexpr auto pause = std::chrono::seconds(1);
/// How often we look whether a call that was reported is still stuck.
constexpr auto look_again_after = std::chrono::seconds(5);

}  // namespace

Effects StuckCore::step(const Event& event, Clock::time_point now) {
  now_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

void StuckCore::on(const Begun& e) {
  epoch_ = {.begun = e};
  effects_.push_back(Rest{});
}

void StuckCore::on(const rendezvous::RanksLost& e) {
  for (int rank = e.first_rank; rank < e.first_rank + e.count; ++rank) {
    epoch_.lost.try_emplace(rank, e.how);
  }
}

void StuckCore::tell_node_0() { effects_.push_back(TellNode0{epoch_.begun.epoch}); }

void StuckCore::on(const Heard& e) {
  if (e.epoch == epoch_.begun.epoch && !e.by_node_0) effects_.push_back(TellAgain{now_ + pause});
}

void StuckCore::on(const Alerted&) {
  if (std::exchange(epoch_.looking, true)) return;
  effects_.push_back(LookLater{std::max(next_look_, now_)});
}

void StuckCore::on(const LookDue&) {
  // The timer may have fired just before the epoch began.
  if (!epoch_.looking) return;
  next_look_ = now_ + pause;
  effects_.push_back(List{epoch_.begun.epoch});
}

void StuckCore::on(const Listed& e) {
  if (e.epoch != epoch_.begun.epoch) return;
  std::vector<CallWait> waits;
  for (const auto& [node, answer] : e.answers) {
    const auto* told = std::get_if<CallWaits>(&answer);
    if (told != nullptr) waits.insert(waits.end(), told->waits.begin(), told->waits.end());
  }
  const auto found = epoch_.judge.judge(merge_waits(std::move(waits)));
  epoch_.looking = epoch_.judge.is_stuck();
  if (!epoch_.looking) return epoch_.stuck.clear();
  effects_.push_back(LookLater{now_ + look_again_after});
  if (found) effects_.push_back(Describe{e.epoch, *found});
}

void StuckCore::on(const Described& e) {
  if (e.epoch != epoch_.begun.epoch) return;
  StuckCall stuck;
  stuck.wait = e.wait;
  for (const auto& [node, answer] : e.answers) {
    if (const auto* part = std::get_if<StuckPart>(&answer)) stuck.add(*part);
  }
  // The call has gone on meanwhile.
  if (stuck.waiting.empty()) return epoch_.judge.forget();
  add_silent(stuck, e.answers);
  epoch_.stuck = to_string(stuck);
  effects_.push_back(Say{epoch_.stuck});
}

void StuckCore::add_silent(StuckCall& stuck, const Answers& answers) const {
  const CallWait& wait = stuck.wait;
  const auto& roster = epoch_.begun.roster;
  const bool whole_world = wait.sequence != 0 && wait.group_size == epoch_.begun.world_size;
  for (int node = 0; node < epoch_.begun.nodes; ++node) {
    if (answers.contains(node)) continue;
    const auto place = static_cast<std::size_t>(node);
    if (place >= roster.size()) {
      stuck.silent.push_back("node rank " + std::to_string(node) + " does not answer");
      continue;
    }
    const auto& entry = roster[place];
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

}  // namespace dlaunch::launcher::stuck
