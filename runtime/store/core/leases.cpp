#include "runtime/store/core/leases.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

/// The bytes of a lease in the tables, besides its key.
constexpr std::size_t lease_bytes = 176;

}  // namespace

void Leases::schedule(std::uint64_t id, Owner& owner) {
  auto place = queue_.extract({owner.next, id});
  if (owner.keys.empty()) {
    owners_.erase(id);
    return;
  }
  owner.next = owner.heard + owner.by_length.begin()->first;
  if (place.empty()) {
    queue_.emplace(owner.next, id);
  } else {
    place.value() = {owner.next, id};
    queue_.insert(std::move(place));
  }
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
  try {
    const auto added = held.keys.emplace(std::string(key), lease).first;
    bytes_ += lease_bytes + key.size();
    held.by_length.emplace(lease, added->first);
    schedule(owner, held);
  } catch (...) {
    if (held.keys.contains(key)) forget(held, key);
    schedule(owner, held);
    throw;
  }
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
  schedule(owner, ended);
  for (const auto& [lease, key] : ended.by_length) {
    if (keys.size() == most) break;
    keys.emplace_back(key);
  }
  return keys;
}

std::size_t Leases::count_of(std::uint64_t owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? 0 : found->second.keys.size();
}

std::vector<Leases::Held> Leases::all_expired(Clock::time_point now, std::size_t enough) const {
  std::vector<Held> all;
  for (const auto& [next, id] : queue_) {
    if (next > now) break;
    const Owner& owner = owners_.find(id)->second;
    for (const auto& [lease, key] : owner.by_length) {
      if (all.size() == enough || owner.heard + lease > now) break;
      all.emplace_back(key, id);
    }
  }
  std::ranges::sort(all);
  return all;
}

std::vector<std::string> Leases::expired(Clock::time_point now, std::size_t enough) const {
  std::vector<std::string> keys;
  for (auto& [key, id] : all_expired(now, enough)) keys.push_back(std::move(key));
  return keys;
}

std::vector<std::string> Leases::release_all(std::vector<Held> held) {
  std::vector<std::string> keys;
  keys.reserve(held.size());
  for (auto& [key, id] : held) {
    release(id, key);
    keys.push_back(std::move(key));
  }
  return keys;
}

std::vector<std::string> Leases::take(std::uint64_t owner) {
  std::vector<Held> held;
  for (auto& key : end(owner, count_of(owner))) held.emplace_back(std::move(key), owner);
  return release_all(std::move(held));
}

std::vector<std::string> Leases::take_expired(Clock::time_point now) {
  return release_all(all_expired(now, ~std::size_t{0}));
}

/// Those of an owner who has said goodbye have run out before the beginning of time.
std::optional<Clock::time_point> Leases::earliest() const {
  if (queue_.empty()) return std::nullopt;
  return std::max(queue_.begin()->first, Clock::time_point{});
}

}  // namespace dlaunch::store
