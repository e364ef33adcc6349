#include "collectives/call/core/diagnose.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

using ending::Sight;
using transport::FailureNotice;
using transport::Fingerprint;
using transport::MadeCall;

constexpr std::size_t named_ranks_max = 16;

std::string elements_text(const Fingerprint& message) {
  return std::to_string(message.count) + " " + to_string(message.dtype) +
         (message.count == 1 ? " element" : " elements");
}

std::string device_elements_text(const Fingerprint& message) {
  return std::to_string(message.count) + " elements of " + to_string(message.dtype);
}

/// "all_reduce #3 (sum, f32, 8 elements) [train.cpp:42]".
std::string made_text(const MadeCall& made) {
  return to_string(made.call) + place_text(made.place);
}

std::string made_place(const std::optional<MadeCall>& made) {
  return made ? place_text(made->place) : "";
}

class Diagnosis {
 public:
  explicit Diagnosis(const CallContext& call)
      : call_(call), group_(call.group), mine_(call.fingerprint), me_(group_.own_world_rank()) {}

  CallError operator()(const ending::Aborted& aborted) const {
    return {Errc::aborted,
            call_.label() + call_.where() + ": " + aborted_text(group_.rank, aborted.site)};
  }

  /// Losses and timeouts are described from the view of the rank that met them.
  CallError operator()(const ending::Told& told) const {
    const FailureNotice& notice = told.notice;
    const bool is_one_sided = notice.code == Errc::peer_lost || notice.code == Errc::timeout;
    const int met_by = notice.met_by >= 0 ? notice.met_by : notice.from;
    const bool names_it = is_one_sided && met_by >= 0;
    const std::string who = names_it ? "told by " + group_.name_of(met_by) + ": " : "";
    return {notice.code, who + notice.sentence, claim_of(notice, told.mine), true};
  }

  CallError operator()(const ending::WrongArguments& wrong) const {
    return {Errc::mismatch,
            call_.label() + call_.where() +
                " cannot complete, because on another rank its arguments were wrong: " +
                wrong.notice.sentence,
            claim_of(wrong.notice, wrong.mine)};
  }

  CallError operator()(const ending::Refused& refused) const {
    return mismatch(call_.label() + " cannot complete, because its arguments were wrong on " +
                        group_.name_of(refused.rank) + call_.where(),
                    {.fault = Fault::arguments, .ranks = {refused.rank}});
  }

  CallError operator()(const ending::Lost& lost) const {
    std::string sentence =
        call_.full_label() + ": " + call_.me() + " lost " + group_.name_of(lost.rank);
    if (!lost.host.empty()) sentence += " on " + lost.host;
    return {Errc::peer_lost,
            sentence + ": " + lost.cause + unwanted_text(lost.unwanted) + call_.where() +
                wrong_text(lost.wrong),
            {.fault = Fault::lost,
             .ranks = {lost.rank},
             .doing = lost.cause.substr(0, Claim::doing_bytes_max)}};
  }

  CallError operator()(const ending::MessageDiffers& message) const {
    std::string sentence = call_.me() + " expects " + elements_text(message.expected) + " in " +
                           call_.label() + call_.where() + ", but " + group_.name_of(message.from) +
                           " sent " + elements_text(fingerprint_of(message.sent)) + " (tag " +
                           std::to_string(message.sent.tag) + ")";
    for (std::size_t i = 0; i < message.places.size(); ++i) {
      sentence += (i == 0 ? " [" : " or [") + message.places[i] + "]";
    }
    return mismatch(sentence, disagreed_with(message.from));
  }

  /// The program's own buffer was too short: that breaks nothing.
  CallError operator()(const ending::TooLong& message) const {
    return {Errc::misuse, call_.label() + ": " + group_.name_of(message.from) + " sent " +
                              elements_text(fingerprint_of(message.sent)) + " (tag " +
                              std::to_string(message.sent.tag) + "), and the buffer has room for " +
                              std::to_string(message.room) +
                              "; the message stays until a receive has room for it" +
                              call_.where()};
  }

