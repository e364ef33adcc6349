#include "runtime/store/relay/relay_state.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

/// A lease is renewed this often within its length.
constexpr int renewals_per_lease = 3;

}  // namespace

/// In the store all leases belong to the node, which renews them as long as there are any. Their
/// true holders are known here: a lease ends when its worker does not renew it.
void Relay::State::hold_lease(WorkerId worker, const Ask::Lease& lease, Clock::time_point now) {
  LeasedKey& key = leased[lease.key];
  if (key.holder != 0 && key.holder != worker) leases.release(key.holder, lease.key);
  key = {worker, lease.length};
  leases.hold(worker, lease.key, lease.length, now);
  next_renewal = std::min(next_renewal, now + lease.length / renewals_per_lease);
}

void Relay::State::end_leases(const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  for (const std::string& key : keys) leased.erase(key);
  uplink.request(wire::EndLeases::type, place.epoch,
                 wire::payload_of(wire::EndLeases{{keys.begin(), keys.end()}}), nullptr);
}

void Relay::State::renew(Clock::time_point now) {
  next_renewal = Clock::time_point::max();
  for (const auto& [key, lease] : leased) {
    next_renewal = std::min(next_renewal, now + lease.length / renewals_per_lease);
  }
  // Without a connection there is nothing to renew; the reconnect does.
  if (!leased.empty() && uplink.connected()) {
    uplink.request(wire::Renew::type, place.epoch, {}, nullptr);
  }
}

}  // namespace dlaunch::store
