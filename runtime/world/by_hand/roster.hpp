#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

using Member = wire::Hello::Member;

/// "pid 12 on host-a".
std::string to_string(const Member& member);

/// The ranks that have come to a world that forms without an agent. Pure; not thread-safe.
class Roster {
 public:
  explicit Roster(int world_size) : world_size_(world_size) {}

  /// nullopt: admitted, for good. Else the sentence with which the newcomer is refused: its world
  /// size differs, its rank is out of range, or taken.
  std::optional<std::string> admit(const Member& newcomer);

  int world_size() const { return world_size_; }
  bool complete() const { return members_.size() == static_cast<std::size_t>(world_size_); }
  const std::map<int, Member>& members() const { return members_; }
  /// The first few ranks that have not come.
  std::vector<int> absent(std::size_t most) const;
  /// "rank 2 of 3 did not come; rank 0 (pid 1 on a) and rank 1 (pid 2 on a) came", and who was
  /// refused. Long lists are cut.
  std::string attendance() const;

 private:
  int world_size_;
  std::map<int, Member> members_;
  std::vector<std::string> refusals_;
};

}  // namespace dlaunch
