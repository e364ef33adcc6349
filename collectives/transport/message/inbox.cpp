#include "collectives/transport/message/inbox.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace dlaunch::transport {
namespace {

constexpr std::size_t drain_bytes = 64u << 10;
/// Counted for each parked message beside its payload, so that empty ones are limited too.
constexpr std::size_t parked_overhead = 128;
/// Kept for what is parked next.
constexpr std::size_t spares_max = 1024;

bool is_meant_for(const Header& header, Kind kind, std::uint64_t communicator, int tag) {
  return header.kind == kind && header.communicator == communicator &&
         (kind != Kind::message || tag == any_tag || header.tag == tag);
}

/// Ranks must agree on the whole call; on a message, on what it holds.
bool agrees(const Receive& receive, const Header& header) {
  if (header.bytes != receive.into.size()) return false;
  const Fingerprint got = fingerprint_of(header);
  if (receive.kind == Kind::collective) return got == receive.expected;
  return got.dtype == receive.expected.dtype && got.count == receive.expected.count;
}

bool listens_to(const Receive& receive, int from) {
  if (receive.from != any_source) return receive.from == from;
  // In a list of all ranks each is at its own place.
  const auto place = static_cast<std::size_t>(from);
  if (place < receive.sources.size() && receive.sources[place] == from) return true;
  return std::find(receive.sources.begin(), receive.sources.end(), from) != receive.sources.end();
}

void copy(std::span<std::byte> to, BytesView from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

bool fits(const Receive& receive, const Header& header) {
  return is_meant_for(header, receive.kind, receive.communicator, receive.tag) &&
         agrees(receive, header);
}

Inbox::~Inbox() {
  for (const auto& [from, s] : sources_) {
    while (Parked* const parked = s->parked.pop_front()) delete parked;
  }
  while (Parked* const spare = spare_.pop_front()) delete spare;
}

void Inbox::post(Receive& receive) {
  receive.state = Receive::State::waiting;
  receive.posted_at = ++posts_;
  if (const auto arrival = first_arrival(receive)) return take(receive, *arrival);
  list(receive);
}

void Inbox::list(Receive& receive) {
  if (!receive.is_exact()) return posted_for_any_.push_back(receive);
  posted_.add(receive);
  if (receive.into.size() >= long_bytes) ++source(receive.from).long_awaited;
}

void Inbox::unlist(Receive& receive) noexcept {
  if (!receive.is_exact()) return posted_for_any_.remove(receive);
  posted_.remove(receive);
  if (receive.into.size() >= long_bytes) --sources_.find(receive.from)->long_awaited;
}

/// Of those that would take this message the one that was posted first.
Receive* Inbox::first_wanting(int from, const Header& header) const {
  Receive* const exact = posted_.find(key_of(header, from));
  for (Receive* any = posted_for_any_.first(); any != nullptr;
       any = decltype(posted_for_any_)::after(*any)) {
    if (exact != nullptr && exact->posted_at < any->posted_at) break;
    if (is_meant_for(header, any->kind, any->communicator, any->tag) && listens_to(*any, from)) {
      return any;
    }
  }
  return exact;
}

Receive* Inbox::claim(int from, const Header& header) {
  if (source(from).active) return nullptr;
  Receive* const wanting = first_wanting(from, header);
  if (wanting == nullptr || !agrees(*wanting, header)) return nullptr;
  unlist(*wanting);
  note_taken(from, header);
  return wanting;
}

/// What it would take of this rank's.
Inbox::Parked* Inbox::first_parked(const Receive& receive, int from, const Source& s) const {
  if (receive.kind != Kind::message || receive.tag != any_tag) {
    if (s.parked.empty()) return nullptr;
    return parked_.find({receive.kind, from, receive.kind == Kind::message ? receive.tag : 0,
                         receive.communicator});
  }
  Parked* parked = s.parked.first();
  while (parked != nullptr &&
         !is_meant_for(parked->header, receive.kind, receive.communicator, receive.tag)) {
    parked = ParkedList::after(*parked);
  }
  return parked;
}

/// The first message to come that fits.
std::optional<Inbox::Arrival> Inbox::first_arrival(const Receive& receive) const {
  std::optional<Arrival> best;
  const auto consider = [&](int from, const Source& s) {
    Parked* const parked = first_parked(receive, from, s);
    const bool is_held = parked == nullptr && is_stalled(s) &&
                         is_meant_for(s.header, receive.kind, receive.communicator, receive.tag);
    if (parked == nullptr && !is_held) return;
    const std::uint64_t number = parked != nullptr ? parked->arrival : s.arrival;
    if (!best || number < best->number) best = {from, number, parked};
  };
  if (receive.from != any_source) {
    consider(receive.from, source(receive.from));
    return best;
  }
  for (const auto& [from, s] : sources_) {
    if (listens_to(receive, from)) consider(from, *s);
  }
  return best;
}

/// A message that is parked, or being parked, or held.
void Inbox::take(Receive& receive, const Arrival& arrival) {
  Source& s = source(arrival.from);
  Parked* const parked = arrival.parked;
  receive.header = parked != nullptr ? parked->header : s.header;
  receive.source = arrival.from;
  if (!agrees(receive, receive.header)) {
    receive.state = Receive::State::mismatched;
    return;
  }
  const bool under_way = parked == nullptr || (s.parking && parked == s.parked.last());
  if (parked != nullptr) {
    copy(receive.into,
         BytesView(parked->bytes()).first(under_way ? s.got : parked->bytes().size()));
    unpark(s, *parked);
  }
  if (!under_way) {
    receive.state = Receive::State::done;
    return;
  }
  s.parking = false;
  s.target = &receive;
  receive.state = Receive::State::filling;
  if (s.header.bytes == 0) finish(s);
}

/// The message under way.
void Inbox::park(Source& s, int from) {
  Parked* parked = spare_.pop_front();
  if (parked == nullptr) {
    parked = new Parked;
  } else {
    --spares_;
  }
  parked->from = from;
  parked->header = s.header;
  parked->arrival = s.arrival;
  try {
    if (s.header.bytes > Parked::near_bytes) parked->far = buffer_pool_.take(s.header.bytes);
    parked_.add(*parked);
  } catch (...) {
    delete parked;
    throw;
  }
  s.parked.push_back(*parked);
  s.parked_bytes += s.header.bytes + parked_overhead;
  s.parking = true;
}

void Inbox::unpark(Source& s, Parked& parked) noexcept {
  s.parked_bytes -= parked.header.bytes + parked_overhead;
  parked_.remove(parked);
  s.parked.remove(parked);
  parked.far = {};
  if (spares_ >= spares_max) {
    delete &parked;
    return;
  }
  spare_.push_back(parked);
  ++spares_;
}

bool Inbox::is_awaited() const {
  return !posted_.empty() || !posted_for_any_.empty() ||
         std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& each) { return each.kept->target != nullptr; });
}

