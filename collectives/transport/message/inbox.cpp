#include "collectives/transport/message/inbox.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace dlaunch::transport {
namespace {

constexpr std::size_t drain_bytes = 64u << 10;
/// Counted for each parked message beside its payload, so that empty ones are limited too.
constexpr std::size_t parked_overhead = 128;

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

void Inbox::post(Receive& receive) {
  receive.state = Receive::State::waiting;
  if (const auto from = first_arrival(receive); from && try_take(receive, *from)) return;
  posted_.push_back(&receive);
}

/// The source of the first message to come that fits.
std::optional<int> Inbox::first_arrival(const Receive& receive) const {
  std::optional<int> best;
  std::uint64_t best_arrival = 0;
  const auto consider = [&](int from, const Source& s) {
    const auto offer = [&](const Header& header, std::uint64_t arrival) {
      if (!is_meant_for(header, receive.kind, receive.communicator, receive.tag)) return false;
      if (!listens_to(receive, from)) return false;
      if (!best || arrival < best_arrival) {
        best = from;
        best_arrival = arrival;
      }
      return true;
    };
    for (const Parked& parked : s.parked) {
      if (offer(parked.header, parked.arrival)) return;
    }
    if (s.active && s.target == nullptr && !s.parking && !s.dropping) offer(s.header, s.arrival);
  };
  if (receive.from != any_source) {
    consider(receive.from, source(receive.from));
  } else {
    for (const auto& [from, s] : sources_) consider(from, *s);
  }
  return best;
}

/// Takes the first message of `from` that fits: parked, being parked, or held.
bool Inbox::try_take(Receive& receive, int from) {
  Source& s = source(from);
  const auto settle = [&](const Header& header) {
    receive.header = header;
    receive.source = from;
    if (agrees(receive, header)) return true;
    receive.state = Receive::State::mismatched;
    return false;
  };
  const auto parked = std::find_if(s.parked.begin(), s.parked.end(), [&](const Parked& p) {
    return is_meant_for(p.header, receive.kind, receive.communicator, receive.tag);
  });
  if (parked != s.parked.end()) {
    if (!settle(parked->header)) return true;
    const bool under_way = s.parking && std::next(parked) == s.parked.end();
    copy(receive.into,
         BytesView(parked->data.bytes()).first(under_way ? s.got : parked->data.size()));
    if (under_way) {
      s.parking = false;
      s.target = &receive;
      receive.state = Receive::State::filling;
    } else {
      receive.state = Receive::State::done;
    }
    s.parked_bytes -= parked->data.size() + parked_overhead;
    s.parked.erase(parked);
    return true;
  }
  if (!settle(s.header)) return true;
  s.target = &receive;
  receive.state = Receive::State::filling;
  if (s.header.bytes == 0) finish(s);
  return true;
}

bool Inbox::awaits(int from, std::size_t bytes) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const Receive* receive) {
    return receive->from == from && receive->into.size() >= bytes;
  });
}

void Inbox::withdraw(Receive& receive) {
  posted_.remove(&receive);
  for (const auto& [from, s] : sources_) {
    if (s->target != &receive) continue;
    s->target = nullptr;
    s->dropping = true;
  }
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
  const auto wanted = std::find_if(posted_.begin(), posted_.end(), [&](const Receive* receive) {
    return is_meant_for(header, receive->kind, receive->communicator, receive->tag) &&
           listens_to(*receive, from);
  });
  if (wanted != posted_.end()) {
    Receive& receive = **wanted;
    posted_.erase(wanted);
    receive.header = header;
    receive.source = from;
    if (agrees(receive, header)) {
      s.target = &receive;
      receive.state = Receive::State::filling;
    } else {
      receive.state = Receive::State::mismatched;  // The message stays, held or parked.
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
  s.parked.push_back({s.header, s.arrival, buffer_pool_.take(s.header.bytes)});
  s.parked_bytes += need;
  s.parking = true;
  if (s.header.bytes == 0) finish(s);
  return false;
}

std::span<std::byte> Inbox::room(int from) {
  if (is_held(from)) return {};
  Source& s = source(from);
  if (!s.active) return {};
  const std::size_t left = s.header.bytes - s.got;
  if (s.target != nullptr) return s.target->into.subspan(s.got);
  if (s.parking) return s.parked.back().data.bytes().subspan(s.got);
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
  if (is_held(from)) {
    s.parked.push_back({s.header, s.arrival, buffer_pool_.take(s.header.bytes)});
    s.parked_bytes += s.header.bytes + parked_overhead;
    s.parking = true;
  }
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
  const Source& s = source(*found);
  for (const Parked& parked : s.parked) {
    if (is_meant_for(parked.header, Kind::message, communicator, tag)) {
      return std::pair{*found, parked.header};
    }
  }
  return std::pair{*found, s.header};
}

std::optional<std::pair<int, Header>> Inbox::find_parked(
    std::uint64_t communicator, const std::function<bool(const Header&)>& is_it) const {
  for (const auto& [from, s] : sources_) {
    for (const Parked& parked : s->parked) {
      const Header& header = parked.header;
      if (header.kind != Kind::collective || header.communicator != communicator) continue;
      if (is_it(header)) return std::pair{from, header};
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch::transport
