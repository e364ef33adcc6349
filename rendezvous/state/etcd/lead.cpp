#include "rendezvous/state/etcd/lead.hpp"

#include <algorithm>
#include <ctime>

namespace dlaunch::rendezvous::etcd {
namespace {

constexpr auto renewal_interval = lease_time / 3;
constexpr auto renewal_pause = std::chrono::milliseconds(200);
constexpr auto farewell_time = std::chrono::seconds(1);
/// By how much our clock and etcd's may drift apart within a lease's time.
constexpr std::int64_t margin_ms = 100;

/// A clock that runs on while the machine is suspended, since etcd's does.
std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

std::string Lead::other() {
  const Json found = gateway_.ask("/kv/range", Json::object({{"key", to_base64(key_)}}),
                                  Clock::now() + write_time);
  if (kvs_of(found).empty()) return {};
  const Json& kv = kvs_of(found).front();
  if (lease_ != 0 && number_in(kv, "lease") == lease_) {
    term_ = number_in(kv, "create_revision");
    return {};
  }
  return bytes_in(kv, "value");
}

/// The answer may be lost, so a look at the key then shows whether the lead was won.
bool Lead::try_to_win(const std::string& identity) {
  const auto asked = now_ms();
  const Json granted =
      gateway_.ask("/lease/grant", Json::object({{"TTL", std::to_string(lease_time.count())}}),
                   Clock::now() + write_time);
  lease_ = number_in(granted, "ID");
  keep_until(asked, number_in(granted, "TTL"));
  gateway_.ask(
      "/kv/txn",
      Json::object({{"compare", Json::array({condition(key_, "CREATE", "create_revision", "0")})},
                    {"success", Json::array({put_of(key_, identity, lease_)})}}),
      Clock::now() + write_time);
  return other().empty() && is_won();
}

bool Lead::keep_if_due() {
  if (Clock::now() < due_) return true;
  const auto asked = now_ms();
  std::int64_t seconds = 0;
  try {
    const Json kept =
        gateway_.ask("/lease/keepalive", Json::object({{"ID", std::to_string(lease_)}}),
                     Clock::now() + write_time);
    seconds = number_in(kept, "TTL");
  } catch (const Failure& failure) {
    if (failure.kind() != Failure::Kind::not_found) throw;
  }
  if (seconds <= 0) return false;
  keep_until(asked, seconds);
  return true;
}

void Lead::keep_until(std::int64_t asked_ms, std::int64_t seconds) {
  ours_until_ms_ = asked_ms + seconds * 1000 - margin_ms;
  due_ = Clock::now() + renewal_interval;
}

void Lead::try_again_soon() { due_ = Clock::now() + renewal_pause; }

void Lead::give_up() {
  doubt();
  if (lease_ == 0) return;
  try {
    gateway_.ask("/lease/revoke", Json::object({{"ID", std::to_string(lease_)}}),
                 Clock::now() + farewell_time);
  } catch (const Failure&) {
    return;  // The lease then ends by itself.
  }
}

Clock::duration Lead::left() const {
  return std::chrono::milliseconds(std::max<std::int64_t>(0, ours_until_ms_ - now_ms()));
}

}  // namespace dlaunch::rendezvous::etcd
