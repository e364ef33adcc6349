#include "runtime/store/core/leases.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

/// The bytes of a lease in the tables, besides its key.
constexpr std::size_t lease_bytes = 176;

}  // namespace

void Leases::schedule(std::uint64_t id, Owner& owner) {
  queue_.erase({owner.next, id});
  if (owner.keys.empty()) {
    owners_.erase(id);
    return;
  }
  owner.next = owner.heard + owner.by_length.begin()->first;
  queue_.emplace(owner.next, id);
}

void Leases::forget(Owner& owner, std::string_view key) {
  const auto held = owner.keys.find(key);
  owner.by_length.erase({held->second, held->first});
  bytes_ -= lease_bytes + held->first.size();
  owner.keys.erase(held);
}

void Leases::hold(std::uint64_t owner, std::string_view key, Clock::duration lease,
                  Clock::time_point now) {
  Owner& held = owners_[owner];
  held.heard = now;
  if (held.keys.contains(key)) forget(held, key);
  const auto added = held.keys.emplace(std::string(key), lease).first;
  held.by_length.emplace(lease, added->first);
  bytes_ += lease_bytes + key.size();
  schedule(owner, held);
}

void Leases::release(std::uint64_t owner, std::string_view key) {
  const auto found = owners_.find(owner);
  if (found == owners_.end() || !found->second.keys.contains(key)) return;
  forget(found->second, key);
  schedule(owner, found->second);
}

void Leases::renew(std::uint64_t owner, Clock::time_point now) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  found->second.heard = now;
  schedule(owner, found->second);
}

std::vector<std::string> Leases::end(std::uint64_t owner, std::size_t most) {
  std::vector<std::string> keys;
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return keys;
  Owner& ended = found->second;
  ended.heard = Clock::time_point::min();
  while (!ended.keys.empty() && keys.size() < most) {
    keys.emplace_back(ended.by_length.begin()->second);
    forget(ended, keys.back());
  }
  schedule(owner, ended);
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
    while (!owner.keys.empty() && owner.heard + owner.by_length.begin()->first <= now &&
           keys.size() < enough) {
      keys.emplace_back(owner.by_length.begin()->second);
      forget(owner, keys.back());
    }
    schedule(id, owner);
  }
  std::ranges::sort(keys);
  return keys;
}

/// Those of an owner who has said goodbye have run out before the beginning of time.
std::optional<Clock::time_point> Leases::earliest() const {
  if (queue_.empty()) return std::nullopt;
  return std::max(queue_.begin()->first, Clock::time_point{});
}

}  // namespace dlaunch::store
