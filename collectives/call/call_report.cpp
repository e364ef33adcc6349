#include "collectives/algorithms/select/select.hpp"
#include "collectives/call/call.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/segment/flight_log.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

/// What a call says: who is absent when its deadline has passed, and how it names itself.
namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;
using transport::Fingerprint;
using transport::Kind;

/// For answers to "what are you doing?" once the deadline has passed.
constexpr auto answer_grace = 200ms;
/// For what other nodes' agents see of their ranks; ours gives up a little earlier.
constexpr auto agents_grace = 700ms;
/// For where another rank made its call, of which both are told in less than a second.
constexpr auto place_grace = 500ms;
/// For the record of a message that has come, by a rank of this node; and between looks at it.
constexpr auto record_grace = 100ms;
constexpr auto record_interval = 1ms;
/// Up to here all ranks are asked and told directly; beyond, neighbours at distances of powers of
/// two, who pass it on.
constexpr int direct_ranks_max = 64;
constexpr std::size_t named_ranks_max = 16;

/// They differ at most in what the fingerprint has a hash of.
bool agree_but_for_argument(Fingerprint one, const Fingerprint& other) {
  one.argument = other.argument;
  return one == other;
}

/// An inquiry, as long as its answers are waited for. Under the mesh's lock.
class Asking {
 public:
  Asking(transport::Links& mesh, const std::vector<int>& ranks, transport::Inquiry& inquiry)
      : mesh_(mesh), inquiry_(inquiry) {
    mesh_.inquire(ranks, inquiry_);
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  ~Asking() { mesh_.control().withdraw(inquiry_); }

 private:
  transport::Links& mesh_;
  transport::Inquiry& inquiry_;
};

}  // namespace

// ---- The deadline has passed: who is absent? ----

/// The others, as far as they are asked and told directly.
std::vector<int> Call::others() const {
  const Group& group = setting_.group;
  std::vector<int> ranks;
  if (size() <= direct_ranks_max) {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != group.rank) ranks.push_back(group.world_rank(rank));
    }
    return ranks;
  }
  for (int distance = 1; distance < size(); distance *= 2) {
    ranks.push_back(group.world_rank((group.rank + distance) % size()));
    ranks.push_back(group.world_rank((group.rank - distance + size()) % size()));
  }
  return ranks;
}

/// True if the call completed after all.
bool Call::ask_others(const std::vector<int>& ranks, const std::function<bool()>& ready) {
  waits().inquiry = {.communicator = setting_.group.id};
  const Asking asking(setting_.mesh, ranks, waits().inquiry);
  const auto until = Clock::now() + answer_grace;
  while (Clock::now() < until && waits().inquiry.answers.size() < ranks.size()) {
    if (ready()) return true;
    check_news(nullptr);
    setting_.mesh.step(until);
  }
  return ready();
}

/// What the flight recorder tells of a rank that shares memory with this one; else nothing.
std::string Call::recorded_doing(int world_rank) const {
  const auto& segment = setting_.mesh.segment();
  const int local = segment ? segment->local_of(world_rank) : -1;
  if (local < 0) return "";
  const FlightRing& ring = segment->flight(local);
  const FlightLog log = read_flight(ring, 1);
  if (!log.ready) return "it has made no communicator yet";
  return (is_stopped(log) ? "stopped by a signal, " : "") + doing_text(ring, log, Clock::now());
}

std::optional<Fingerprint> Call::find_recorded(
    const FlightRing& ring, const std::function<bool(const Fingerprint&)>& is_wanted) const {
  if (setting_.flight == nullptr) return std::nullopt;
  const FlightLog log = read_flight(ring);
  std::optional<Fingerprint> found;
  const auto distance = [this](const Fingerprint& call) {
    return std::max(call.sequence, fingerprint_.sequence) -
           std::min(call.sequence, fingerprint_.sequence);
  };
  for (auto call = log.calls.rbegin(); call != log.calls.rend(); ++call) {
    if (call->communicator != setting_.flight->communicator() || call->sequence == 0 ||
        call->kind != Flight::Kind::call) {
      continue;
    }
    const Fingerprint print = transport::fingerprint_of(*call);
    if (is_wanted(print) && (!found || distance(print) < distance(*found))) found = print;
  }
  return found;
}

