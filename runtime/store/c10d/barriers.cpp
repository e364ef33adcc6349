#include "runtime/store/c10d/barriers.hpp"

#include <algorithm>
#include <variant>

namespace dlaunch::c10d {

void Barriers::arrive(store::KeyValues& values, store::Caller by, std::string_view key,
                      std::int64_t world, store::Effects& out) {
  auto barrier = barriers_.find(key);
  if (barrier == barriers_.end()) barrier = barriers_.emplace(key, Waiters{}).first;
  // It is here before it counts, and there is room for all answers: who waits for the last one to
  // arrive misses nothing where memory is short.
  const auto place = barrier->second.emplace(Place{by.client, by.request}, world).first;
  out.reserve(out.size() + 1 + barrier->second.size());
  const auto begin = static_cast<std::ptrdiff_t>(out.size());
  values.add(by, key, 1, out);
  const auto own = std::find_if(out.begin() + begin, out.end(),
                                [&](const store::Effect& effect) { return effect.to == by; });
  const auto* count = own == out.end() ? nullptr : std::get_if<store::Number>(&own->answer);
  if (count == nullptr) {  // The arrival was refused, and answered.
    barrier->second.erase(place);
    if (barrier->second.empty()) barriers_.erase(barrier);
    return;
  }
  const auto arrived = count->value;
  out.erase(own);

  std::erase_if(barrier->second, [&](const auto& waiter) {
    const auto& [who, waits_for] = waiter;
    if (waits_for > arrived) return false;
    out.push_back({{who.first, who.second}, store::Done{}});
    return true;
  });
  if (barrier->second.empty()) barriers_.erase(barrier);
}

void Barriers::cancel(store::Caller by, std::string_view key) {
  const auto barrier = barriers_.find(key);
  if (barrier == barriers_.end()) return;
  barrier->second.erase({by.client, by.request});
  if (barrier->second.empty()) barriers_.erase(barrier);
}

}  // namespace dlaunch::c10d
