#pragma once

#include "rendezvous/state/changes.hpp"
#include "rendezvous/state/state_contents.hpp"
#include "rendezvous/state/state_place.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

/// Whether a file of this size holds no state yet: SQLite takes one of a single byte for empty,
/// too.
constexpr bool is_empty_state(std::uintmax_t size_bytes) { return size_bytes <= 1; }

/// The file in which dlaunchd keeps jobs and keys: an SQLite database with a single connection, in
/// WAL mode, with synchronous=FULL. Each row carries a checksum, since SQLite does not notice a
/// flipped bit in a value. One thread at a time.
class StateFile {
 public:
  /// Opens the file or makes it. Throws Error with a sentence that names it: Errc::refused where it
  /// cannot be opened or written, is another program's, of a newer version or damaged,
  /// Errc::unreachable where that may pass: another process has it, or the disk is full.
  static StateFile open(const std::string& path);
  /// Opens an existing file, for everything but write(). Reading it changes neither it nor its log.
  static StateFile open_existing(const std::string& path);
  StateFile(StateFile&&) noexcept;
  StateFile& operator=(StateFile&&) noexcept;
  ~StateFile();

  /// Reads and checks everything. Throws Error (Errc::refused) where it is damaged.
  StateContents load();

  enum class Wrote { all, no_space, no_memory };
  /// Makes the changes, all or none of them, and returns when they are on disk. Throws StateLost if
  /// that is uncertain: the next process that opens the file finds out. Likewise where the path no
  /// longer names the file, for which nobody would look elsewhere.
  Wrote write(std::span<const Change> changes);
  /// Moves what the log holds into the file's own pages, where it is much. To be called between
  /// writes: whoever waits for a write does not wait for this. Throws StateLost as write() does.
  void tidy();
  /// Begins a copy into a file that must not exist yet. Until it is complete it is at `part`,
  /// which must not exist either. It must not outlive this. Throws Error.
  std::unique_ptr<Backup> copy_to(const std::string& path, const std::string& part);

  /// Changes the memory() of journals on this file, since changes after the backup are gone. Throws
  /// Error.
  void forget_memory();

  const std::string& path() const;
  /// The path of the file itself where path() is a link to it.
  const std::string& own_path() const;

 private:
  struct State;
  explicit StateFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