/// What this rank called under that number, as far as that is remembered.
std::optional<Fingerprint> Call::call_made(std::uint64_t sequence) const {
  if (sequence == fingerprint_.sequence) return fingerprint_;
  if (setting_.history != nullptr) return setting_.history->find(sequence);
  return find_recorded(setting_.mesh.made_calls().flight()->ring(),
                       [&](const Fingerprint& call) { return call.sequence == sequence; });
}

/// Asks about ranks on other nodes that have not answered themselves: they may be stopped, or
/// compute.
void Call::ask_agents(const std::vector<int>& asked) {
  const auto& membership = setting_.mesh.world().membership();
  std::vector<int> silent;
  for (const int rank : asked) {
    if (!is_elsewhere(rank) || waits().inquiry.answers.contains(rank)) continue;
    if (setting_.mesh.loss_of(rank) == nullptr) silent.push_back(rank);
  }
  if (membership == nullptr || silent.empty()) return;
  silent.resize(std::min(silent.size(), named_ranks_max));
  membership->inquire(silent);
  const auto until = Clock::now() + agents_grace;
  auto answer = membership->doing();
  for (; !answer && Clock::now() < until; answer = membership->doing()) {
    check_news(nullptr);
    setting_.mesh.step(until);
  }
  if (answer) waits().seen_by_agents = std::move(*answer);
}

std::string Call::absent_text(const std::vector<int>& asked, Claim& claim) const {
  std::string text;
  std::vector<std::pair<int, std::string>> absent;  ///< What each was seen doing.
  for (const int world_rank : asked) {
    const auto answer = waits().inquiry.answers.find(world_rank);
    std::string doing;
    if (answer != waits().inquiry.answers.end()) {
      const auto* told = std::get_if<transport::Doing>(&answer->second);
      if (told == nullptr) continue;
      const bool here = told->communicator == setting_.group.id &&
                        told->call.sequence >= fingerprint_.sequence &&
                        !transport::is_message(fingerprint_.op);
      if (here) continue;
      doing = "is in " + to_string(*told);
    } else if (const auto& coming = setting_.mesh.inbox().last_seen(world_rank);
               coming && setting_.mesh.inbox().is_held(world_rank)) {
      doing = "is in " + short_text(fingerprint_of(*coming)) + " of " +
              std::to_string(coming->bytes) + " bytes to " + name_of(setting_.mesh.rank()) +
              ", which does not receive them";
    } else if (const PeerLoss* loss = setting_.mesh.loss_of(world_rank)) {
      doing = loss->cause;
    } else if (std::string recorded = recorded_doing(world_rank); !recorded.empty()) {
      doing = std::move(recorded);
    } else if (const auto agent = waits().seen_by_agents.find(world_rank);
               agent != waits().seen_by_agents.end()) {
      doing = agent->second;
    } else if (const auto& seen = setting_.mesh.inbox().last_seen(world_rank)) {
      doing = "last heard of in " + short_text(fingerprint_of(*seen));
    } else {
      doing = "never heard of";
    }
    absent.emplace_back(world_rank, std::move(doing));
  }
  // A rank that is seen in this very call has come, and was only slow to answer: it is told of
  // where nobody else is absent.
  const std::string here = "in " + label() + " ";
  const auto has_come = [&](const auto& rank) { return rank.second.starts_with(here); };
  if (!std::all_of(absent.begin(), absent.end(), has_come)) std::erase_if(absent, has_come);
  for (std::size_t i = 0; i < absent.size(); ++i) {
    const auto& [world_rank, doing] = absent[i];
    if (i < Claim::ranks_max) claim.ranks.push_back(world_rank);
    if (i >= named_ranks_max) continue;
    text += (text.empty() ? "" : "; ") + name_of(world_rank) + " (" + doing + ")";
  }
  if (!absent.empty()) {
    claim.fault = Fault::absent;
    claim.doing = absent.front().second.substr(0, Claim::doing_bytes_max);
  }
  if (absent.size() > named_ranks_max) {
    text += "; and " + std::to_string(absent.size() - named_ranks_max) + " more";
  }
  return text;
}

