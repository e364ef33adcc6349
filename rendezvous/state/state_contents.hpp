#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/state/changes.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// Names a namespace: that of one epoch of a job.
struct SpaceName {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;

  auto operator<=>(const SpaceName&) const = default;
};

/// The whole state that is kept over a restart.
struct StateContents {
  struct Space {
    change::Space number = 0;
    store::SpaceContents contents;
    /// How many answers each session has been given, by session.
    std::map<std::uint64_t, std::uint64_t> answers;
  };
  std::uint64_t memory = 0;  ///< As JobJournal::memory.
  std::vector<JobRecord> jobs;
  std::map<SpaceName, Space> spaces;
  change::Space next_space = 1;
};

}  // namespace dlaunch::rendezvous
