#include "collectives/call/call.hpp"

#include "collectives/transport/message/fault_point.hpp"
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

/// A closed connection says that a peer is gone, the agent says why; its word is waited for.
constexpr auto cause_grace = 150ms;
/// The same of a rank on another node: that node may be gone with its agent, of which the others
/// hear when its connection has not come back for 2 s.
constexpr auto node_cause_grace = 3s;
/// News of an end may overtake what the rank had sent before: its data, or why it gave up.
constexpr auto delivery_grace = 20ms;
/// Without an agent only other ranks can say why a rank gave up, and the one that does may have
/// many to tell and no processor.
constexpr auto hearsay_grace = 500ms;
/// A rank that this one does not wait for died: a call whose data is all on its way may still end
/// well.
constexpr auto indirect_grace = 300ms;
/// Longer than a call takes that nobody keeps waiting.
constexpr auto tell_after = 400ms;
/// The first connection of a rank that left in good order may have met a network that loses.
constexpr auto connection_grace = 500ms;
/// A rank that has left may have done all its part in what a device does.
constexpr auto device_grace = 1s;

/// Takes back what is still posted, however the call ends. Under the mesh's lock.
class Posted {
 public:
  Posted(transport::Links& mesh, Receive* receive, Outgoing* outgoing)
      : mesh_(mesh), receive_(receive), outgoing_(outgoing) {
    if (receive_ != nullptr) mesh_.post(*receive_);
    if (outgoing_ != nullptr) mesh_.post(*outgoing_);
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;
  ~Posted() {
    if (receive_ != nullptr && receive_->pending()) mesh_.withdraw(*receive_);
    if (outgoing_ != nullptr && outgoing_->pending()) mesh_.withdraw(*outgoing_);
  }

 private:
  transport::Links& mesh_;
  Receive* receive_;
  Outgoing* outgoing_;
};

}  // namespace

Call::TimePoint Call::deadline() const {
  if (!waits().deadline) waits().deadline = deadline_after(setting_.timeout);
  return *waits().deadline;
}

Flight::Call Call::recorded() const {
  if (!transport::is_message(fingerprint_.op)) return fingerprint_.record();
  return record_of(fingerprint_, setting_.peer, setting_.tag);
}

transport::UnderWay Call::activity() const {
  const Waiting* waiting = waits().current;
  const bool for_one = waiting != nullptr && !waiting->to_receive().empty() && !waiting->any();
  return {context().doing(for_one ? waiting->to_receive().front() : -1), argument_text()};
}

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
  transport::at_step();
  Outgoing outgoing = make_outgoing(to, data);
  const auto lock = setting_.mesh.lock();
  if (setting_.mesh.send_now(outgoing)) return;
  const Posted posted(setting_.mesh, nullptr, &outgoing);
  wait_posted(nullptr, &outgoing);
}

void Call::recv(int from, std::span<std::byte> data) {
  transport::at_step();
  Receive receive = make_receive(from, data);
  const auto lock = setting_.mesh.lock();
  if (setting_.mesh.receive_now(receive)) return;
  const Posted posted(setting_.mesh, &receive, nullptr);
  wait_posted(&receive, nullptr);
}

void Call::exchange(int to, BytesView out, int from, std::span<std::byte> in) {
  transport::at_step();
  Outgoing outgoing = make_outgoing(to, out);
  Receive receive = make_receive(from, in);
  const auto lock = setting_.mesh.lock();
  const bool sent = setting_.mesh.send_now(outgoing);
  const Posted sending(setting_.mesh, nullptr, sent ? nullptr : &outgoing);
  const bool is_out = sent || outgoing.state == Outgoing::State::done;
  if (is_out && setting_.mesh.receive_now(receive)) return;
  const Posted receiving(setting_.mesh, &receive, nullptr);
  wait_posted(&receive, is_out ? nullptr : &outgoing);
}

// ---- Messages. ----

Outgoing Call::make_message(int to, int tag, BytesView data) const {
  Outgoing outgoing;
  outgoing.to = setting_.group.world_rank(to);
  outgoing.header = make_header(Kind::message, setting_.group.id, fingerprint_, data.size(), tag);
  outgoing.payload = data;
  return outgoing;
}