void Call::throw_unless_complete(const Waiting& waiting, const std::function<bool()>& ready) {
  const std::string limit = seconds_text(setting_.timeout);
  std::vector<int> asked;
  if (!transport::is_message(fingerprint_.op) || waiting.any() || waiting.all) {
    asked = others();
  } else {
    for (const auto ranks : {waiting.to_receive(), waiting.to_send()}) {
      asked.insert(asked.end(), ranks.begin(), ranks.end());
    }
    std::erase(asked, setting_.mesh.rank());
  }
  if (ask_others(asked, ready)) return;
  ask_agents(asked);
  if (ready()) return;
  Claim claim;
  const std::string absent = absent_text(asked, claim);
  std::string sentence = full_label() + ": rank " + std::to_string(rank()) + " waited " + limit;
  if (!absent.empty()) {
    sentence += "; absent: " + absent;
  } else if (waiting.all) {
    sentence += "; all ranks are in the call, but their devices did not end it in time";
  } else if (!waiting.to_receive().empty() && !waiting.any()) {
    sentence += " for data of " + name_of(waiting.to_receive().front()) +
                "; all ranks are in the call, but it did not end in time";
  } else {
    sentence += "; nothing came";
  }
  const std::string& shortage = setting_.mesh.shortage();
  if (!shortage.empty()) sentence += "; of rank " + std::to_string(rank()) + ": " + shortage;
  throw CallError(Errc::timeout, sentence + where(), std::move(claim));
}

// ---- Words. ----

/// Losses and waits are told as the rank has them that met them.
std::string Call::told_text(const FailureNotice& notice) const {
  const bool is_one_sided = notice.code == Errc::peer_lost || notice.code == Errc::timeout;
  const int met_by = notice.met_by >= 0 ? notice.met_by : notice.from;
  if (!is_one_sided || met_by < 0) return notice.sentence;
  return "told by " + name_of(met_by) + ": " + notice.sentence;
}

/// A rank that gave wrong arguments, and perhaps ended of it, is in that call no more.
std::string Call::refused_text() const {
  const auto* notice = setting_.mesh.control().wrong_arguments(setting_.group.id);
  if (notice == nullptr) return "";
  const std::string whose = notice->from < 0 ? "another rank" : name_of(notice->from);
  return ", after the arguments of " + whose + " were wrong: " + notice->sentence;
}

std::string Aborted::text(int rank) const {
  return "rank " + std::to_string(rank) + " called abort()" + place_text(site_);
}

/// Another rank hears it while it waits in a call, or has started one. One that gave up has said
/// why.
transport::Answer Call::asked(int world_rank, const transport::Inquiry& inquiry) {
  auto& mesh = setting_.mesh;
  waits().inquiry = inquiry;
  const Asking asking(mesh, {world_rank}, waits().inquiry);
  const auto until = Clock::now() + place_grace;
  while (waits().inquiry.answers.empty() && !setting_.aborted && Clock::now() < until) {
    const FailureNotice* told = mesh.control().failure_of(setting_.group.id);
    if (told != nullptr && told->code == Errc::mismatch) check_told();
    mesh.step(until);
  }
  const auto answer = waits().inquiry.answers.find(world_rank);
  if (answer == waits().inquiry.answers.end()) return transport::NothingKnown{};
  return answer->second;
}

/// That rank's call of that number: by its flight ring on this node, else it is asked.
std::optional<transport::MadeCall> Call::made(int world_rank, std::uint64_t sequence) {
  auto known = setting_.mesh.made_calls().call_made(world_rank, setting_.group.id, sequence);
  if (known || world_rank == setting_.mesh.rank()) return known;
  const auto answer = asked(world_rank, {.communicator = setting_.group.id,
                                         .sequence = sequence,
                                         .question = transport::Question::made});
  if (const auto* told = std::get_if<transport::MadeCall>(&answer)) return *told;
  return std::nullopt;
}

std::string Call::place_made(int world_rank, std::uint64_t sequence) {
  const auto call = made(world_rank, sequence);
  return call ? place_text(call->place) : "";
}

/// The places from which the message was sent that this receive found.
std::string Call::sent_from(const transport::Receive& receive) {
  transport::Inquiry inquiry{.communicator = setting_.group.id,
                             .question = transport::Question::sent,
                             .message = receive.header};
  inquiry.message.root = rank();
  inquiry.message.bytes = 0;
  const auto& segment = setting_.mesh.segment();
  const bool is_near =
      receive.source == setting_.mesh.rank() || (segment && segment->local_of(receive.source) >= 0);
  transport::SentFrom from;
  if (is_near) {
    // A message that needs no waiting is on its way before it is recorded.
    const auto until = Clock::now() + record_grace;
    from = setting_.mesh.made_calls().sent_from(receive.source, inquiry.message);
    while (from.places.empty() && Clock::now() < until) {
      setting_.mesh.step(std::min(until, Clock::now() + record_interval));
      from = setting_.mesh.made_calls().sent_from(receive.source, inquiry.message);
    }
  } else {
    const auto answer = asked(receive.source, inquiry);
    if (const auto* told = std::get_if<transport::SentFrom>(&answer)) from = *told;
  }
  std::string text;
  for (const auto& place : from.places) text += (text.empty() ? "[" : " or [") + place + "]";
  return text;
}

