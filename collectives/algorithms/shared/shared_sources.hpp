#pragma once

#include "collectives/algorithms/select/select.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <cstddef>

namespace dlaunch::algorithms::shared {

/// For one writer and many readers: small enough that the readers find it in the second-level
/// cache.
inline constexpr std::size_t chunk_bytes = 128u << 10;

/// The table's choice for buffers that are not registered.
Shared serving(transport::Op op, std::size_t bytes, transport::ShmGroup& shm);
/// Whether it pays to offer buffers: if all turn out to be registered, the call works in place.
bool pays_to_offer(transport::Op op, std::size_t bytes, transport::ShmGroup& shm);

/// Places at which the members' data can be read: a buffer that lies in the segment need not be
/// copied into a slot. Each member offers its own with a step's payload and learns of the others'
/// after it has waited for them; so all know the same.
class Sources {
 public:
  explicit Sources(transport::ShmGroup& shm) : shm_(shm) {}

  /// Offers `bytes` from `data` on, in the open step. Returns whether they lie in the segment.
  bool offer(const std::byte* data, std::size_t bytes);
  /// Says that this member offers nothing.
  void offer_nothing();
  /// Offers the data, or nothing.
  bool offer_if(bool is_offered, BytesView data) {
    if (is_offered) return offer(data.data(), data.size());
    offer_nothing();
    return false;
  }
  /// After this member was waited for in that step: its buffer, null if it is not in the segment.
  std::byte* learn(int member);
  /// The same for all, once all were waited for.
  void learn_all();

  std::byte* of(int member) const { return shm_.source(member); }
  bool all() const { return direct_ == shm_.size(); }
  bool any() const { return direct_ > 0; }

 private:
  void note(int member, std::byte* data);

  transport::ShmGroup& shm_;
  int direct_ = 0;
};

}  // namespace dlaunch::algorithms::shared
