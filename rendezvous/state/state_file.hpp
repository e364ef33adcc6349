#pragma once

#include "rendezvous/state/changes.hpp"
#include "rendezvous/state/state_contents.hpp"
#include "rendezvous/state/state_place.hpp"

#include <memory>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

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
  /// A copy of what it holds, in a file that must not be there yet; until it is whole it is at
  /// `part`, where there is nothing of worth. It does not outlive this. Throws Error.
  std::unique_ptr<Backup> copy_to(const std::string& path, const std::string& part);

  /// After this memory() of a journal is another one: what was kept last is gone. Throws Error.
  void forget_memory();

  const std::string& path() const;

 private:
  struct State;
  explicit StateFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