std::string Call::counts_text(std::uint64_t theirs, std::uint64_t ours) {
  return " and sent " + std::to_string(theirs) + " bytes where " + std::to_string(ours) +
         " were expected: their counts differ";
}

std::string Call::argument_text() const {
  const std::string text = argument_ ? argument_->text() : "";
  const ReduceOp op = fingerprint_.reduce;
  if (!text.empty() || op == ReduceOp{} || op >= ReduceOp::premul_sum) return text;
  const Reduction plain(op);
  return Argument{&plain}.text();
}

/// Both ranks' calls of that number, which differ and are over.
std::string Call::earlier_disagreement(std::uint64_t sequence, int world_rank,
                                       const Fingerprint* heard) {
  const std::string lost =
      "another call #" + std::to_string(sequence) + ", of which no record is left";
  const auto made_by = [&](int rank, const std::string& otherwise) {
    const auto call = made(rank, sequence);
    return call ? to_string(call->call) + place_text(call->place) : otherwise;
  };
  const int here = setting_.mesh.rank();
  return name_of(here) + " made " + made_by(here, lost) + ", but " + name_of(world_rank) +
         " made " + made_by(world_rank, heard == nullptr ? lost : to_string(*heard));
}

/// Theirs may belong to a call that is over here: it is compared with that one. If ours is over
/// there, with what it was there.
std::string Call::disagreement(const Fingerprint& theirs, int world_rank) {
  const auto recorded = call_made(theirs.sequence);
  // Calls of different numbers say nothing about each other.
  if (!recorded && theirs.sequence < fingerprint_.sequence) {
    return earlier_disagreement(theirs.sequence, world_rank, &theirs);
  }
  const Fingerprint mine = recorded.value_or(fingerprint_);
  const bool is_over = mine.sequence != fingerprint_.sequence;
  const std::string here = is_over ? place_made(setting_.mesh.rank(), mine.sequence) : where();
  const std::string me = name_of(setting_.mesh.rank()) + " is in " + to_string(mine) + here;
  const std::string but = ", but " + name_of(world_rank);
  if (theirs.sequence > mine.sequence) {
    const auto then = made(world_rank, mine.sequence);
    if (then && !agree_but_for_argument(then->call, mine)) {
      return me + but + " made " + to_string(then->call) + place_text(then->place);
    }
  }
  const std::string there = " is in " + to_string(theirs) + place_made(world_rank, theirs.sequence);
  if (theirs == mine || !agree_but_for_argument(theirs, mine)) return me + but + there;
  // They differ in what the fingerprint has a hash of.
  if (is_over) return me + but + there + ", with another argument";
  const std::string ours = argument_text();
  std::string other;
  if (!ours.empty()) {
    const auto answer = asked(world_rank, {.communicator = setting_.group.id,
                                           .sequence = theirs.sequence,
                                           .question = transport::Question::argument});
    if (const auto* words = std::get_if<transport::ArgumentWords>(&answer)) other = words->text;
  }
  const auto& table = setting_.mesh.table();
  if (mine.sequence == 1 && (ours == other || other.empty())) {
    // Our argument says all there is, or there is nothing to say.
    const bool is_known = !ours.empty() || mine.argument == table.digest();
    return me + but + there +
           (ours == other && is_known ? ", by" : ", with another argument, or by") +
           " another table of algorithms than the one here, " + table.title();
  }
  const auto with = [](const std::string& argument) {
    return " with " + (argument.empty() ? "another argument" : argument);
  };
  return me + with(ours) + but + there + with(other);
}

/// A rank that has waited in a collective for long says which one it is in to whom it waits for:
/// where each takes the other for the root, nothing else would ever come.
void Call::tell_call(const Waiting& waiting) {
  for (const int rank : waiting.to_receive()) {
    if (rank != setting_.mesh.rank()) post_call(rank);
  }
}

}  // namespace dlaunch