  CallError operator()(const ending::DeviceMessageDiffers& message) const {
    return mismatch("rank " + std::to_string(group_.rank_of(message.from)) + " sends " +
                        device_elements_text(message.sent) + " to " + call_.me() +
                        ", which receives " + device_elements_text(message.expected),
                    disagreed_with(message.from));
  }

  /// No rank of the ring is more to blame than the others.
  CallError operator()(const ending::Deadlock& deadlock) const {
    Claim claim{.fault = Fault::disagreed};
    for (const auto& link : deadlock.ring.links) {
      if (claim.ranks.size() < Claim::ranks_max) claim.ranks.push_back(link.rank);
    }
    return {Errc::mismatch, to_string(deadlock.ring), std::move(claim)};
  }

  CallError operator()(const ending::CallDiffers& differs) const {
    std::string sentence = disagreement(differs);
    if (differs.sizes) {
      sentence += " and sent " + sizes_text(*differs.sizes) + ": their counts differ";
    }
    auto error = mismatch(sentence + wrong_text(differs.wrong), votes(differs));
    return differs.theirs ? error.since(differs.theirs->sequence) : error;
  }

  CallError operator()(const ending::WindowDiffers& differs) const {
    const auto& [here, there] = differs.calls;
    Claim claim = disagreed_with(differs.rank);
    if (there.sequence == here.sequence) {
      claim.communicator = group_.id;
      claim.sequence = here.sequence;
      claim.votes = {{me_, here.digest}, {differs.rank, there.digest}};
    }
    return mismatch(both_made(differs.rank, here.sequence, differs.made_here, differs.made_there),
                    std::move(claim))
        .since(here.sequence);
  }

  CallError operator()(const ending::TimedOut& late) const {
    Claim claim;
    const std::string absent = absent_text(late, claim);
    std::string sentence =
        call_.full_label() + ": " + call_.me() + " waited " + seconds_text(call_.timeout);
    if (!absent.empty()) {
      sentence += "; absent: " + absent;
    } else if (call_.is_message() && call_.peer == group_.rank) {
      sentence += mine_.op == transport::Op::send
                      ? "; the message is to itself, and it has no receive under way that takes it"
                      : "; the message is from itself, and it has not sent it";
    } else if (late.for_device) {
      sentence += "; all ranks are in the call, but their devices did not end it in time";
    } else if (late.whom >= 0) {
      sentence += " for data of " + group_.name_of(late.whom) +
                  "; all ranks are in the call, but it did not end in time";
    } else {
      sentence += "; nothing came";
    }
    sentence += unwanted_text(late.unwanted);
    if (!late.shortage.empty()) sentence += "; of " + call_.me() + ": " + late.shortage;
    return {Errc::timeout, sentence + call_.where(), std::move(claim)};
  }

 private:
  CallError mismatch(const std::string& sentence, Claim claim) const {
    const bool named = group_.name != "world" && !call_.is_message();
    return {Errc::mismatch, sentence + (named ? " of '" + group_.name + "'" : ""),
            std::move(claim)};
  }

  // ---- Whose fault it is. ----

  static Claim disagreed_with(int rank) { return {.fault = Fault::disagreed, .ranks = {rank}}; }

  /// The claim has both ranks' calls; all ranks' claims together show whose call is the odd one.
  Claim votes(const ending::CallDiffers& differs) const {
    Claim claim = disagreed_with(differs.rank);
    if (!differs.theirs || !differs.mine || *differs.mine == *differs.theirs) return claim;
    claim.communicator = group_.id;
    claim.sequence = differs.theirs->sequence;
    claim.votes = {{me_, number_of(*differs.mine)}, {differs.rank, number_of(*differs.theirs)}};
    return claim;
  }

  /// Another rank's claim, with this rank's own call if ranks disagree.
  Claim claim_of(const FailureNotice& notice, const std::optional<Fingerprint>& mine) const {
    Claim claim = notice.claim;
    const bool has_voted = std::any_of(claim.votes.begin(), claim.votes.end(),
                                       [&](const Vote& vote) { return vote.rank == me_; });
    const bool votes = !claim.votes.empty() && claim.votes.size() < Claim::ranks_max;
    if (mine && votes && !has_voted) claim.votes.push_back({me_, number_of(*mine)});
    return claim;
  }

