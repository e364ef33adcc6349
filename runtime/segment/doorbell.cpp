#include "runtime/segment/doorbell.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include <sys/socket.h>

namespace dlaunch {
namespace {

Address address_of(const Segment& segment, int local) {
  char name[64];
  std::snprintf(name, sizeof name, "@dlaunch-bell-%016llx-%d",
                static_cast<unsigned long long>(segment.id()), local);
  return unix_address(name);
}

}  // namespace

Doorbell::Doorbell(std::shared_ptr<Segment> segment, int local)
    : segment_(std::move(segment)), local_(local) {
  unique_fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address at = address_of(*segment_, local_);
  if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0) {
    own_ = std::move(fd);
  }
}

void Doorbell::clear() noexcept {
  char dropped;
  while (own_ && ::recv(own_.get(), &dropped, sizeof dropped, MSG_DONTWAIT) >= 0) {
  }
}

void Doorbell::lie_down() noexcept { segment_->rank(local_).asleep.store(1); }
void Doorbell::get_up() noexcept { segment_->rank(local_).asleep.store(0); }

void Doorbell::ring_if_asleep(int local) noexcept {
  auto& asleep = segment_->rank(local).asleep;
  // Whoever takes the word is the one who rings.
  if (asleep.load() == 0 || asleep.exchange(0) == 0 || !own_) return;
  const Address to = address_of(*segment_, local);
  const char ring = 0;
  // A full queue rings already; a bell that is gone belongs to a rank that is gone.
  static_cast<void>(::sendto(own_.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&to.storage), to.size));
}

}  // namespace dlaunch
