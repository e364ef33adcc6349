#include "runtime/store/c10d/waiting.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/store/c10d/c10d_session.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <variant>

/// Descriptions of clients that wait.
namespace dlaunch::c10d {

/// A wait for the same keys as before goes on.
Session::Story Session::story_of(std::span<const std::string_view> keys, std::int64_t world) const {
  Story story{.world = world, .since = now_};
  const auto told = keys.first(std::min(keys.size(), told_keys_max));
  story.keys.assign(told.begin(), told.end());
  if (story.keys == given_up_.keys && world == given_up_.world) story.since = given_up_.since;
  return story;
}

std::optional<Waiting> Session::waiting() const {
  for (const auto& each : waits_) {
    if (each.answered) continue;
    Waiting told{.client = client_,
                 .keys = each.story.keys,
                 .more = each.keys - each.story.keys.size(),
                 .since = each.story.since,
                 .barrier = std::nullopt};
    if (!each.barrier.empty()) told.barrier = Waiting::Barrier{.world = each.story.world};
    return told;
  }
  return std::nullopt;
}

std::vector<Waiting> Namespace::waiting() {
  std::vector<Waiting> all;
  store::Effects found;
  for (const auto& [client, session] : open_) {
    auto told = session->waiting();
    if (!told) continue;
    if (told->barrier) {
      found.clear();
      values.get({}, told->keys.front(), found);
      if (const auto* count = std::get_if<store::Found>(&found.back().answer)) {
        const std::string_view digits = as_text(count->value);
        std::from_chars(digits.data(), digits.data() + digits.size(), told->barrier->arrived);
      }
    } else {
      std::erase_if(told->keys, [&](const std::string& key) {
        const std::string_view asked = key;
        found.clear();
        values.check({}, {&asked, 1}, found);
        return std::get<store::Number>(found.back().answer).value != 0;
      });
    }
    all.push_back(std::move(*told));
  }
  return all;
}

}  // namespace dlaunch::c10d
