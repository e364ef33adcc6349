#include "collectives/call.hpp"

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <cstdio>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;
using transport::Fingerprint;
using transport::Kind;
using transport::Outgoing;
using transport::Receive;
using transport::Scope;

/// A closed connection says that a peer is gone, the agent says why; its word is waited for.
constexpr auto cause_grace = 150ms;
/// News of an end may overtake what the rank had sent before: its data, or why it gave up.
constexpr auto delivery_grace = 20ms;
/// A rank that this one does not wait for died: a call whose data is all on its way may still end
/// well.
constexpr auto indirect_grace = 300ms;
/// For answers to "what are you doing?" once the deadline has passed.
constexpr auto answer_grace = 200ms;
/// For our own last words.
constexpr auto farewell_grace = 100ms;
/// Up to here all ranks are asked and told directly; beyond, neighbours at distances of powers of
/// two, who pass it on.
constexpr int direct_ranks_max = 64;
constexpr std::size_t named_ranks_max = 16;

std::string seconds_text(Clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

/// A rank that left in good order may have done all its part: those who wait for it notice.
bool left_in_order(const PeerLoss& loss) { return loss.cause.starts_with("exited 0"); }

/// Takes back what is still posted, however the call ends.
class Posted {
 public:
  Posted(transport::Links& mesh, Receive* receive, Outgoing* outgoing)
      : mesh_(mesh), receive_(receive), outgoing_(outgoing) {
    if (receive_ != nullptr) mesh_.inbox().post(*receive_);
    if (outgoing_ != nullptr) mesh_.post(*outgoing_);
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;
  ~Posted() {
    if (receive_ != nullptr && receive_->pending()) mesh_.inbox().withdraw(*receive_);
    if (outgoing_ != nullptr && outgoing_->pending()) mesh_.withdraw(*outgoing_);
  }

 private:
  transport::Links& mesh_;
  Receive* receive_;
  Outgoing* outgoing_;
};

}  // namespace

int Group::rank_of(int world_rank) const {
  const auto found = std::find(world_ranks.begin(), world_ranks.end(), world_rank);
  return found == world_ranks.end() ? -1 : static_cast<int>(found - world_ranks.begin());
}

Call::Call(Setting setting, const Fingerprint& fingerprint)
    : setting_(setting),
      fingerprint_(fingerprint),
      deadline_(deadline_after(setting.timeout)),
      activity_([this] {
        std::string sentence = label();
        if (!current_.to_receive.empty() && !current_.any) {
          sentence += ", waiting for " + name_of(current_.to_receive.front());
        }
        return transport::Status{setting_.group.id, fingerprint_.sequence, sentence};
      }) {
  setting_.mesh.set_activity(&activity_);
}

Call::~Call() { setting_.mesh.set_activity(nullptr); }

// ---- The face for algorithms. ----

Receive Call::make_receive(int from, std::span<std::byte> into) const {
  Receive receive;
  receive.communicator = setting_.group.id;
  receive.from = setting_.group.world_rank(from);
  receive.expected = fingerprint_;
  receive.into = into;
  return receive;
}

Outgoing Call::make_outgoing(int to, BytesView data) const {
  Outgoing outgoing;
  outgoing.to = setting_.group.world_rank(to);
  outgoing.header = make_header(Kind::collective, setting_.group.id, fingerprint_, data.size());
  outgoing.payload = data;
  return outgoing;
}

void Call::send(int to, BytesView data) {
  Outgoing outgoing = make_outgoing(to, data);
  const Posted posted(setting_.mesh, nullptr, &outgoing);
  wait(nullptr, &outgoing);
}

void Call::recv(int from, std::span<std::byte> data) {
  Receive receive = make_receive(from, data);
  const Posted posted(setting_.mesh, &receive, nullptr);
  wait(&receive, nullptr);
}

void Call::exchange(int to, BytesView out, int from, std::span<std::byte> in) {
  Receive receive = make_receive(from, in);
  Outgoing outgoing = make_outgoing(to, out);
  const Posted posted(setting_.mesh, &receive, &outgoing);
  wait(&receive, &outgoing);
}

std::pair<int, transport::Header> Call::receive_message(int from, int tag,
                                                        std::span<std::byte> into) {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = setting_.group.id;
  receive.from = from == any_source ? any_source : setting_.group.world_rank(from);
  receive.sources = setting_.group.world_ranks;
  receive.tag = tag;
  receive.expected = fingerprint_;
  receive.into = into;
  const Posted posted(setting_.mesh, &receive, nullptr);
  wait(&receive, nullptr);
  return {receive.source, receive.header};
}

// ---- Waiting. ----

void Call::wait(Receive* receive, Outgoing* outgoing) {
  current_ = {};
  if (receive != nullptr && receive->pending()) {
    if (receive->from == any_source) {
      current_.any = true;
      current_.to_receive.assign(receive->sources.begin(), receive->sources.end());
    } else {
      current_.to_receive = {receive->from};
    }
  }
  if (outgoing != nullptr && outgoing->state != Outgoing::State::done) {
    current_.to_send = {outgoing->to};
  }
  wait_loop(
      current_,
      [&] {
        return (receive == nullptr || receive->state == Receive::State::done) &&
               (outgoing == nullptr || outgoing->state == Outgoing::State::done);
      },
      receive);
}

void Call::wait_until(const std::function<bool()>& ready, int from) {
  current_ = {};
  if (from == any_source) {
    current_.any = true;
    current_.to_receive = setting_.group.world_ranks;
  } else {
    current_.to_receive = {setting_.group.world_rank(from)};
  }
  wait_loop(current_, ready, nullptr);
}

void Call::wait_loop(const Waiting& waiting, const std::function<bool()>& ready,
                     const Receive* receive) {
  while (!ready()) {
    check_news(receive);
    look_again_ = TimePoint::max();
    check_losses(waiting);
    if (Clock::now() >= deadline_) return throw_unless_complete(waiting, ready);
    setting_.mesh.step(std::min(deadline_, look_again_));
  }
}

void Call::check_news(const Receive* receive) {
  if (receive != nullptr && receive->state == Receive::State::mismatched) throw_mismatch(*receive);
  check_entry();
  if (fingerprint_.op >= transport::Op::send) return;
  const FailureNotice* notice = setting_.mesh.failure_of(setting_.group.id, fingerprint_.sequence);
  if (notice != nullptr) {
    throw CallError(Errc::mismatch, label() + " cannot complete, because on another rank its " +
                                        "arguments were wrong: " + notice->sentence + where());
  }
}

void Call::check_entry() {
  if (setting_.aborted) {
    throw CallError(Errc::aborted, label() + ": abort() was called on this communicator" + where());
  }
  const FailureNotice* notice = setting_.mesh.failure_of(setting_.group.id);
  const bool is_message = fingerprint_.op >= transport::Op::send;
  if (notice != nullptr && (is_message || notice->sequence <= fingerprint_.sequence)) {
    throw CallError(notice->code, notice->sentence, -1, true);
  }
}

// ---- Losses. ----

Call::TimePoint Call::noticed(int world_rank) {
  for (const auto& [rank, when] : noticed_) {
    if (rank == world_rank) return when;
  }
  noticed_.emplace_back(world_rank, Clock::now());
  return noticed_.back().second;
}

void Call::check_losses(const Waiting& waiting) {
  const auto& mesh = setting_.mesh;
  if (!waiting.any) {
    for (const int rank : waiting.to_receive) check_waited(rank, mesh.end_of(rank));
  } else {
    // From anybody: only when nobody is left who could send.
    const auto gone = [&](int rank) {
      return rank != mesh.rank() && (mesh.end_of(rank) != nullptr || mesh.loss_of(rank) != nullptr);
    };
    int left = 0, last = -1;
    for (const int rank : waiting.to_receive)
      (gone(rank) || rank == mesh.rank() ? last = rank : ++left);
    if (left == 0 && last >= 0 && gone(last)) check_waited(last, mesh.end_of(last));
  }
  for (const int rank : waiting.to_send) check_waited(rank, mesh.break_of(rank));

  for (const PeerLoss& loss : mesh.losses()) {
    if (left_in_order(loss) || setting_.group.rank_of(loss.rank) < 0) continue;
    const auto settled = noticed(loss.rank) + indirect_grace;
    if (Clock::now() >= settled) throw_lost(loss.rank, loss.cause);
    look_again_ = std::min(look_again_, settled);
  }
}

/// Throws when it is certain that nothing more comes from, or goes to, this rank, and the cause is
/// known or will not become known.
void Call::check_waited(int world_rank, const std::string* closed) {
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  if (loss == nullptr && closed == nullptr) return;
  const auto since = noticed(world_rank);
  const bool cause_may_come = loss == nullptr && setting_.mesh.hears_of_losses();
  const auto settled = since + (cause_may_come ? cause_grace : delivery_grace);
  if (Clock::now() >= settled) throw_lost(world_rank, loss != nullptr ? loss->cause : *closed);
  look_again_ = std::min(look_again_, settled);
}

void Call::throw_lost(int world_rank, const std::string& cause) {
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  std::string sentence =
      label() + ": rank " + std::to_string(rank()) + " lost " + name_of(world_rank);
  if (loss != nullptr && !loss->host.empty()) sentence += " on " + loss->host;
  sentence += ": " + cause;
  // A rank that gave wrong arguments and ended of it was not in this call any more.
  if (const FailureNotice* notice = setting_.mesh.wrong_arguments(setting_.group.id)) {
    sentence += "; before, it was told: " + notice->sentence;
  }
  throw CallError(Errc::peer_lost, sentence + where(), world_rank);
}

/// The call of that number if it is remembered, else the present one.
const Fingerprint& Call::call_number(std::uint64_t sequence) const {
  for (const Fingerprint& past : setting_.past) {
    if (past.sequence == sequence) return past;
  }
  return fingerprint_;
}

void Call::throw_mismatch(const Receive& receive) {
  const auto theirs = fingerprint_of(receive.header);
  const std::string peer = name_of(receive.source);
  std::string sentence;
  if (receive.kind == Kind::message) {
    const auto holds = [](const Fingerprint& call) {
      return std::to_string(call.count) + " " + to_string(call.dtype) +
             (call.count == 1 ? " element" : " elements");
    };
    sentence = "rank " + std::to_string(rank()) + " expects " + holds(receive.expected) + " in " +
               label() + ", but " + peer + " sent " + holds(theirs) + " (tag " +
               std::to_string(receive.header.tag) + ")";
  } else {
    // Theirs may belong to a call that is over here: compare it with that one.
    const Fingerprint& mine = call_number(theirs.sequence);
    sentence = "rank " + std::to_string(rank()) + " is in " + to_string(mine) + ", but " + peer +
               " is in " + to_string(theirs);
    if (theirs == fingerprint_) {
      sentence += " and sent " + std::to_string(receive.header.bytes) + " bytes where " +
                  std::to_string(receive.into.size()) + " were expected: their counts differ";
    } else if (Fingerprint same = theirs;
               same.argument = fingerprint_.argument, same == fingerprint_) {
      sentence += " with another argument (counts, ranks, factor, or custom operation)";
    }
    if (setting_.group.name != "world") sentence += " of '" + setting_.group.name + "'";
  }
  throw CallError(Errc::mismatch, sentence + where(), receive.source);
}

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
  setting_.mesh.inquire(ranks, setting_.group.id);
  const auto until = Clock::now() + answer_grace;
  while (Clock::now() < until && setting_.mesh.answers().size() < ranks.size()) {
    if (ready()) return true;
    check_news(nullptr);
    setting_.mesh.step(until);
  }
  return ready();
}