Receive Call::make_message_receive(int from, int tag, std::span<std::byte> into) const {
  Receive receive;
  receive.kind = Kind::message;
  receive.communicator = setting_.group.id;
  receive.from = from == any_source ? any_source : setting_.group.world_rank(from);
  receive.sources = setting_.group.world_ranks;
  receive.tag = tag;
  receive.expected = fingerprint_;
  receive.into = into;
  return receive;
}

void Call::send_message(int to, int tag, BytesView data) {
  transport::at_step();
  Outgoing outgoing = make_message(to, tag, data);
  const auto lock = setting_.mesh.lock();
  const Posted posted(setting_.mesh, nullptr, &outgoing);
  wait_posted(nullptr, &outgoing);
}

std::pair<int, transport::Header> Call::receive_message(int from, int tag,
                                                        std::span<std::byte> into) {
  transport::at_step();
  Receive receive = make_message_receive(from, tag, into);
  const auto lock = setting_.mesh.lock();
  const Posted posted(setting_.mesh, &receive, nullptr);
  wait_posted(&receive, nullptr);
  return {receive.source, receive.header};
}

// ---- Waiting. ----

void Call::wait(Receive* receive, Outgoing* outgoing) {
  const auto lock = setting_.mesh.lock();
  wait_posted(receive, outgoing);
}

std::span<const int> Call::Waiting::to_receive() const {
  if (rank) return {&*rank, 1};
  if (receive == nullptr) return ranks;
  if (receive->state == Receive::State::done) return {};
  if (receive->state == Receive::State::filling) return {&receive->source, 1};
  return receive->from == any_source ? receive->sources : std::span(&receive->from, 1);
}

bool Call::Waiting::any() const {
  if (receive == nullptr) return !ranks.empty();
  return receive->from == any_source && receive->state == Receive::State::waiting;
}

std::span<const int> Call::Waiting::to_send() const {
  if (outgoing == nullptr || outgoing->state == Outgoing::State::done) return {};
  return {&outgoing->to, 1};
}

void Call::wait_posted(Receive* receive, Outgoing* outgoing) {
  wait_loop({.receive = receive, .outgoing = outgoing}, [&] {
    return (receive == nullptr || receive->state == Receive::State::done) &&
           (outgoing == nullptr || outgoing->state == Outgoing::State::done);
  });
}

void Call::wait_until(const std::function<bool()>& ready, int from) {
  const auto lock = setting_.mesh.lock();
  Waiting waiting;
  if (from == any_source) {
    waiting.ranks = setting_.group.world_ranks;
  } else {
    waiting.rank = setting_.group.world_rank(from);
  }
  wait_loop(waiting, ready);
}

void Call::look_until(const std::function<bool()>& ready, int from, bool from_it_alone) {
  const auto lock = setting_.mesh.lock();
  wait_loop({.rank = setting_.group.world_rank(from), .in_memory = from_it_alone}, ready,
            look_interval);
}

void Call::wait_loop(const Waiting& waiting, const std::function<bool()>& ready,
                     Clock::duration interval) {
  if (ready()) return;
  const Current current(waits().current, waiting);
  const transport::Caller caller(setting_.mesh.progress_lock());
  const Busy busy(*this);
  const auto whom = waiting.to_receive().empty() ? waiting.to_send() : waiting.to_receive();
  const Flight::Waiting seen(setting_.flight, recorded(),
                             waiting.any() || whom.empty() ? -1 : whom.front());
  const auto until = deadline();
  bool tells = is_counted(fingerprint_.op) && !waiting.any() && !waiting.all;
  const auto long_at = Clock::now() + tell_after;
  const auto tell_at = tells ? long_at : TimePoint::max();
  const auto look_at_strays = nodes_ != nullptr ? TimePoint::min() : tell_at;
  const bool may_be_blocked =
      waiting.in_shm_group || waiting.in_memory || waiting.receive != nullptr;
  waits().chains = {
      .turn = setting_.mesh.control().next_wait(), .next_own = long_at, .pause = tell_after / 4};
  do {
    check_news(waiting.receive);
    waits().look_again = TimePoint::max();
    check_losses(waiting);
    const auto now = Clock::now();
    if (tells && now >= tell_at) {
      tell_call(waiting);
      tells = false;
    }
    if (tells) waits().look_again = std::min(waits().look_again, tell_at);
    if (now >= look_at_strays) check_strays(now);
    if (may_be_blocked && now >= long_at) check_chains(waiting, now);
    if (may_be_blocked && now < long_at) {
      waits().look_again = std::min(waits().look_again, long_at);
    }
    if (now >= until) return throw_unless_complete(waiting, ready);
    if (interval < until - now) waits().look_again = std::min(waits().look_again, now + interval);
    const auto from = waiting.to_receive();
    if (from.size() == 1 && !waiting.has_spun && setting_.mesh.look_for(from.front())) continue;
    setting_.mesh.step(std::min(until, waits().look_again), !waiting.has_spun);
  } while (!ready());
}

