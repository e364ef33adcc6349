#include "launcher/request/options.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher {

Streams StreamsByRank::of(int local_rank) const {
  const auto found = listed.find(local_rank);
  return found == listed.end() ? everyone : found->second;
}

void keep_ignored(Options& options, std::span<const int> ignored) {
  std::string names;
  std::erase_if(options.signals, [&](int number) {
    if (std::find(ignored.begin(), ignored.end(), number) == ignored.end()) return false;
    options.signals_ignored.push_back(number);
    names += (names.empty() ? "" : ", ") + signal_name(number);
    return true;
  });
  const auto& settings = options.settings;
  const bool asked = std::any_of(settings.begin(), settings.end(), [](const Setting& setting) {
    return setting.flag == "signals-to-handle" && setting.origin != Origin::standard;
  });
  if (!asked || names.empty()) return;
  options.notes.push_back("--signals-to-handle " + names +
                          " has no effect: it was ignored when dlaunch was started, and stays so.");
}

}  // namespace dlaunch::launcher
