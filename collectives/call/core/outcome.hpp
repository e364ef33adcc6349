#pragma once

#include "collectives/call/core/call_context.hpp"
#include "collectives/call/core/call_error.hpp"

#include <dlaunch/store.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

/// The contributions and the outcome of an agreement among a communicator's living ranks, in their
/// forms in the store. One rank writes the outcome for all. Ranks are the communicator's.
namespace dlaunch {

/// The result on which the living ranks agreed.
struct Agreement {
  std::uint32_t flags = 0;  ///< The bitwise and of the participants' flags.
  std::vector<int> survivors =
      {};  ///< Ranks of the communicator that took part and live, ascending.
  static auto fields(auto& m) { return std::tie(m.flags, m.survivors); }
  bool operator==(const Agreement&) const = default;
};

/// A rank's contribution.
struct Brought {
  transport::Op op{};
  std::uint32_t flags = 0;
  std::string place = {};  ///< "train.cpp:42", empty where it is not known.
  static auto fields(auto& m) { return std::tie(m.op, m.flags, m.place); }
  bool operator==(const Brought&) const = default;
};

/// Two ranks made different calls under the agreement's number.
struct OpsDiffer {
  struct Side {
    int rank = 0;
    transport::Op op{};
    std::string place = {};
    static auto fields(auto& m) { return std::tie(m.rank, m.op, m.place); }
    bool operator==(const Side&) const = default;
  };
  Side one, other;
  static auto fields(auto& m) { return std::tie(m.one, m.other); }
  bool operator==(const OpsDiffer&) const = default;
};

/// Ranks did not come in time, and are not known to be lost.
struct RanksAbsent {
  static constexpr std::size_t named_max = 16;
  int waited = 0;  ///< The rank that wrote it down.
  Clock::duration timeout{};
  std::vector<int> named = {};  ///< The first of them.
  std::uint32_t count = 0;      ///< All of them.
  static auto fields(auto& m) { return std::tie(m.waited, m.timeout, m.named, m.count); }
  bool operator==(const RanksAbsent&) const = default;
};

using Outcome = std::variant<Agreement, OpsDiffer, RanksAbsent>;

/// A rank, as the one that concludes sees it.
struct Attendance {
  bool is_lost = false;
  std::optional<Brought> brought = std::nullopt;
};
/// The outcome; nullopt: some ranks have still to come. `late`: rank `waits` has waited so long,
/// and waits no more.
std::optional<Outcome> conclude(const std::vector<Attendance>& ranks, bool late, int waits,
                                Clock::duration timeout);

Bytes encode(const Brought& brought);
Bytes encode(const Outcome& outcome);
std::optional<Brought> decode_brought(BytesView bytes);
/// `size`: the communicator's.
std::optional<Outcome> decode_outcome(BytesView bytes, int size);

/// An agreement as one of its ranks makes it. Borrows; a value.
struct AgreementCall {
  const Group& group;
  transport::Op op{};
  std::uint64_t number = 0;
  CallSite site = {};

  /// "agree #2 of 'world'".
  std::string label() const;
};
/// The error that this rank throws; nullopt: it takes part in the Agreement, and goes on.
std::optional<CallError> failure_of(const AgreementCall& call, const Outcome& outcome);

}  // namespace dlaunch
