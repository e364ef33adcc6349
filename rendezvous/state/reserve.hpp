#pragma once

#include <string>

namespace dlaunch::rendezvous {

/// Room on the disk of a state file, held by a file beside it. When the disk is full it is given
/// up, so that what is carried out already can still be written down, and only what comes after is
/// refused.
class Reserve {
 public:
  /// As much as two batches of the writer may take.
  static constexpr long bytes = 64L << 20;

  explicit Reserve(const std::string& state_file) : path_(state_file + "-reserve") {}

  /// True where the room is there, taken now or before.
  bool take();
  void give_up();

 private:
  std::string path_;
};

}  // namespace dlaunch::rendezvous