  // ---- What ranks called. ----

  /// Adds that there is another message than the one that is waited for.
  std::string unwanted_text(const std::optional<ending::Unwanted>& unwanted) const {
    if (!unwanted) return "";
    return "; another message has come: " + elements_text(fingerprint_of(unwanted->sent)) +
           " from " + group_.name_of(unwanted->from) + " (tag " +
           std::to_string(unwanted->sent.tag) + ")";
  }

  /// "2 elements in place of 3"; in bytes where those are no whole elements of this call's.
  std::string sizes_text(const ending::CallDiffers::Sizes& sizes) const {
    const std::uint64_t size = std::max<std::uint64_t>(size_of(mine_.dtype), 1);
    const bool is_whole = sizes.theirs % size == 0 && sizes.ours % size == 0;
    const std::uint64_t unit = is_whole ? size : 1;
    const char* const name = mine_.dtype != DType{} && is_whole ? "element" : "byte";
    return plural(static_cast<long>(sizes.theirs / unit), name) + " in place of " +
           std::to_string(sizes.ours / unit);
  }

  /// Adds that a rank gave wrong arguments before, and so is not in the call any more.
  std::string wrong_text(const std::optional<FailureNotice>& wrong) const {
    if (!wrong) return "";
    const std::string whose = wrong->from < 0 ? "another rank" : group_.name_of(wrong->from);
    return ", after the arguments of " + whose + " were wrong: " + wrong->sentence;
  }

  /// The sentence about both ranks' calls of that number, which differ and are over. `heard`: the
  /// other rank's call, as far as it is known without its record.
  std::string both_made(int rank, std::uint64_t sequence, const std::optional<MadeCall>& here,
                        const std::optional<MadeCall>& there, const std::string& heard = {}) const {
    const std::string lost =
        "another call #" + std::to_string(sequence) + ", of which no record is left";
    return group_.name_of(me_) + " made " + (here ? made_text(*here) : lost) + ", but " +
           group_.name_of(rank) + " made " +
           (there           ? made_text(*there)
            : heard.empty() ? lost
                            : heard);
  }

  /// The sentence about two calls that differ. If theirs is over here, it is compared with our call
  /// of that number; if ours is over there, with their call of that number.
  std::string disagreement(const ending::CallDiffers& differs) const {
    const std::string but = ", but " + group_.name_of(differs.rank);
    if (!differs.theirs) {
      return call_.me() + " is in " + to_string(mine_) + call_.where() + but +
             " is in another call, of which no record is left";
    }
    const Fingerprint& theirs = *differs.theirs;
    // Calls of different numbers say nothing about each other.
    if (!differs.mine && theirs.sequence < mine_.sequence) {
      return both_made(differs.rank, theirs.sequence, differs.made_here, differs.made_there,
                       to_string(theirs));
    }
    const Fingerprint mine = differs.mine.value_or(mine_);
    const bool is_over = mine.sequence != mine_.sequence;
    const std::string me = group_.name_of(me_) + " is in " + to_string(mine) +
                           (is_over ? made_place(differs.made_here) : call_.where());
    if (differs.made_then && !agree_but_for_argument(differs.made_then->call, mine)) {
      return me + but + " made " + made_text(*differs.made_then);
    }
    const std::string there = " is in " + to_string(theirs) + made_place(differs.made_there);
    if (theirs == mine || !agree_but_for_argument(theirs, mine)) return me + but + there;
    // They differ in an argument of which the fingerprint has a hash.
    if (is_over || !differs.arguments) return me + but + there + ", with another argument";
    const auto& arguments = *differs.arguments;
    if (mine.sequence == 1 && (arguments.here == arguments.there || arguments.there.empty())) {
      // Our argument's words say everything, or there are none.
      const bool is_known = !arguments.here.empty() || mine.argument == arguments.table_digest;
      return me + but + there +
             (arguments.here == arguments.there && is_known ? ", by"
                                                            : ", with another argument, or by") +
             " another table of algorithms than the one here, " + arguments.table;
    }
    const auto with = [](const std::string& argument) {
      return " with " + (argument.empty() ? "another argument" : argument);
    };
    return me + with(arguments.here) + but + there + with(arguments.there);
  }

