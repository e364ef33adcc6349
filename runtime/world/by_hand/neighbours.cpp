#include "runtime/world/by_hand/neighbours.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/pass_descriptor.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

namespace dlaunch {
namespace {

/// Limits connections by strangers: /proc/net/unix shows the name to anybody.
constexpr std::size_t strangers_max = 16;
constexpr std::byte agreed{1};

/// The text up to the next space, which may be empty.
std::string_view take_word(std::string_view& text) {
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

/// Whether the ranks of this place must share processors, with each other or with others.
bool is_crowded(std::span<const Neighbour> neighbours, const std::string& place) {
  std::vector<Tenants> tenants;
  for (const Neighbour& one : neighbours) tenants.push_back({1, one.processors});
  const auto crowded = find_crowded(tenants);
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    if (neighbours[i].place == place && crowded[i]) return true;
  }
  return false;
}

bool send_all(int fd, BytesView bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

/// A unix socket passes so few bytes as a whole.
bool receive_all(int fd, std::span<std::byte> bytes) {
  return ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

/// Waits until one of `fds` is readable; false at the deadline, and when a rank is lost.
bool wait_for(std::vector<pollfd>& fds, Membership& link, Clock::time_point deadline) {
  fds.push_back({link.fd(), POLLIN, 0});
  for (;;) {
    if (::poll(fds.data(), fds.size(), poll_timeout_ms(deadline)) == 0) return false;
    if (fds.back().revents != 0 && !link.losses().empty()) return false;
    if (std::any_of(fds.begin(), fds.end() - 1, [](const pollfd& p) { return p.revents != 0; })) {
      return true;
    }
  }
}

bool wait_for(int fd, Membership& link, Clock::time_point deadline) {
  std::vector<pollfd> fds{{fd, POLLIN, 0}};
  return wait_for(fds, link, deadline);
}

/// The part of every rank but the lowest.
std::shared_ptr<Segment> fetch(const std::string& from, const WorldInfo& info, std::size_t ranks,
                               Membership& link, Clock::time_point deadline) {
  const unique_fd socket = connect_unix(from, deadline);
  if (!is_of_same_user(socket.get())) return nullptr;
  const auto rank = static_cast<std::int32_t>(info.rank);
  if (!send_all(socket.get(), std::as_bytes(std::span(&rank, 1)))) return nullptr;
  if (!wait_for(socket.get(), link, deadline)) return nullptr;
  unique_fd fd = receive_descriptor(socket.get());
  if (!fd) return nullptr;
  auto segment = Segment::adopt(std::move(fd));
  if (segment->size() != static_cast<int>(ranks) || segment->local_of(info.rank) < 0) {
    return nullptr;
  }
  if (!send_all(socket.get(), std::span(&agreed, 1))) return nullptr;
  std::byte verdict{};
  const bool heard =
      wait_for(socket.get(), link, deadline) && receive_all(socket.get(), std::span(&verdict, 1));
  return heard && verdict == agreed ? segment : nullptr;
}

/// A rank that has connected to the lowest one.
struct Guest {
  unique_fd socket;
  int rank = -1;
  bool has_mapped = false;
};

/// Hears a guest: its rank, then that it has mapped the segment. False if it fails to say so.
bool hear(Guest& guest, std::span<const Guest> guests, const Segment& segment) {
  if (guest.rank >= 0) {
    std::byte answer{};
    guest.has_mapped = receive_all(guest.socket.get(), std::span(&answer, 1)) && answer == agreed;
    return guest.has_mapped;
  }
  std::int32_t rank = -1;
  const bool said = receive_all(guest.socket.get(), std::as_writable_bytes(std::span(&rank, 1)));
  const bool is_new = std::none_of(guests.begin(), guests.end(),
                                   [&](const Guest& other) { return other.rank == rank; });
  if (!said || !is_new || segment.local_of(rank) < 1) return false;
  guest.rank = rank;
  return send_descriptor(guest.socket.get(), segment.fd());
}

}  // namespace

std::string to_text(const Neighbour& neighbour) {
  return std::to_string(neighbour.rank) + " " + std::to_string(neighbour.user) + " " +
         neighbour.socket + " " + to_text(neighbour.processors) + " " + neighbour.place + "\n";
}

std::vector<Neighbour> neighbours_from(std::string_view text) {
  std::vector<Neighbour> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Neighbour neighbour;
    const char* const end = line.data() + line.size();
    const auto rank = std::from_chars(line.data(), end, neighbour.rank);
    if (rank.ec != std::errc() || rank.ptr == end || *rank.ptr != ' ') continue;
    const auto user = std::from_chars(rank.ptr + 1, end, neighbour.user);
    if (user.ec != std::errc() || user.ptr == end || *user.ptr != ' ') continue;
    std::string_view rest(user.ptr + 1, end);
    neighbour.socket = take_word(rest);
    neighbour.processors = processors_from(take_word(rest));
    neighbour.place = rest;
    if (neighbour.rank < 0) continue;
    found.push_back(std::move(neighbour));
  }
  std::ranges::sort(found, {}, &Neighbour::rank);
  return found;
}

SegmentMeeting::SegmentMeeting() : name_("@dlaunch-" + random_hex(32)) {
  try {
    listener_ = listen_unix(name_);
    set_nonblocking(listener_.get(), true);
  } catch (const Error&) {
    name_.clear();  // The neighbours see that there is no name.
  }
}

std::shared_ptr<Segment> SegmentMeeting::share(std::span<const Neighbour> neighbours,
                                               const WorldInfo& info, Membership& link,
                                               Clock::time_point deadline) {
  const auto own = std::ranges::find(neighbours, info.rank, &Neighbour::rank);
  if (own == neighbours.end()) return nullptr;
  std::vector<Neighbour> place;
  std::ranges::copy_if(neighbours, std::back_inserter(place),
                       [&](const Neighbour& one) { return one.place == own->place; });
  return share_at(place, is_crowded(neighbours, own->place), info, link, deadline);
}

std::shared_ptr<Segment> SegmentMeeting::share_at(std::span<const Neighbour> neighbours,
                                                  bool crowded, const WorldInfo& info,
                                                  Membership& link, Clock::time_point deadline) {
  if (neighbours.size() < 2 || neighbours.front().socket.empty()) return nullptr;
  const auto is_of_first = [&](const Neighbour& n) { return n.user == neighbours.front().user; };
  if (!std::ranges::all_of(neighbours, is_of_first)) return nullptr;
  const bool is_lowest = neighbours.front().rank == info.rank;
  std::shared_ptr<Segment> segment;
  try {
    if (!is_lowest) {
      listener_.reset();
      return fetch(neighbours.front().socket, info, neighbours.size(), link, deadline);
    }
    SegmentPlan plan;
    plan.job = text_hash(info.job);
    plan.epoch = info.epoch;
    for (const Neighbour& neighbour : neighbours) plan.world_ranks.push_back(neighbour.rank);
    plan.oversubscribed = crowded;
    segment = Segment::create(plan);
  } catch (const Error& error) {
    listener_.reset();  // The closed listener tells a rank that asks later.
    if (error.errc() == Errc::aborted || error.errc() == Errc::peer_lost) throw;
    return nullptr;
  }
  segment = hand_out(std::move(segment), link, deadline);
  listener_.reset();
  return segment;
}

std::shared_ptr<Segment> SegmentMeeting::hand_out(std::shared_ptr<Segment> segment,
                                                  Membership& link, Clock::time_point deadline) {
  const auto expected = static_cast<std::size_t>(segment->size()) - 1;
  std::vector<Guest> guests;
  const auto have_mapped = [&] {
    return static_cast<std::size_t>(std::ranges::count_if(guests, &Guest::has_mapped));
  };
  while (have_mapped() < expected) {
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests) fds.push_back({guest.socket.get(), POLLIN, 0});
    if (!wait_for(fds, link, deadline)) return nullptr;
    for (std::size_t i = guests.size(); i-- > 0;) {
      if (fds[i + 1].revents == 0 || hear(guests[i], guests, *segment)) continue;
      if (guests[i].rank >= 0)
        return nullptr;  // A neighbour cannot map it; closing the sockets tells the others.
      guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (fds.front().revents == 0) continue;
    unique_fd come(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!come || !is_of_same_user(come.get())) continue;
    if (guests.size() >= expected + strangers_max) return nullptr;
    guests.push_back({std::move(come)});
  }
  for (const Guest& guest : guests) {
    // A neighbour that is gone by now is lost to the whole world.
    if (guest.has_mapped) static_cast<void>(send_all(guest.socket.get(), std::span(&agreed, 1)));
  }
  return segment;
}

}  // namespace dlaunch
