#include "collectives/call/core/outcome.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace dlaunch {
namespace {

using transport::Op;

/// Ranks of a communicator of that size, ascending.
bool are_ranks(const std::vector<int>& ranks, int size) {
  return std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) &&
         (ranks.empty() || (ranks.front() >= 0 && ranks.back() < size));
}

struct Fits {
  int size = 0;
  bool operator()(const Agreement& agreed) const { return are_ranks(agreed.survivors, size); }
  bool operator()(const OpsDiffer& differ) const {
    return are_ranks({std::min(differ.one.rank, differ.other.rank),
                      std::max(differ.one.rank, differ.other.rank)},
                     size);
  }
  bool operator()(const RanksAbsent& absent) const {
    return are_ranks(absent.named, size) && !absent.named.empty() &&
           absent.named.size() <= std::min<std::size_t>(absent.count, RanksAbsent::named_max);
  }
};

std::string side_text(const OpsDiffer::Side& side, std::uint64_t number) {
  return "rank " + std::to_string(side.rank) + " is in " + to_string(side.op) + " #" +
         std::to_string(number) + place_text(side.place);
}

std::string absent_text(const RanksAbsent& absent) {
  std::string text = (absent.count == 1 ? "rank " : "ranks ") +
                     joined(absent.named, [](int rank) { return std::to_string(rank); });
  if (absent.count > absent.named.size()) {
    text += " and " + std::to_string(absent.count - absent.named.size()) + " more";
  }
  return text;
}

/// Turns an outcome into the result of this rank's call.
struct Judge {
  const AgreementCall& call;

  std::optional<CallError> operator()(const Agreement& agreed) const {
    const auto& living = agreed.survivors;
    if (std::binary_search(living.begin(), living.end(), call.group.rank)) return std::nullopt;
    return CallError(Errc::peer_lost, call.label() + ": the others took rank " +
                                          std::to_string(call.group.rank) +
                                          ", this one, for lost, and go on without it");
  }
  std::optional<CallError> operator()(const OpsDiffer& differ) const {
    return CallError(Errc::mismatch,
                     call.label() + ": " + side_text(differ.one, call.number) + ", but " +
                         side_text(differ.other, call.number),
                     blame(Fault::disagreed, {differ.one.rank, differ.other.rank}));
  }
  std::optional<CallError> operator()(const RanksAbsent& absent) const {
    return CallError(Errc::timeout,
                     call.label() + ": rank " + std::to_string(absent.waited) + " waited " +
                         seconds_text(absent.timeout) + "; absent, and not known to be lost: " +
                         absent_text(absent) + place_text(call.site),
                     blame(Fault::absent, absent.named));
  }

  Claim blame(Fault fault, const std::vector<int>& ranks) const {
    Claim claim{.fault = fault};
    for (const int rank : ranks) claim.ranks.push_back(call.group.world_rank(rank));
    return claim;
  }
};
static_assert(RanksAbsent::named_max <= Claim::ranks_max);

}  // namespace

std::optional<Outcome> conclude(const std::vector<Attendance>& ranks, bool late, int waits,
                                Clock::duration timeout) {
  Agreement agreed{.flags = ~std::uint32_t{0}};
  RanksAbsent absent{.waited = waits, .timeout = timeout};
  std::map<Op, OpsDiffer::Side> made;  // By the first rank that made it.
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (ranks[i].is_lost) continue;
    if (const auto& brought = ranks[i].brought) {
      agreed.survivors.push_back(rank);
      agreed.flags &= brought->flags;
      made.try_emplace(brought->op, OpsDiffer::Side{rank, brought->op, brought->place});
    } else {
      if (absent.named.size() < RanksAbsent::named_max) absent.named.push_back(rank);
      ++absent.count;
    }
  }
  if (made.size() > 1) return OpsDiffer{made.begin()->second, made.rbegin()->second};
  if (absent.count == 0) return agreed;
  if (late) return absent;
  return std::nullopt;
}

Bytes encode(const Brought& brought) {
  Bytes bytes;
  wire::encode(bytes, brought);
  return bytes;
}

Bytes encode(const Outcome& outcome) {
  Bytes bytes;
  wire::encode(bytes, outcome);
  return bytes;
}

std::optional<Brought> decode_brought(BytesView bytes) { return wire::decode<Brought>(bytes); }

std::optional<Outcome> decode_outcome(BytesView bytes, int size) {
  auto outcome = wire::decode<Outcome>(bytes);
  if (outcome && !std::visit(Fits{size}, *outcome)) outcome.reset();
  return outcome;
}

std::string AgreementCall::label() const {
  return std::string(to_string(op)) + " #" + std::to_string(number) + " of '" + group.name + "'";
}

std::optional<CallError> failure_of(const AgreementCall& call, const Outcome& outcome) {
  return std::visit(Judge{call}, outcome);
}

}  // namespace dlaunch
