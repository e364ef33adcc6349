#include "runtime/segment/flight_log.hpp"

#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/ticks.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace dlaunch {
namespace {

constexpr auto acquire = std::memory_order_acquire;

template <std::size_t Size>
std::string text_of(const std::array<std::atomic<char>, Size>& stored) {
  std::string text;
  for (const auto& letter : stored) {
    const char c = letter.load(std::memory_order_relaxed);
    if (c == '\0') break;
    // Text of another process, made safe for a terminal.
    text += is_control(c) ? '?' : c;
  }
  return text;
}

template <class Words>
std::string word_of(const Words& words, std::size_t place) {
  return place < words.size() ? text_of(words[place]) : "";
}

/// Translates the ring's clock to ours.
class Times {
 public:
  explicit Times(const FlightRing& ring)
      : ticks_then_(ring.ticks_then.load(acquire)),
        then_(std::chrono::nanoseconds(ring.ns_then.load(acquire))),
        ticks_now_(ticks()),
        now_(Clock::now()) {
    const auto passed = ticks_now_ - ticks_then_;
    const std::chrono::duration<double, std::nano> time = now_ - then_;
    if (ticks_now_ > ticks_then_ && now_ > then_) {
      per_tick_ = time.count() / static_cast<double>(passed);
    }
  }
  /// Times are not later than now.
  Clock::time_point at(std::uint64_t tick) const {
    if (tick >= ticks_now_) return now_;
    const double ns = static_cast<double>(ticks_now_ - tick) * per_tick_;
    return now_ - std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
  }

 private:
  std::uint64_t ticks_then_;
  Clock::time_point then_;
  std::uint64_t ticks_now_;
  Clock::time_point now_;
  double per_tick_ = 0;
};

/// `begun` is the ring's counter, read some time after the call was counted.
FlightCall read_record(const FlightRing::Record& record, const Times& times, std::uint64_t begun) {
  FlightCall call;
  const std::uint64_t number = record.number.load(acquire);
  call.number = begun - static_cast<std::uint32_t>(begun - number);
  call.traffic = static_cast<std::uint32_t>(number >> 32);
  const std::uint64_t who = record.who.load(acquire);
  call.communicator = who >> 32;
  call.group = static_cast<std::uint16_t>(who >> 16);
  call.site = static_cast<std::uint16_t>(who);
  const std::uint64_t what = record.what.load(acquire);
  using Bits = Flight::Call;
  call.op = static_cast<std::uint8_t>(what >> Bits::op_bit & 31);
  call.dtype = static_cast<std::uint8_t>(what >> Bits::dtype_bit & 31);
  call.reduction = static_cast<std::uint8_t>(what >> Bits::reduction_bit & 15);
  call.kind = static_cast<Flight::Kind>(what >> Bits::kind_bit & 3);
  call.place = static_cast<std::int32_t>(static_cast<std::uint32_t>(what >> Bits::place_bit));
  call.sequence = record.sequence.load(acquire);
  call.count = record.count.load(acquire);
  call.argument = record.argument.load(acquire);
  call.began = times.at(record.began.load(acquire));
  if (const std::uint64_t ended = record.ended.load(acquire); ended != 0) {
    call.ended = times.at(ended);
    call.failed = (ended & 1) != 0;
  }
  return call;
}

/// nullopt: nobody waits there, or not any more.
std::optional<FlightWait> read_wait(const FlightRing::Wait& wait, const Times& times,
                                    std::uint64_t begun) {
  FlightWait seen;
  seen.turn = wait.turn.load(acquire);
  if (seen.turn == 0) return std::nullopt;
  seen.since = times.at(wait.since.load(acquire));
  seen.whom = wait.whom.load(acquire);
  seen.call = read_record(wait.call, times, begun);
  if (wait.turn.load(std::memory_order_relaxed) != seen.turn) return std::nullopt;
  return seen;
}

/// The part that all communicators have.
FlightGroup read_counts(std::uint64_t id, const FlightRing::Progress& progress) {
  FlightGroup group;
  group.communicator = flight_hash(id);
  group.id = id;
  group.begun = progress.begun.load(acquire);
  group.rooted = progress.rooted.load(acquire);
  group.digest = progress.digest.load(acquire);
  group.heard = progress.heard.load(acquire) != 0;
  group.size = progress.size.load(acquire);
  return group;
}

/// Whether the place still belongs to the same communicator.
bool is_still(std::uint64_t id, const std::atomic<std::uint64_t>& communicator) {
  std::atomic_thread_fence(acquire);
  return communicator.load(std::memory_order_relaxed) == id;
}

/// nullopt: the place was never used, or is just being given to another.
std::optional<FlightGroup> read_group(const FlightRing::Group& stored) {
  const std::uint64_t id = stored.communicator.load(acquire);
  if (id == 0) return std::nullopt;
  FlightGroup group = read_counts(id, stored.progress);
  group.ended = stored.ended.load(acquire) != 0;
  group.rank = stored.rank.load(acquire);
  group.stuck_after = std::chrono::milliseconds(stored.stuck_after_ms.load(acquire));
  group.name = text_of(stored.name);
  if (!is_still(id, stored.communicator)) return std::nullopt;
  return group;
}

/// nullopt: the entry is free, or is just being given to another.
std::optional<FlightGroup> read_other(const FlightRing::Other& stored) {
  const std::uint64_t id = stored.communicator.load(acquire);
  if (id == 0) return std::nullopt;
  FlightGroup group = read_counts(id, stored.progress);
  if (!is_still(id, stored.communicator)) return std::nullopt;
  return group;
}

std::string rank_text(std::int32_t rank) {
  return rank < 0 ? "any rank" : "rank " + std::to_string(rank);
}

/// The wait of several threads' that began first; null: nobody waits.
const FlightWait* longest_wait(const FlightLog& log) {
  const auto longest = std::min_element(
      log.waits.begin(), log.waits.end(),
      [](const FlightWait& a, const FlightWait& b) { return a.call.began < b.call.began; });
  return longest == log.waits.end() ? nullptr : &*longest;
}

constexpr std::uint64_t counts_vary = ~std::uint64_t{0};
constexpr std::uint64_t any_tag = ~std::uint64_t{0};

}  // namespace

