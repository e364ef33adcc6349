#include "runtime/store/core/leases.hpp"

#include <algorithm>

namespace dlaunch::store {

void Leases::schedule(std::uint64_t id, Owner& owner) {
  queue_.erase({owner.next, id});
  if (owner.keys.empty()) {
    owners_.erase(id);
    return;
  }
  Clock::duration shortest = Clock::duration::max();
  for (const auto& [key, lease] : owner.keys) shortest = std::min(shortest, lease);
  owner.next = owner.heard + shortest;
  queue_.emplace(owner.next, id);
}

void Leases::hold(std::uint64_t owner, std::string_view key, Clock::duration lease,
                  Clock::time_point now) {
  Owner& held = owners_[owner];
  held.heard = now;
  held.keys.insert_or_assign(std::string(key), lease);
  schedule(owner, held);
}

void Leases::release(std::uint64_t owner, std::string_view key) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  const auto held = found->second.keys.find(key);
  if (held == found->second.keys.end()) return;
  found->second.keys.erase(held);
  schedule(owner, found->second);
}

void Leases::renew(std::uint64_t owner, Clock::time_point now) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  found->second.heard = now;
  schedule(owner, found->second);
}

std::vector<std::string> Leases::end(std::uint64_t owner) {
  std::vector<std::string> keys;
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return keys;
  for (const auto& [key, lease] : found->second.keys) keys.push_back(key);
  queue_.erase({found->second.next, owner});
  owners_.erase(found);
  return keys;
}

std::size_t Leases::count_of(std::uint64_t owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? 0 : found->second.keys.size();
}

std::vector<std::string> Leases::expire(Clock::time_point now, std::size_t enough) {
  std::vector<std::string> keys;
  while (!queue_.empty() && queue_.begin()->first <= now && keys.size() < enough) {
    const std::uint64_t id = queue_.begin()->second;
    Owner& owner = owners_.find(id)->second;
    erase_if(owner.keys, [&](const auto& held) {
      if (owner.heard + held.second > now) return false;
      keys.push_back(held.first);
      return true;
    });
    schedule(id, owner);
  }
  std::ranges::sort(keys);
  return keys;
}

std::optional<Clock::time_point> Leases::earliest() const {
  if (queue_.empty()) return std::nullopt;
  return queue_.begin()->first;
}

}  // namespace dlaunch::store
