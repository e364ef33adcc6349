#pragma once

#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/shm/ring_ends.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace dlaunch::transport {

/// The transport through the rings of a node: reads the rings to this rank, and makes the writing
/// ends of rings to others.
class Rings final : public Transport {
 public:
  /// The set of rings, which nobody has used before, and this rank's place in it; the world has
  /// `size` ranks.
  struct Setting {
    std::shared_ptr<Segment> segment;
    std::shared_ptr<Wakeup> bell;
    std::size_t set = 0;
    int local = 0;
    int size = 0;
  };
  Rings(Setting setting, const Surroundings& mesh);
  /// Tells the ranks of the node that this one neither reads nor writes any more, those to which it
  /// has never written, too.
  ~Rings() override;
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  /// A rank of this node that has come without mapping this segment never will map it.
  Reach reach(int rank, const std::optional<Location>& location) const override;
  bool is_in_memory() const noexcept override { return true; }
  std::unique_ptr<SendingEnd> connect(SendQueue& queue) override;
  bool progress() override;
  Clock::duration under_way() const noexcept override;
  void lie_down() override;
  void get_up() override { of_.bell->get_up(); }
  Clock::time_point next_wake() const override { return Clock::time_point::max(); }

 private:
  bool find_writers();

  const Setting of_;
  const Surroundings mesh_;
  std::atomic<std::uint64_t>* const writers_;  ///< Of this rank, in the segment.
  const bool has_remote_barriers_;             ///< Writers leave the fence to it.
  std::vector<std::uint64_t> known_writers_;   ///< As in RankBlock.
  std::vector<SendQueue*> outs_;               ///< Queues that are not broken.
  bool is_sending_ = false;                    ///< Whether one of the queues has work.
  ByRank<RingReader> readers_;
};

}  // namespace dlaunch::transport
