#include "runtime/base/phrases.hpp"
#include "runtime/store/relay/relay_state.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

/// The prefixes under which a rank publishes its address and identity; only the rank itself writes
/// there.
constexpr std::string_view own_prefixes[] = {"mesh/", "member/", "location/"};
/// Limits of the remembered keys. A rank has a few short ones; more are not remembered.
constexpr std::size_t published_max = 65'536;
constexpr std::size_t published_bytes_max = 1024;

}  // namespace

void Relay::State::note_published(std::string_view key, BytesView value, bool if_absent) {
  const bool own = std::ranges::any_of(
      own_prefixes, [&](std::string_view prefix) { return key.starts_with(prefix); });
  if (!own || published.size() >= published_max || value.size() > published_bytes_max) return;
  // A conditional write that found the key taken has changed nothing.
  if (if_absent && published.contains(key)) return;
  published.insert_or_assign(std::string(key), Bytes(value.begin(), value.end()));
}

/// Publishes our ranks' keys to a store that has lost them: ranks of other nodes look them up when
/// they first send to ours, which may be late.
void Relay::State::publish_again() {
  forgotten = Clock::now();
  for (const auto& [key, value] : published) {
    uplink.request(wire::CompareSet::type, place.epoch,
                   wire::payload_of(wire::CompareSet{key, std::nullopt, value}), nullptr);
  }
}

Bytes Relay::State::with_forgotten(const wire::Failed& failure) const {
  const auto ago = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *forgotten);
  return wire::payload_of(
      wire::Failed{failure.code, failure.sentence +
                                     "; the rendezvous was started again and has forgotten "
                                     "what was set before (reached again " +
                                     duration_text(ago) + " ago)"});
}

}  // namespace dlaunch::store