std::string Call::absent_text(const std::vector<int>& asked, int& first_absent) const {
  std::string text;
  std::size_t named = 0, absent = 0;
  for (const int world_rank : asked) {
    const auto answer = setting_.mesh.answers().find(world_rank);
    std::string doing;
    if (answer != setting_.mesh.answers().end()) {
      const transport::Status& status = answer->second;
      const bool here = status.communicator == setting_.group.id &&
                        status.sequence >= fingerprint_.sequence &&
                        fingerprint_.op < transport::Op::send;
      if (here) continue;
      doing = "is in " + status.sentence;
    } else if (const auto& coming = setting_.mesh.inbox().last_seen(world_rank);
               coming && setting_.mesh.inbox().is_held(world_rank)) {
      doing = "is in " + short_text(fingerprint_of(*coming)) + " of " +
              std::to_string(coming->bytes) + " bytes to this rank, which does not receive them";
    } else if (const PeerLoss* loss = setting_.mesh.loss_of(world_rank)) {
      doing = loss->cause;
    } else if (const auto& seen = setting_.mesh.inbox().last_seen(world_rank)) {
      doing = "in no call now; last seen in " + short_text(fingerprint_of(*seen));
    } else {
      doing = "in no call now; never heard of";
    }
    ++absent;
    if (first_absent < 0) first_absent = world_rank;
    if (++named > named_ranks_max) continue;
    text += (text.empty() ? "" : "; ") + name_of(world_rank) + " (" + doing + ")";
  }
  if (absent > named_ranks_max) {
    text += "; and " + std::to_string(absent - named_ranks_max) + " more";
  }
  return text;
}

