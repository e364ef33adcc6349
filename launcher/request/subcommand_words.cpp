#include "launcher/request/subcommand_words.hpp"

#include <array>

namespace dlaunch::launcher {

std::span<const SubcommandWords> subcommand_words() {
  static constexpr auto all = std::to_array<SubcommandWords>({
      {"bench", "Measure the collectives"},
      {"ctl", "Show the jobs of a dlaunchd, and act on them"},
      {"doctor", "Look at what of this host makes jobs fail"},
      {"drain", "Take this host out of a live job"},
      {"logs", "Show what the ranks of a job wrote"},
      {"ps", "List live jobs"},
      {"run", "Start a program, also one with the name of a subcommand"},
      {"stack", "Show where the ranks of a live job are"},
      {"status", "Show what the ranks of a live job do"},
      {"stop", "End a live job"},
  });
  return all;
}

}  // namespace dlaunch::launcher
