#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/state/changes.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// Which namespace it is: that of one epoch of a job.
struct SpaceName {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;

  auto operator<=>(const SpaceName&) const = default;
};

/// All that a state file holds.
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

/// The file in which dlaunchd keeps jobs and keys: an SQLite database that one connection of one
/// process has for itself, in WAL mode, with synchronous=FULL. Each row carries a sum of what is in
/// it, since SQLite does not notice a bit of a value that has turned over. One thread at a time.
class StateFile {
 public:
  /// Opens the file or makes it. Throws Error (Errc::refused) with a sentence that names it: where
  /// it cannot be opened or written, is another program's, of a newer version, damaged, or in use.
  static StateFile open(const std::string& path);
  /// The same, of one that has to be there, for all but write(). A copy is not changed by it.
  static StateFile open_existing(const std::string& path);
  StateFile(StateFile&&) noexcept;
  StateFile& operator=(StateFile&&) noexcept;
  ~StateFile();

  /// Reads and checks everything. Throws Error (Errc::refused) where it is damaged.
  StateContents load();

  enum class Wrote { all, no_space };
  /// Makes the changes, all or none of them, and returns when they are on disk. Throws StateLost
  /// where that cannot be said: what is on disk is then known only to the next one that opens it.
  Wrote write(std::span<const Change> changes);
  /// A copy of what it holds, in a file that must not be there yet. Throws Error.
  void copy_to(const std::string& path);

  /// After this memory() of a journal is another one: what was kept last is gone. Throws Error.
  void forget_memory();

  const std::string& path() const;

 private:
  struct State;
  explicit StateFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