const FlightGroup* FlightLog::group_of(std::uint64_t communicator) const {
  const FlightGroup* found = nullptr;
  for (const auto& group : groups) {
    if (group.communicator != communicator) continue;
    if (!group.ended) return &group;
    found = &group;
  }
  return found;
}

FlightLog read_flight(const FlightRing& ring, std::size_t calls) {
  FlightLog log;
  log.ready = ring.ready.load(acquire) != 0;
  if (!log.ready) return log;
  const Times times(ring);
  log.pid = ring.pid.load(acquire);
  log.process_started = ring.process_started.load(acquire);
  for (const auto& stored : ring.groups) {
    if (auto group = read_group(stored)) log.groups.push_back(std::move(*group));
  }
  // Read after the groups, so that a communicator that moves meanwhile is not missed.
  const std::size_t others =
      std::min<std::size_t>(ring.others_used.load(acquire), FlightRing::others_max);
  for (std::size_t number = 0; number < others; ++number) {
    if (auto other = read_other(ring.others[number])) log.others.push_back(std::move(*other));
  }
  log.begun = ring.begun.load(acquire);
  for (const auto& stored : ring.waits) {
    if (auto wait = read_wait(stored, times, log.begun)) log.waits.push_back(std::move(*wait));
  }
  const std::uint64_t kept = std::min<std::uint64_t>({log.begun, calls, FlightRing::records_max});
  for (std::uint64_t number = log.begun - kept + 1; number <= log.begun; ++number) {
    const auto call = read_record(ring.records[number % FlightRing::records_max], times, log.begun);
    // A writer counts before it overwrites a record.
    const bool whole =
        ring.begun.load(std::memory_order_relaxed) < number + FlightRing::records_max;
    if (whole && call.number == number) log.calls.push_back(call);
  }
  return log;
}