  // ---- Who is absent. ----

  /// The activity of an absent rank; nullopt: it is in the call.
  std::optional<std::string> doing_text(const Sight& rank) const {
    if (rank.answer) {
      const bool here = rank.answer->communicator == group_.id &&
                        rank.answer->call.sequence >= mine_.sequence && !call_.is_message();
      if (here) return std::nullopt;
      return "is in " + to_string(*rank.answer);
    }
    if (rank.unreceived) {
      return "is in " + short_text(fingerprint_of(*rank.unreceived)) + " of " +
             std::to_string(rank.unreceived->bytes) + " bytes to " + group_.name_of(me_) +
             ", which does not receive them";
    }
    if (rank.lost) return *rank.lost;
    if (rank.recorded) return rank.recorded->text;
    if (rank.seen) return rank.seen->text;
    if (rank.last_heard) return "last heard of in " + short_text(*rank.last_heard);
    return "never heard of";
  }

  /// Whether a rank is seen in this very call: then it has come, and was only slow to answer.
  bool has_come(const Sight& rank, std::uint64_t recorded_as) const {
    if (rank.answer || rank.unreceived || rank.lost || call_.is_message()) return false;
    const auto& seen = rank.recorded ? rank.recorded : rank.seen;
    return seen && seen->communicator == recorded_as && seen->sequence == mine_.sequence &&
           seen->op == static_cast<std::uint8_t>(mine_.op);
  }

  /// Whether a rank is seen in a call of the same label on another communicator.
  bool is_on_namesake(const Sight& rank, std::uint64_t recorded_as) const {
    if (rank.answer || rank.unreceived || rank.lost || call_.is_message()) return false;
    const auto& seen = rank.recorded ? rank.recorded : rank.seen;
    return seen && seen->sequence != 0 && seen->communicator != recorded_as &&
           seen->text.starts_with("in " + call_.full_label());
  }

  std::string absent_text(const ending::TimedOut& late, Claim& claim) const {
    struct Absent {
      int rank = -1;
      std::string doing;
      bool has_come = false;
    };
    std::vector<Absent> absent;
    for (const Sight& rank : late.ranks) {
      if (auto doing = doing_text(rank)) {
        const bool is_elsewhere = is_on_namesake(rank, late.recorded_as);
        const bool lacks_it = rank.lacks_communicator && !rank.lost && !is_elsewhere;
        if (is_elsewhere) *doing += ", of another communicator";
        if (lacks_it) *doing += "; it has not made this communicator";
        if (is_elsewhere || lacks_it) {
          *doing += ": do all ranks make their communicators in the same order?";
        }
        absent.push_back({rank.rank, std::move(*doing), has_come(rank, late.recorded_as)});
      }
    }
    // Ranks that have come are named only if no other rank is absent.
    const auto came = [](const Absent& rank) { return rank.has_come; };
    if (!std::all_of(absent.begin(), absent.end(), came)) std::erase_if(absent, came);
    if (absent.empty()) return "";
    std::string text;
    for (std::size_t i = 0; i < absent.size(); ++i) {
      if (i < Claim::ranks_max) claim.ranks.push_back(absent[i].rank);
      if (i >= named_ranks_max) continue;
      text += (i == 0 ? "" : "; ") + group_.name_of(absent[i].rank) + " (" + absent[i].doing + ")";
    }
    claim.fault = Fault::absent;
    claim.doing = absent.front().doing.substr(0, Claim::doing_bytes_max);
    if (absent.size() > named_ranks_max) {
      text += "; and " + std::to_string(absent.size() - named_ranks_max) + " more";
    }
    return text;
  }

  const CallContext& call_;
  const Group& group_;
  const Fingerprint& mine_;
  const int me_;
};

}  // namespace

CallError diagnose(const CallSnapshot& snapshot) {
  return std::visit(Diagnosis(snapshot.call), snapshot.ending);
}

bool agree_but_for_argument(Fingerprint one, const Fingerprint& other) {
  one.argument = other.argument;
  return one == other;
}

}  // namespace dlaunch
