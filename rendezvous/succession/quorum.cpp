#include "rendezvous/succession/quorum.hpp"

#include <set>
#include <utility>

namespace dlaunch::rendezvous {

void Quorum::begin(std::uint64_t epoch, const std::vector<Session>& nodes) {
  for (const Session session : nodes) here_[session].push_back(epoch);
  epochs_[epoch] = {epoch, static_cast<int>(nodes.size()), 0};
  drop_old();
}

void Quorum::take_over(std::uint64_t epoch, int nodes) { epochs_[epoch] = {epoch, nodes, nodes}; }

void Quorum::came(Session session, std::uint64_t epoch) {
  if (here_.contains(session)) return;
  apart_.erase(session);
  here_[session] = {epoch};
  --epochs_[epoch].apart;
}

void Quorum::heard_of(Session session, std::uint64_t epoch) {
  const auto found = here_.find(session);
  if (found == here_.end()) return;
  std::erase_if(found->second, [&](std::uint64_t earlier) { return earlier < epoch; });
}

void Quorum::lost(Session session) {
  const auto found = here_.find(session);
  if (found == here_.end()) return;
  for (const std::uint64_t epoch : found->second) ++epochs_[epoch].apart;
  apart_[session] = std::move(found->second);
  here_.erase(found);
}

void Quorum::forget(Session session) {
  here_.erase(session);
  const auto found = apart_.find(session);
  if (found == apart_.end()) return;
  for (const std::uint64_t epoch : found->second) {
    if (const auto count = epochs_.find(epoch); count != epochs_.end()) --count->second.apart;
  }
  apart_.erase(found);
}

std::optional<Quorum::Count> Quorum::outvoted() const {
  for (const auto& [epoch, count] : epochs_) {
    if (count.lacks_half()) return count;
  }
  return std::nullopt;
}

Quorum::Count Quorum::of(std::uint64_t epoch) const {
  const auto found = epochs_.find(epoch);
  return found == epochs_.end() ? Count{} : found->second;
}

/// No node here goes by this epoch, so no more of its nodes can get out of reach.
void Quorum::drop_old() {
  std::set<std::uint64_t> used;
  for (const auto& [session, epochs] : here_) used.insert(epochs.begin(), epochs.end());
  std::erase_if(epochs_, [&](const auto& entry) { return !used.contains(entry.first); });
  std::erase_if(apart_, [&](const auto& entry) {
    for (const std::uint64_t epoch : entry.second) {
      if (used.contains(epoch)) return false;
    }
    return true;
  });
}

}  // namespace dlaunch::rendezvous
