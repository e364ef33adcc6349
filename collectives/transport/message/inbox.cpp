#include "collectives/transport/message/inbox.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace dlaunch::transport {
namespace {

constexpr std::size_t drain_bytes = 64u << 10;
/// The bytes that count for each parked message besides its payload, so that empty ones are
/// limited, too.
constexpr std::size_t parked_overhead = 128;
/// The most list entries that are kept for later messages.
constexpr std::size_t spares_max = 1024;
/// The most ended communicators whose late messages are dropped.
constexpr std::size_t forgotten_max = 1024;

void copy(std::span<std::byte> to, BytesView from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

Inbox::~Inbox() {
  for (const auto& [from, s] : sources_) {
    while (Parked* const parked = s->parked.pop_front()) delete parked;
  }
  while (Parked* const spare = spare_.pop_front()) delete spare;
}

void Inbox::post(Receive& receive) {
  receive.state = Receive::State::waiting;
  receive.posted_at = ++posts_;
  if (receive.is_exact() && !receive.is_probe) [[likely]] {
    Source& s = source(receive.from);
    if (s.parked.empty() && !is_stalled(s)) return list_exact(receive, s);
  }
  const auto arrival = first_arrival(receive);
  if (!arrival) return list(receive);
  if (receive.is_probe) {
    find(receive, *arrival);
  } else {
    take(receive, *arrival);
  }
}

/// Completes the probes that look for this message, which no receive has taken.
void Inbox::answer_probes(const Arrival& arrival) {
  for (Receive* probe = probes_.first(); probe != nullptr;) {
    Receive& each = *std::exchange(probe, decltype(probes_)::after(*probe));
    const bool finds = is_meant_for(header_of(arrival), each.kind, each.communicator, each.tag) &&
                       listens_to(each, arrival.from);
    if (!finds) continue;
    probes_.remove(each);
    find(each, arrival);
  }
}

void Inbox::find(Receive& probe, const Arrival& arrival) {
  probe.header = header_of(arrival);
  probe.source = arrival.from;
  probe.state = Receive::State::done;
}

void Inbox::list(Receive& receive) {
  if (receive.is_probe) return probes_.push_back(receive);
  if (!receive.is_exact()) return posted_for_any_.push_back(receive);
  list_exact(receive, source(receive.from));
}

void Inbox::list_exact(Receive& receive, Source& s) {
  posted_.add(receive);
  ++s.awaited;
  if (receive.into.size() >= long_bytes) ++s.long_awaited;
}

void Inbox::unlist(Receive& receive) noexcept {
  if (receive.is_probe) return probes_.remove(receive);
  if (!receive.is_exact()) return posted_for_any_.remove(receive);
  posted_.remove(receive);
  Source& s = *sources_.find(receive.from);
  --s.awaited;
  if (receive.into.size() >= long_bytes) --s.long_awaited;
}

/// The receive that was posted first, among those that would take this message.
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
  Source& s = source(from);
  if (s.active || is_synchronous(header)) return nullptr;
  Receive* const wanting = first_wanting(from, header);
  if (wanting == nullptr || !agrees(*wanting, header)) return nullptr;
  unlist(*wanting);
  s.last_seen = header;
  return wanting;
}

/// The parked message of this rank that the receive would take.
Inbox::Parked* Inbox::first_parked(const Receive& receive, int from, const Source& s) const {
  if (receive.kind != Kind::message || receive.tag != any_tag) {
    if (s.parked.empty()) return nullptr;
    return parked_.find(
        {receive.kind, from, receive.kind == Kind::message ? receive.tag : 0, receive.communicator},
        [](const Parked& each) { return !each.is_apart; });
  }
  Parked* parked = s.parked.first();
  while (parked != nullptr &&
         (parked->is_apart ||
          !is_meant_for(parked->header, receive.kind, receive.communicator, receive.tag))) {
    parked = ParkedList::after(*parked);
  }
  return parked;
}

/// The first message to come that fits.
std::optional<Inbox::Arrival> Inbox::first_arrival(const Receive& receive) const {
  std::optional<Arrival> best;
  const auto consider = [&](int from, const Source& s) {
    Parked* const parked = first_parked(receive, from, s);
    const bool is_held = parked == nullptr && is_stalled(s) && !s.is_apart &&
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

/// Takes a message that is parked, being parked, or held. False: it is too long for the receive,
/// and stays for another.
bool Inbox::take(Receive& receive, const Arrival& arrival) {
  Source& s = source(arrival.from);
  Parked* const parked = arrival.parked;
  receive.header = header_of(arrival);
  receive.source = arrival.from;
  if (!agrees(receive, receive.header)) {
    const auto refused = refusal(receive, receive.header);
    receive.state = refused;
    return refused != Receive::State::too_long;
  }
  const bool under_way = parked == nullptr || (s.parking && parked == s.parked.last());
  if (parked != nullptr) {
    copy(receive.into,
         BytesView(parked->bytes()).first(under_way ? s.got : parked->bytes().size()));
    unpark(s, *parked);
  }
  if (!under_way) {
    complete(receive);
    return true;
  }
  s.parking = false;
  s.target = &receive;
  receive.state = Receive::State::filling;
  if (s.header.bytes == 0) finish(s);
  return true;
}

bool Inbox::take_parked(Receive& receive) {
  if (parked_.empty()) return false;
  const auto arrival = first_arrival(receive);
  if (!arrival || arrival->parked == nullptr) return false;
  const Source& s = source(arrival->from);
  const bool under_way = s.parking && arrival->parked == s.parked.last();
  const Header& header = arrival->parked->header;
  return !under_way && !is_synchronous(header) && agrees(receive, header) &&
         take(receive, *arrival);
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
  parked->is_apart = s.is_apart;
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
  return !posted_.empty() || !posted_for_any_.empty() || !probes_.empty() ||
         std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& each) { return each.kept->target != nullptr; });
}

void Inbox::withdraw(Receive& receive) {
  if (receive.place.is_taken) unlist(receive);
  std::erase(answering_, &receive);
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
  ++under_way_;
  s.header = header;
  s.arrival = ++arrivals_;
  s.got = 0;
  s.target = nullptr;
  s.parking = s.dropping = s.is_apart = s.is_passed = false;
  s.last_seen = header;
  while (Receive* const wanting = first_wanting(from, header)) {
    unlist(*wanting);
    wanting->header = header;
    wanting->source = from;
    if (agrees(*wanting, header)) {
      s.target = wanting;
      wanting->state = Receive::State::filling;
      break;
    }
    // The message stays, held or parked. If it was too long, the next receive may take it.
    const auto refused = refusal(*wanting, header);
    wanting->state = refused;
    if (refused == Receive::State::mismatched) break;
  }
  if (s.target == nullptr && !forgotten_.empty())
    s.dropping = forgotten_.contains(header.communicator);
  if (!probes_.empty() && is_stalled(s)) answer_probes({from, s.arrival, nullptr});
  is_held(from);
  if (s.header.bytes == 0) finish(s);
}

bool Inbox::has_room(const Source& s) const {
  // The length comes from outside, so it is compared before anything is added to it.
  return s.header.bytes <= parked_bytes_max_ &&
         s.parked_bytes + s.header.bytes + parked_overhead <= parked_bytes_max_;
}

/// Whether one of a list's listens to this rank.
template <class List>
bool Inbox::listens(const List& list, int rank) {
  const Receive* each = list.first();
  while (each != nullptr && !listens_to(*each, rank)) each = List::after(*each);
  return each != nullptr;
}

void Inbox::look_past(std::span<const int> ranks) {
  if (under_way_ == 0) return;
  for (const auto& [from, s] : sources_) {
    if (!is_stalled(*s) || s->is_passed) continue;
    s->is_passed = s->awaited > 0 || listens(posted_for_any_, from) || listens(probes_, from) ||
                   std::find(ranks.begin(), ranks.end(), from) != ranks.end();
  }
}

/// Whether the source is held; checks again whether a waiting message fits now.
bool Inbox::is_held(int from) {
  if (!is_stalled(from)) return false;
  Source& s = source(from);
  if (!has_room(s) && !s.is_passed) return true;
  park(s, from);
  if (s.header.bytes == 0) finish(s);
  return false;
}

std::span<std::byte> Inbox::room(int from) {
  if (is_held(from)) return {};
  Source& s = source(from);
  if (!s.active) return {};
  const std::size_t left = s.header.bytes - s.got;
  if (s.target != nullptr) return s.target->into.subspan(s.got, left);
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
  // A held empty message stays so until it is parked or taken.
  if (s.target == nullptr && !s.parking && !s.dropping) return;
  Receive* const target = std::exchange(s.target, nullptr);
  s.active = false;
  --under_way_;
  s.parking = s.dropping = s.is_apart = false;
  if (target != nullptr) complete(*target);
}

/// Completes a receive that has its message.
void Inbox::complete(Receive& receive) {
  if (!is_synchronous(receive.header)) {
    receive.state = Receive::State::done;
    return;
  }
  answering_.push_back(&receive);
  receive.state = Receive::State::answering;
}

Receive* Inbox::next_answering() {
  if (answering_.empty()) return nullptr;
  Receive* const first = answering_.front();
  answering_.erase(answering_.begin());
  return first;
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

// ---- Communicators that have ended. ----

void Inbox::forget(std::uint64_t communicator) {
  if (forgotten_.insert(communicator).second) forgotten_in_order_.push_back(communicator);
  if (forgotten_in_order_.size() > forgotten_max) {
    forgotten_.erase(forgotten_in_order_.front());
    forgotten_in_order_.pop_front();
  }
  for (const auto& [from, kept] : sources_) {
    Source& s = *kept;
    for (Parked* parked = s.parked.first(); parked != nullptr;) {
      Parked& each = *std::exchange(parked, ParkedList::after(*parked));
      if (each.header.communicator != communicator || each.is_apart) continue;
      if (s.parking && parked == nullptr) {  // The last one, whose rest is still to come.
        s.parking = false;
        s.dropping = true;
      }
      unpark(s, each);
    }
    if (is_stalled(s) && s.header.communicator == communicator && !s.is_apart) {
      s.dropping = true;
      if (s.header.bytes == 0) finish(s);
    }
  }
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