// ---- News. ----

void Call::check_news(const Receive* receive) {
  if (receive != nullptr && receive->state == Receive::State::mismatched) throw_mismatch(*receive);
  check_told();
  if (setting_.history != nullptr &&
      (setting_.mesh.control().has_calls() || setting_.history->has_unlike())) {
    check_device_messages();
  }
  if (transport::is_message(fingerprint_.op) || tolerant_) return;
  if (is_counted(fingerprint_.op) && setting_.mesh.control().has_calls()) check_calls();
  const FailureNotice* notice =
      setting_.mesh.control().failure_of(setting_.group.id, fingerprint_.sequence);
  if (notice == nullptr) notice = wrong_on_device();
  if (notice != nullptr) {
    throw CallError(Errc::mismatch,
                    label() + where() + " cannot complete, because on another rank its " +
                        "arguments were wrong: " + notice->sentence,
                    claim_of(*notice));
  }
}

void Call::check_known() {
  const auto lock = setting_.mesh.lock();
  check_told();
}

void Call::check_told() {
  if (setting_.aborted) {
    throw CallError(Errc::aborted, label() + where() + ": " + setting_.aborted.text(rank()));
  }
  const FailureNotice* notice = setting_.mesh.control().failure_of(setting_.group.id);
  const bool is_message = transport::is_message(fingerprint_.op);
  if (notice != nullptr && (is_message || notice->sequence <= fingerprint_.sequence)) {
    throw_told(*notice);
  }
}

void Call::throw_told(const FailureNotice& notice) {
  throw CallError(notice.code, told_text(notice), claim_of(notice), true);
}

// ---- Losses. ----

Call::TimePoint Call::noticed(int world_rank) {
  for (const auto& [rank, when] : waits().noticed) {
    if (rank == world_rank) return when;
  }
  waits().noticed.emplace_back(world_rank, Clock::now());
  return waits().noticed.back().second;
}

/// A rank that left in good order may have done all its part: those who wait for it notice.
bool Call::is_orderly(const PeerLoss& loss) { return loss.left; }

void Call::check_losses(const Waiting& waiting) {
  const auto& mesh = setting_.mesh;
  if (waiting.all) check_left();
  if (!waiting.any()) {
    for (const int rank : waiting.to_receive()) check_source(rank, waiting);
  } else {
    // From anybody: only when nobody is left who could send.
    int gone = -1;
    for (const int rank : waiting.to_receive()) {
      if (rank == mesh.rank()) continue;
      gone = mesh.is_gone(rank) ? rank : -1;
      if (gone < 0) break;
    }
    if (gone >= 0) check_waited(gone, mesh.end_of(gone));
  }
  for (const int rank : waiting.to_send()) check_waited(rank, mesh.break_of(rank));

  // Ranks that were given up with their node may still do their part, and are to be missed all the
  // same: by the collectives that come later, however quick they are.
  const bool is_collective = !transport::is_message(fingerprint_.op);
  for (std::size_t i = 0; i < mesh.losses().size(); ++i) {
    const PeerLoss& loss = mesh.losses()[i];
    if (is_orderly(loss) || setting_.group.rank_of(loss.rank) < 0) continue;
    const auto since = is_collective ? mesh.losses_heard()[i] : noticed(loss.rank);
    const auto settled = since + indirect_grace;
    if (Clock::now() >= settled) throw_lost(loss.rank, loss.cause);
    waits().look_again = std::min(waits().look_again, settled);
  }
}

