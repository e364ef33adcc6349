#include "rendezvous/rounds/rounds_state.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// When the rest of a last call is told.
constexpr std::array countdown{30s, 20s, 10s, 5s};
constexpr std::size_t names_shown_max = 8;
/// Up to so many nodes hear at once of each that comes.
constexpr std::size_t nodes_told_at_once = 16;
constexpr auto standing_interval = 1s;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Takes the digits off the front of `text`, without leading zeros.
std::string_view take_number(std::string_view& text) {
  while (text.size() > 1 && text.front() == '0' && is_digit(text[1])) text.remove_prefix(1);
  std::size_t length = 0;
  while (length < text.size() && is_digit(text[length])) ++length;
  const auto digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

/// "12 s", "10 min": rounded up.
std::string rest_text(Clock::duration left) {
  if (left > 2min) {
    return std::to_string(std::chrono::ceil<std::chrono::minutes>(left).count()) + " min";
  }
  return duration_text(std::chrono::ceil<std::chrono::seconds>(left));
}

}  // namespace

std::string nodes_text(const JobRules& rules) {
  if (rules.nodes_min == rules.nodes_max) return plural(rules.nodes_max, "node");
  return std::to_string(rules.nodes_min) + " to " + plural(rules.nodes_max, "node");
}

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const auto x = take_number(a);
      const auto y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // node2 and node02 differ, too.
}

std::string list_text(const std::vector<std::string>& names) {
  return listed(names, names_shown_max);
}

void Rounds::State::stand(std::string sentence) {
  if (standing == sentence) return;
  standing = std::move(sentence);
  standing_key.clear();
  told = now;
  put(Standing{0, standing});
}

/// "2 of 4 nodes", "3 of 2 to 4 nodes".
std::string Rounds::State::count_text() const {
  return std::to_string(count()) + " of " + nodes_text(rules);
}

std::string Rounds::State::wait_text() const {
  if (leaving_until && count() >= rules.nodes_min) {
    return "; waiting " + rest_text(*leaving_until - now) + " for others that may leave, too";
  }
  if (count() >= rules.nodes_min && (!last_call || *last_call <= now)) {
    return "; waiting for broken connections to come back";
  }
  if (last_call) return "; last call in " + rest_text(std::max(*last_call - now, 0ns));
  if (!join_deadline || *join_deadline == Clock::time_point::max()) return "; waiting";
  return "; waiting up to " + rest_text(std::max(*join_deadline - now, 0ns));
}

/// "; missing node ranks 1 and 3", where every node has said which it is.
std::string Rounds::State::missing_ranks() const {
  if (elastic() || by_hint.size() != nodes.size()) return "";
  std::vector<std::string> absent_ranks;
  auto here = by_hint.begin();
  for (int rank = 0; rank < rules.nodes_max; ++rank) {
    if (here != by_hint.end() && here->first == rank) {
      ++here;
    } else {
      absent_ranks.push_back(std::to_string(rank));
    }
  }
  if (absent_ranks.empty()) return "";
  return (absent_ranks.size() == 1 ? "; missing node rank " : "; missing node ranks ") +
         list_text(absent_ranks);
}

std::string Rounds::State::names_here() const {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const auto& [id, session] : by_id) names.push_back(id);
  std::sort(names.begin(), names.end(), natural_less);
  return list_text(names);
}

void Rounds::State::stand_gathering(Session newcomer) {
  standing_due.reset();
  std::size_t calls = 0;
  if (last_call) {
    while (calls < countdown.size() && *last_call - now <= countdown[calls]) ++calls;
    if (calls < countdown.size()) standing_due = *last_call - countdown[calls];
  }
  const bool many = nodes.size() > nodes_told_at_once;
  if (many && told && now < *told + standing_interval) {
    const auto next = *told + standing_interval;
    standing_due = standing_due ? std::min(*standing_due, next) : next;
    if (newcomer != 0) put(Standing{newcomer, count_text() + wait_text()});
    return;
  }
  // The clock runs on; it is told a few times only.
  std::string key = count_text() + missing_ranks() + (last_call ? "; last call" : "");
  if (key == standing_key && calls == calls_said) {
    if (newcomer != 0) put(Standing{newcomer, standing});
    return;
  }
  calls_said = calls;
  stand(count_text() + missing_ranks() + wait_text());
  standing_key = std::move(key);
}

}  // namespace dlaunch::rendezvous
