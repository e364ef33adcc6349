#include "runtime/store/core/waits.hpp"

#include <cstring>

namespace dlaunch::store {
namespace {

/// About how many bytes the tables take for each wait.
constexpr std::size_t table_bytes = 320;

}  // namespace

NameList::NameList(std::span<const std::string_view> names) {
  std::size_t size = 0;
  for (const std::string_view name : names) size += sizeof(std::uint32_t) + name.size();
  packed_.reserve(size);
  for (const std::string_view name : names) append(name);
}

void NameList::append(std::string_view name) {
  const auto size = static_cast<std::uint32_t>(name.size());
  std::array<char, sizeof size> raw{};
  std::memcpy(raw.data(), &size, sizeof size);
  packed_.append(raw.data(), raw.size()).append(name);
  ++count_;
}

std::uint32_t NameList::size_at(std::size_t place) const {
  std::uint32_t size = 0;
  std::memcpy(&size, packed_.data() + place, sizeof size);
  return size;
}

std::size_t PendingWait::bytes() const { return sizeof(PendingWait) + table_bytes + names.end(); }

Waits::Channel Waits::channel_of(PendingWait::Kind kind) {
  switch (kind) {
    case PendingWait::Kind::keys:
    case PendingWait::Kind::value:
      return Channel::exists;
    case PendingWait::Kind::pop:
      return Channel::pop;
    case PendingWait::Kind::watch:
      return Channel::watch;
    case PendingWait::Kind::barrier:
      return Channel::barrier;
    case PendingWait::Kind::gather:
      return Channel::gather;
  }
  return Channel::exists;  // Not reached: the switch is complete.
}

Waits::Id Waits::add(PendingWait added) {
  const Id id = next_++;
  const PendingWait& wait = waits_.emplace(id, std::move(added)).first->second;
  bytes_ += wait.bytes();
  try {
    ++per_client_[wait.by.client];
    by_caller_.insert_or_assign({wait.by.client, wait.by.request}, id);
    if (wait.deadline != Clock::time_point::max()) deadlines_.emplace(wait.deadline, id);
    listen(id, channel_of(wait.kind), wait.names[wait.at]);
  } catch (...) {
    take(id);  // Without memory for all of it nothing of it stays.
    throw;
  }
  return id;
}

PendingWait* Waits::find(Id id) {
  const auto found = waits_.find(id);
  return found == waits_.end() ? nullptr : &found->second;
}

std::optional<Waits::Id> Waits::find(Caller by) const {
  const auto found = by_caller_.find({by.client, by.request});
  if (found == by_caller_.end()) return std::nullopt;
  return found->second;
}

PendingWait Waits::take(Id id) {
  const auto found = waits_.find(id);
  PendingWait wait = std::move(found->second);
  waits_.erase(found);
  const auto caller = by_caller_.find({wait.by.client, wait.by.request});
  if (caller != by_caller_.end() && caller->second == id) by_caller_.erase(caller);
  const auto client = per_client_.find(wait.by.client);
  if (client != per_client_.end() && --client->second == 0) per_client_.erase(client);
  if (wait.deadline != Clock::time_point::max()) deadlines_.erase({wait.deadline, id});
  bytes_ -= wait.bytes();
  unlisten(id, channel_of(wait.kind), wait.names[wait.at]);
  return wait;
}

void Waits::listen_at(Id id, std::size_t place) {
  PendingWait& wait = *find(id);
  const std::string_view before = wait.names[wait.at], next = wait.names[place];
  // It listens to the old name for as long as it does not listen to the next one.
  if (before != next) {
    listen(id, channel_of(wait.kind), next);
    unlisten(id, channel_of(wait.kind), before);
  }
  wait.at = place;
}

void Waits::listen(Id id, Channel channel, std::string_view name) {
  auto& names = channels_[index(channel)];
  auto found = names.find(name);
  if (found == names.end()) found = names.emplace(std::string(name), Ids{}).first;
  try {
    found->second.insert(id);
  } catch (...) {
    if (found->second.empty()) names.erase(found);
    throw;
  }
}

void Waits::unlisten(Id id, Channel channel, std::string_view name) {
  auto& names = channels_[index(channel)];
  const auto found = names.find(name);
  if (found == names.end()) return;
  found->second.erase(id);
  if (found->second.empty()) names.erase(found);
}

const Waits::Ids* Waits::listeners(Channel channel, std::string_view name) const {
  const auto& names = channels_[index(channel)];
  const auto found = names.find(name);
  return found == names.end() ? nullptr : &found->second;
}

std::size_t Waits::count_of(std::uint64_t client) const {
  const auto found = per_client_.find(client);
  return found == per_client_.end() ? 0 : found->second;
}

std::optional<Waits::Id> Waits::any_of(std::uint64_t client) const {
  const auto found = by_caller_.lower_bound({client, 0});
  if (found == by_caller_.end() || found->first.first != client) return std::nullopt;
  return found->second;
}

std::optional<std::pair<Clock::time_point, Waits::Id>> Waits::earliest() const {
  if (deadlines_.empty()) return std::nullopt;
  return *deadlines_.begin();
}

}  // namespace dlaunch::store