void Inbox::withdraw(Receive& receive) {
  if (receive.place.is_taken) unlist(receive);
  if (receive.state != Receive::State::filling) return;
  Source& s = source(receive.source);
  if (s.target != &receive) return;
  s.target = nullptr;
  s.dropping = true;
}

void Inbox::begin(int from, const Header& header) {
  Source& s = source(from);
  assert(!s.active);
  s.active = true;
  s.header = header;
  s.arrival = ++arrivals_;
  s.got = 0;
  s.target = nullptr;
  s.parking = s.dropping = false;
  s.last_seen = header;
  if (Receive* const wanting = first_wanting(from, header)) {
    unlist(*wanting);
    wanting->header = header;
    wanting->source = from;
    if (agrees(*wanting, header)) {
      s.target = wanting;
      wanting->state = Receive::State::filling;
    } else {
      wanting->state = Receive::State::mismatched;  // The message stays, held or parked.
    }
  }
  is_held(from);
  if (s.header.bytes == 0) finish(s);
}

/// Also looks again whether a message that had to wait now fits.
bool Inbox::is_held(int from) {
  if (!is_stalled(from)) return false;
  Source& s = source(from);
  // The length comes from outside: compared before anything is added to it.
  if (s.header.bytes > parked_bytes_max_) return true;
  const std::size_t need = s.header.bytes + parked_overhead;
  if (s.parked_bytes + need > parked_bytes_max_) return true;
  park(s, from);
  if (s.header.bytes == 0) finish(s);
  return false;
}

std::span<std::byte> Inbox::room(int from) {
  if (is_held(from)) return {};
  Source& s = source(from);
  if (!s.active) return {};
  const std::size_t left = s.header.bytes - s.got;
  if (s.target != nullptr) return s.target->into.subspan(s.got);
  if (s.parking) return s.parked.last()->bytes().subspan(s.got);
  if (drain_.empty()) drain_.resize(drain_bytes);
  return std::span(drain_).first(std::min(left, drain_.size()));
}

void Inbox::advance(int from, std::size_t bytes) {
  Source& s = source(from);
  s.got += bytes;
  assert(s.got <= s.header.bytes);
  if (s.got == s.header.bytes) finish(s);
}

void Inbox::finish(Source& s) {
  // An empty message that is held stays so until it is parked or taken.
  if (s.target == nullptr && !s.parking && !s.dropping) return;
  if (s.target != nullptr) s.target->state = Receive::State::done;
  s.active = false;
  s.target = nullptr;
  s.parking = s.dropping = false;
}

void Inbox::deliver(int from, const Header& header, BytesView payload) {
  Source& s = source(from);
  begin(from, header);
  if (!s.active) return;
  if (is_held(from)) park(s, from);
  if (s.header.bytes == 0) return finish(s);
  while (!payload.empty()) {
    const auto to = room(from);
    const auto part = payload.first(std::min(payload.size(), to.size()));
    copy(to, part);
    advance(from, part.size());
    payload = payload.subspan(part.size());
  }
}

std::optional<std::pair<int, Header>> Inbox::peek(std::uint64_t communicator, int from, int tag,
                                                  std::span<const int> sources) const {
  Receive probe;
  probe.kind = Kind::message;
  probe.communicator = communicator;
  probe.from = from;
  probe.tag = tag;
  probe.sources = sources;
  const auto found = first_arrival(probe);
  if (!found) return std::nullopt;
  return std::pair{found->from,
                   found->parked != nullptr ? found->parked->header : source(found->from).header};
}

std::optional<std::pair<int, Header>> Inbox::find_parked(
    std::uint64_t communicator, const std::function<bool(const Header&)>& is_it) const {
  for (const auto& [from, s] : sources_) {
    for (const Parked* parked = s->parked.first(); parked != nullptr;
         parked = ParkedList::after(*parked)) {
      const Header& header = parked->header;
      if (header.kind != Kind::collective || header.communicator != communicator) continue;
      if (is_it(header)) return std::pair{from, header};
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch::transport