std::string FlightNames::op(const FlightCall& call) const { return word_of(ring.ops, call.op); }
std::string FlightNames::dtype(const FlightCall& call) const {
  return word_of(ring.dtypes, call.dtype);
}
std::string FlightNames::reduction(const FlightCall& call) const {
  return word_of(ring.reductions, call.reduction);
}
std::string FlightNames::owner(const FlightCall& call) const {
  return word_of(ring.owners, call.purpose());
}
std::string FlightNames::purpose(const FlightCall& call) const {
  const std::string text = word_of(ring.purposes, call.purpose());
  const bool has_part = (ring.purposes_with_part.load(acquire) >> call.purpose() & 1) != 0;
  return has_part ? text + " " + std::to_string(call.traffic & 0xffffU) : text;
}
std::string FlightNames::site(const FlightCall& call) const {
  return word_of(ring.sites, call.site);
}

std::string FlightNames::group(const FlightCall& call) const {
  if (call.group >= FlightRing::groups_max) return "";
  const auto group = read_group(ring.groups[call.group]);
  return group && group->communicator == call.communicator ? group->name : "";
}

std::string FlightNames::label(const FlightCall& call) const {
  std::string text = owner(call) + op(call);
  if (call.sequence != 0) {
    text += " #" + std::to_string(call.sequence);
  } else {
    text += (text == "send" ? " to " : " from ") + rank_text(call.place);
    text +=
        call.argument == any_tag ? " (any tag)" : " (tag " + std::to_string(call.argument) + ")";
  }
  const std::string name = group(call);
  if (!name.empty() && name != "world") text += " of '" + name + "'";
  return text;
}

std::string FlightNames::full(const FlightCall& call) const {
  std::string details;
  const auto add = [&](const std::string& detail) {
    if (!detail.empty()) details += (details.empty() ? "" : ", ") + detail;
  };
  add(purpose(call));
  add(reduction(call));
  const std::string type = dtype(call);
  if (!type.empty()) {
    add(type);
    add(call.count == counts_vary ? "counts vary"
        : call.count == 1         ? "1 element"
                                  : std::to_string(call.count) + " elements");
  }
  if (call.sequence != 0 && call.place >= 0) add("root " + std::to_string(call.place));
  return label(call) + (details.empty() ? "" : " (" + details + ")");
}

std::string FlightNames::bracketed_site(const FlightCall& call) const {
  const std::string where = site(call);
  return where.empty() ? "" : " [" + where + "]";
}

std::string FlightNames::full_and_site(const FlightCall& call) const {
  return full(call) + bracketed_site(call);
}

std::string FlightNames::label_and_site(const FlightCall& call) const {
  return label(call) + bracketed_site(call);
}

std::string doing_text(const FlightRing& ring, const FlightLog& log, Clock::time_point now) {
  const FlightNames names{ring};
  if (const FlightWait* wait = longest_wait(log)) {
    return "in " + names.label_and_site(wait->call) + " for " + age_text(now - wait->call.began) +
           (wait->whom >= 0 ? ", waiting for rank " + std::to_string(wait->whom) : "");
  }
  if (log.calls.empty()) return log.begun == 0 ? "in no call yet" : "busy with calls";
  const FlightCall& last = log.calls.back();
  if (!last.ended) {
    return "in " + names.label_and_site(last) + " for " + age_text(now - last.began);
  }
  return "in no call for " + age_text(now - *last.ended) + ", after " + names.label_and_site(last) +
         (last.failed ? ", which failed" : "");
}

const FlightCall* call_under_way(const FlightLog& log) {
  if (const FlightWait* wait = longest_wait(log)) return &wait->call;
  return log.calls.empty() || log.calls.back().ended ? nullptr : &log.calls.back();
}

SeenDoing seen_in(const FlightCall* call, std::string text) {
  if (call == nullptr) return {std::move(text)};
  return {std::move(text), call->communicator, call->sequence, call->op};
}

bool is_stopped(const FlightLog& log) {
  if (!log.ready || log.process_started == 0) return false;
  const auto stat = process_stat(log.pid);
  return stat && stat->started == log.process_started && (stat->state == 'T' || stat->state == 't');
}

}  // namespace dlaunch
