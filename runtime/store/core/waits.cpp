#include "runtime/store/core/waits.hpp"

namespace dlaunch::store {

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

Waits::Id Waits::add(PendingWait wait) {
  const Id id = next_++;
  by_caller_.insert_or_assign({wait.by.client, wait.by.request}, id);
  ++per_client_[wait.by.client];
  if (wait.deadline != Clock::time_point::max()) deadlines_.emplace(wait.deadline, id);
  waits_.emplace(id, std::move(wait));
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
  if (--client->second == 0) per_client_.erase(client);
  if (wait.deadline != Clock::time_point::max()) deadlines_.erase({wait.deadline, id});
  for (const std::string& name : wait.names) unlisten(id, channel_of(wait.kind), name);
  return wait;
}

bool Waits::listen(Id id, Channel channel, std::string_view name) {
  auto& names = channels_[index(channel)];
  auto found = names.find(name);
  if (found == names.end()) found = names.emplace(std::string(name), Ids{}).first;
  return found->second.insert(id).second;
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

std::vector<std::string> Waits::names(Channel channel) const {
  std::vector<std::string> result;
  for (const auto& [name, ids] : channels_[index(channel)]) result.push_back(name);
  return result;
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