void Call::throw_unless_complete(const Waiting& waiting, const std::function<bool()>& ready) {
  const std::string limit = seconds_text(setting_.timeout);
  std::vector<int> asked;
  if (fingerprint_.op < transport::Op::send || waiting.any) {
    asked = others();
  } else {
    asked = waiting.to_receive;
    asked.insert(asked.end(), waiting.to_send.begin(), waiting.to_send.end());
    std::erase(asked, setting_.mesh.rank());
  }
  if (ask_others(asked, ready)) return;
  int blamed = -1;
  const std::string absent = absent_text(asked, blamed);
  std::string sentence = label() + ": rank " + std::to_string(rank()) + " waited " + limit;
  if (!absent.empty()) {
    sentence += "; absent: " + absent;
  } else if (!waiting.to_receive.empty() && !waiting.any) {
    sentence += " for data of " + name_of(waiting.to_receive.front()) +
                "; all ranks are in the call, but it did not end in time";
  } else {
    sentence += "; nothing came";
  }
  throw CallError(Errc::timeout, sentence + where(), blamed);
}

// ---- Words. ----

void Call::tell_failure(const Error& error, Scope scope) {
  auto& mesh = setting_.mesh;
  const auto ranks = others();
  if (ranks.empty()) return;
  FailureNotice notice;
  notice.code = error.errc();
  notice.scope = scope;
  notice.sentence = error.what();
  const Bytes payload = encode(notice);
  transport::Header header =
      make_header(Kind::failure, setting_.group.id, fingerprint_, payload.size());
  // A message belongs to no collective: everything that is not over is concerned.
  if (fingerprint_.op >= transport::Op::send) header.sequence = 0;
  try {
    for (const int rank : ranks) mesh.post_control(rank, header, payload);
    const auto until = Clock::now() + farewell_grace;
    while (!mesh.is_flushed() && Clock::now() < until) mesh.step(until);
  } catch (const Error&) {
    // The agent or the store is gone too; the first error is the one that counts.
  }
}

