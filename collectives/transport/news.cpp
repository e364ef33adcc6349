#include "collectives/transport/news.hpp"

#include <utility>

namespace dlaunch::transport {
namespace {

constexpr std::size_t failures_max = 1024;
/// Of one communicator; a device's queue holds about as many.
constexpr std::size_t device_calls_max = 2048;

}  // namespace

void News::take_failure(FailureNotice notice) {
  if (failures_.size() + wrong_arguments_.size() >= failures_max) return;
  if (notice.scope == Scope::this_call) {
    const std::pair call(notice.communicator, notice.sequence);
    wrong_arguments_.try_emplace(call, std::move(notice));
  } else {
    const auto [known, is_first] = failures_.try_emplace(notice.communicator, notice);
    if (!is_first && notice.sequence < known->second.sequence) known->second = std::move(notice);
  }
  has_failures_ = true;
}

const FailureNotice* News::failure_of(std::uint64_t communicator) const {
  const auto found = failures_.find(communicator);
  return found == failures_.end() ? nullptr : &found->second;
}

const FailureNotice* News::failure_of(std::uint64_t communicator, std::uint64_t sequence) const {
  const auto found = wrong_arguments_.find({communicator, sequence});
  return found == wrong_arguments_.end() ? nullptr : &found->second;
}

const FailureNotice* News::wrong_arguments(std::uint64_t communicator) const {
  auto after = wrong_arguments_.upper_bound({communicator, ~std::uint64_t{0}});
  if (after == wrong_arguments_.begin()) return nullptr;
  --after;
  return after->first.first == communicator ? &after->second : nullptr;
}

void News::take_device_call(std::uint64_t communicator, const DeviceCall& call) {
  if (device_calls_.size() >= failures_max && !device_calls_.contains(communicator)) return;
  auto& calls = device_calls_[communicator];
  if (calls.size() >= device_calls_max) return;
  calls.push_back(call);
  has_device_calls_ = true;
}

std::optional<DeviceCall> News::next_device_call(std::uint64_t communicator,
                                                 std::uint64_t sequence) {
  const auto calls = device_calls_.find(communicator);
  if (calls == device_calls_.end()) return std::nullopt;
  if (calls->second.front().call.sequence > sequence) return std::nullopt;
  const DeviceCall next = calls->second.front();
  calls->second.pop_front();
  if (calls->second.empty()) device_calls_.erase(calls);
  has_device_calls_ = !device_calls_.empty();
  return next;
}

std::optional<Status> News::activity(std::uint64_t communicator) const {
  std::optional<Status> best;
  const auto fits = [&](const Status& status) {
    return std::pair(status.communicator == communicator, status.sequence);
  };
  for (const Activity* activity : activities_) {
    Status status = (*activity)();
    if (!best || fits(*best) < fits(status)) best = std::move(status);
  }
  return best;
}

void News::take_answer(int from, std::uint64_t communicator, const Status& status) {
  for (Inquiry* inquiry : inquiries_) {
    if (inquiry->communicator == communicator) inquiry->answers.insert_or_assign(from, status);
  }
}

}  // namespace dlaunch::transport
