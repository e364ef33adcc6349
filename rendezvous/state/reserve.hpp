#pragma once

#include <string>

namespace dlaunch::rendezvous {

/// Reserved room on the disk of a state file: a file beside it. When the disk is full the reserve
/// is given up, so that changes that are already carried out can still be written, and only later
/// ones are refused.
class Reserve {
 public:
  /// As much as two batches of the writer may take.
  static constexpr long bytes = 64L << 20;

  explicit Reserve(const std::string& state_file) : path_(state_file + "-reserve") {}

  /// Throws Error (Errc::refused) where a limit of this process (ulimit -f) keeps the files of such
  /// a state from being large enough.
  static void require_possible(const std::string& state_file);

  /// True if the room is reserved, now or before.
  bool take();
  void give_up();

 private:
  std::string path_;
};

}  // namespace dlaunch::rendezvous