std::string Call::name_of(int world_rank) const {
  const int here = setting_.group.rank_of(world_rank);
  std::string name = "rank " + std::to_string(here >= 0 ? here : world_rank);
  if (here != world_rank) name += " (rank " + std::to_string(world_rank) + " of the world)";
  return name;
}

std::string Call::label() const {
  std::string text = short_text(fingerprint_);
  if (fingerprint_.op >= transport::Op::send) {
    text += fingerprint_.op == transport::Op::send ? " to " : " from ";
    text += setting_.peer == any_source ? "any rank" : "rank " + std::to_string(setting_.peer);
    text += setting_.tag == any_tag ? " (any tag)" : " (tag " + std::to_string(setting_.tag) + ")";
  }
  if (setting_.group.name != "world") text += " of '" + setting_.group.name + "'";
  return text;
}

/// Options that were made apart from the call know only the header they come from.
std::string Call::where() const {
  const std::string_view file = setting_.site.file;
  if (file.empty() || file.ends_with("dlaunch/communicator.hpp")) return "";
  const auto slash = file.rfind('/');
  const auto name = slash == std::string_view::npos ? file : file.substr(slash + 1);
  return " [" + std::string(name) + ":" + std::to_string(setting_.site.line) + "]";
}

}  // namespace dlaunch