/// Throws when a rank, which nobody waits for in particular, can take no more part in the call.
void Call::check_left() {
  for (const int rank : setting_.group.world_ranks) {
    const std::string* closed = rank == setting_.mesh.rank() ? nullptr : setting_.mesh.end_of(rank);
    if (closed == nullptr) continue;
    const auto settled = noticed(rank) + device_grace;
    if (Clock::now() >= settled) throw_lost(rank, *closed);
    waits().look_again = std::min(waits().look_again, settled);
  }
}

/// Why nothing more comes from this rank by the way the call goes; null if more may come.
const std::string* Call::end_of(int world_rank, const Waiting& waiting) const {
  static const std::string left = "it destroyed its communicator";
  if (!waiting.in_shm_group) return setting_.mesh.end_of(world_rank);
  const int rank = setting_.group.rank_of(world_rank);
  const int member = shm_ != nullptr ? rank : nodes_->layout().index_of(rank);
  return shm_here()->has_left(member) ? &left : nullptr;
}

/// On another node, and watched over by another agent than this one's.
bool Call::is_elsewhere(int world_rank) const {
  const WorldInfo& info = setting_.mesh.world().info();
  const int place = world_rank - (info.rank - info.local_rank);
  return info.node_count > 1 && (place < 0 || place >= info.local_size);
}

/// A message sent before a rank left in good order may still be on its way when its end is known.
void Call::check_source(int world_rank, const Waiting& waiting) {
  const std::string* closed = end_of(world_rank, waiting);
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  const bool may_come = closed == nullptr && loss != nullptr && is_orderly(*loss) &&
                        setting_.mesh.has_left_something(world_rank);
  if (!may_come) check_waited(world_rank, closed);
}

/// Throws when it is certain that nothing more comes from, or goes to, this rank, and the cause is
/// known or will not become known.
void Call::check_waited(int world_rank, const std::string* closed) {
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  if (loss == nullptr && closed == nullptr) return;
  const auto since = noticed(world_rank);
  const bool cause_may_come = loss == nullptr && setting_.mesh.hears_of_losses();
  const bool is_elsewhere = this->is_elsewhere(world_rank);
  const bool may_connect = loss != nullptr && is_orderly(*loss) && is_elsewhere &&
                           !setting_.mesh.inbox().last_seen(world_rank);
  const auto grace = may_connect                        ? Clock::duration(connection_grace)
                     : !setting_.mesh.hears_of_losses() ? Clock::duration(hearsay_grace)
                     : !cause_may_come                  ? Clock::duration(delivery_grace)
                     : is_elsewhere                     ? Clock::duration(node_cause_grace)
                                                        : Clock::duration(cause_grace);
  const auto settled = since + grace;
  const bool is_settled = Clock::now() >= settled;
  // The others may have given up in a call that is still to come here, and left: that is why.
  const FailureNotice* told = setting_.mesh.control().failure_of(setting_.group.id);
  if (told != nullptr && told->code != Errc::peer_lost && (closed != nullptr || is_settled)) {
    throw_told(*told);
  }
  if (is_settled) throw_gone(world_rank, closed);
  waits().look_again = std::min(waits().look_again, settled);
}

void Call::throw_lost(int world_rank, const std::string& cause) {
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  std::string sentence =
      full_label() + ": rank " + std::to_string(rank()) + " lost " + name_of(world_rank);
  if (loss != nullptr && !loss->host.empty()) sentence += " on " + loss->host;
  throw CallError(Errc::peer_lost, sentence + ": " + cause + where() + refused_text(),
                  {.fault = Fault::lost, .ranks = {world_rank}});
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
    const std::string from = sent_from(receive);
    sentence = "rank " + std::to_string(rank()) + " expects " + holds(receive.expected) + " in " +
               label() + where() + ", but " + peer + " sent " + holds(theirs) + " (tag " +
               std::to_string(receive.header.tag) + ")" + (from.empty() ? "" : " " + from);
  } else {
    sentence = disagreement(theirs, receive.source);
    if (theirs == fingerprint_) {
      sentence += counts_text(receive.header.bytes, receive.into.size());
    }
  }
  if (receive.kind == Kind::message) {
    throw_disagreement(sentence, disagreed_with(receive.source, std::nullopt));
  }
  throw_disagreement(sentence, disagreed_with(receive.source, theirs), theirs.sequence);
}

}  // namespace dlaunch
