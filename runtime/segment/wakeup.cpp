#include "runtime/segment/wakeup.hpp"

#include <bit>
#include <cstdio>
#include <utility>

#include <sys/socket.h>

namespace dlaunch {
namespace {

Address address_of(const Segment& segment, int local, int bell) {
  char name[64];
  std::snprintf(name, sizeof name, "@dlaunch-bell-%016llx-%d-%d",
                static_cast<unsigned long long>(segment.id()), local, bell);
  return unix_address(name);
}

}  // namespace

Wakeup::Wakeup(std::shared_ptr<Segment> segment, int local, int bell)
    : segment_(std::move(segment)),
      local_(local),
      bell_(bell),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const Address at = address_of(*segment_, local_, bell_);
  has_name_ = socket_ &&
              ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0;
}

void Wakeup::clear() noexcept {
  char dropped;
  while (socket_ && ::recv(socket_.get(), &dropped, sizeof dropped, MSG_DONTWAIT) >= 0) {
  }
}

/// Without a name the bit does not belong to this bell: another mesh of the rank may sleep behind
/// it.
void Wakeup::lie_down() noexcept {
  if (!has_name_) return;
  segment_->rank(local_).asleep.fetch_or(1u << static_cast<unsigned>(bell_));
}

void Wakeup::get_up() noexcept {
  if (!has_name_) return;
  segment_->rank(local_).asleep.fetch_and(~(1u << static_cast<unsigned>(bell_)));
}

void Wakeup::ring_if_asleep(int local) noexcept {
  auto& asleep = segment_->rank(local).asleep;
  if (asleep.load() == 0 || !socket_) return;
  // The process that clears the bits rings the bells.
  for (std::uint32_t bells = asleep.exchange(0); bells != 0; bells &= bells - 1) {
    const Address to = address_of(*segment_, local, std::countr_zero(bells));
    const char ring = 0;
    // A full queue rings already; a bell that is gone belongs to a rank that is gone.
    static_cast<void>(::sendto(socket_.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&to.storage), to.size));
  }
}

}  // namespace dlaunch
