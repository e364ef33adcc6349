#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// Pieces of the sentences that people read, each written in one way only. Pure.
namespace dlaunch {

/// 'text'. Not named "quoted": for a std::string a call of that name may find std::quoted instead.
inline std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }
/// A name in quotes, cut where it is long.
std::string name_in_quotes(std::string_view name);
/// Somebody's text, cut to fit a message.
std::string clipped(std::string_view text);

/// "10.0.0.1:29400", "[fd00::1]:29400".
std::string host_port(const std::string& host, int port);

/// "train.cpp:42": a path's end says enough. Empty if there is no file, and for
/// dlaunch/options.hpp: options that were made apart from their call know only that file.
std::string site_text(std::string_view file, int line);

/// "1 node", "3 nodes".
std::string plural(long number, std::string_view what);

/// "a, b, c"; `show` makes an item a string.
template <class Items, class Show = std::identity>
std::string joined(const Items& items, Show show = {}) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ", ";
    text += show(item);
  }
  return text;
}

/// "a", "a and b", "a, b and c", "a, b and 17 more" where there are more than `most`.
template <class Items, class Show = std::identity>
std::string listed(const Items& items, std::size_t most, Show show = {}) {
  const std::size_t shown = std::min(items.size(), most);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += show(items[i]);
  }
  if (shown < items.size()) text += " and " + std::to_string(items.size() - shown) + " more";
  return text;
}

/// "0-3,5" for sorted or unsorted numbers.
std::string number_ranges(std::vector<int> numbers);
/// "rank 3", "ranks 0-3,5".
std::string ranks_text(const std::vector<int>& ranks);
std::string ranks_text(int first, int count);

/// "SIGKILL", "SIGRTMIN+3"; "signal 99" for what has no name.
std::string signal_name(int number);
/// "exited with 3", "killed by SIGSEGV (core dumped)".
std::string end_text(int code, int signal, bool core_dumped);

/// "5 s", "250 ms": a limit, as somebody has set it.
std::string duration_text(Clock::duration duration);
/// "0.3 s", "12.5 s": a measured time, to three digits.
std::string seconds_text(Clock::duration duration);
/// "40 ms", "1.5 s", "12 s", "20 min", "3 h": how long ago something was.
std::string age_text(Clock::duration age);

}  // namespace dlaunch
