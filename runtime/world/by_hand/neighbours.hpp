#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/processors.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Lets ranks that no agent started share the memory of their host, and find out which ranks share
/// its processors.
namespace dlaunch {

/// A rank on this host's processors, by its own description.
struct Neighbour {
  int rank = -1;
  std::uint32_t user = 0;      ///< Effective user id.
  std::string socket;          ///< The abstract name at which it listens; empty if it cannot.
  Processors processors = {};  ///< The processors it may use.
  /// Its network namespace and host name; ranks with equal places see each other.
  std::string place = {};

  bool operator==(const Neighbour&) const = default;
};

/// A line for each neighbour; other lines are left out when reading. Sorted by rank.
std::string to_text(const Neighbour& neighbour);
std::vector<Neighbour> neighbours_from(std::string_view text);

/// One rank's part in the meeting. The lowest rank makes the segment and hands it to the others
/// over a unix socket under a random abstract name. Only processes of the same network namespace
/// find that name, and only those of the same user (or root) are answered. All keep the segment if
/// all have mapped it; otherwise nobody does. For one thread.
class SegmentMeeting {
 public:
  /// Listens. Never throws: where that is forbidden the name is empty.
  SegmentMeeting();
  const std::string& socket_name() const { return name_; }

  /// To be called by all of `neighbours` that have one place, of which `info.rank` is one, within a
  /// short time. Null if they share nothing: one of them came too late, is gone, belongs to another
  /// user, or cannot have it. Throws only what `link.losses()` throws.
  std::shared_ptr<Segment> share(std::span<const Neighbour> neighbours, const WorldInfo& info,
                                 Membership& link, Clock::time_point deadline);

 private:
  std::shared_ptr<Segment> share_at(std::span<const Neighbour> place, bool crowded,
                                    const WorldInfo& info, Membership& link,
                                    Clock::time_point deadline);
  std::shared_ptr<Segment> hand_out(std::shared_ptr<Segment> segment, Membership& link,
                                    Clock::time_point deadline);

  std::string name_;
  unique_fd listener_;
};

}  // namespace dlaunch
