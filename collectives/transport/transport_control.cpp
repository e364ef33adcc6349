#include "collectives/transport/transport.hpp"
#include "runtime/segment/flight_log.hpp"

#include <algorithm>
#include <cstring>

/// What ranks tell and ask each other beside data.
namespace dlaunch::transport {

void Transport::on_control(int from, const Header& header, BytesView payload) {
  switch (header.kind) {
    case Kind::failure:
      if (auto notice = decode_failure(header, payload)) {
        notice->from = from;
        control_.take_failure(std::move(*notice));
      }
      return;
    case Kind::inquiry:
      return take_inquiry(from, header);
    case Kind::status:
      if (const auto status = decode_status(payload)) {
        control_.take_answer(from, header, *status);
      }
      return;
    case Kind::call:
      control_.take_call(header.communicator, {from, fingerprint_of(header)});
      for (; payload.size() >= sizeof(Header); payload = payload.subspan(sizeof(Header))) {
        Header more;
        std::memcpy(&more, payload.data(), sizeof more);
        if (!is_plausible(more) || more.kind != Kind::call) return;
        control_.take_call(header.communicator, {from, fingerprint_of(more)});
      }
      return;
    case Kind::chain:
      if (auto chain = decode_chain(payload)) control_.take_chain(std::move(*chain));
      return;
    case Kind::collective:
    case Kind::message:
      return;  // Data goes to the inbox.
  }
}

void Transport::take_inquiry(int from, const Header& header) {
  const auto activity = control_.activity(header.communicator);
  Status status{header.communicator, header.sequence, ""};
  switch (static_cast<Question>(header.argument)) {
    case Question::doing:
      if (activity) answer(from, header, *activity);
      return;
    case Question::made:
      status.sentence = call_made(rank_, header.communicator, header.sequence);
      break;
    case Question::argument:
      if (activity && activity->communicator == header.communicator &&
          activity->sequence == header.sequence) {
        status.sentence = activity->argument;
      }
      break;
    case Question::sent:
      status.sentence = sent_from(rank_, header);
      break;
  }
  answer(from, header, status);
}

void Transport::answer(int from, const Header& inquiry, const Status& status) {
  Header header;
  header.kind = Kind::status;
  header.communicator = inquiry.communicator;
  header.sequence = inquiry.sequence;
  header.argument = inquiry.argument;
  Bytes text = encode(status);
  header.bytes = text.size();
  post_control(from, header, std::move(text));
}

// ---- News. ----

const PeerLoss* Transport::loss_of(int rank) const {
  const auto found = std::find_if(losses_.begin(), losses_.end(),
                                  [&](const PeerLoss& loss) { return loss.rank == rank; });
  return found == losses_.end() ? nullptr : &*found;
}

const std::string* Transport::end_of(int rank) const {
  if (const RingReader* ring = rings_ ? rings_->from(rank) : nullptr) {
    return ring->ended() ? &ring->reason() : nullptr;
  }
  const InChannel* channel = ins_.find(rank);
  if (channel != nullptr) return channel->ended() ? &channel->reason() : nullptr;
  return break_of(rank);
}

/// A message that has come and is held tells nothing of what is behind it.
bool Transport::has_left_something(int rank) const {
  if (inbox_.is_stalled(rank)) return false;
  // The end of a process is not written into its rings.
  if (const RingReader* ring = rings_ ? rings_->from(rank) : nullptr) {
    return !ring->ended() && ring->has_news();
  }
  const InChannel* channel = ins_.find(rank);
  return channel != nullptr && !channel->ended();
}

const std::string* Transport::break_of(int rank) const {
  const OutChannel* channel = outs_.find(rank);
  const bool is_broken = channel != nullptr && channel->state() == OutChannel::State::broken;
  return is_broken ? &channel->reason() : nullptr;
}

void Transport::inquire(const std::vector<int>& ranks, Inquiry& inquiry) {
  control_.await(inquiry);
  Header header = inquiry.message;
  header.kind = Kind::inquiry;
  header.communicator = inquiry.communicator;
  header.sequence = inquiry.sequence;
  header.argument = static_cast<std::uint64_t>(inquiry.question);
  bool store_answers = true;
  for (const int rank : ranks) {
    // Without it, who has no connection yet is not asked.
    if (!store_answers && out(rank).state() == OutChannel::State::idle) continue;
    try {
      post_control(rank, header, {});
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      store_answers = false;
    }
  }
}

std::string Transport::call_made(int rank, std::uint64_t communicator,
                                 std::uint64_t sequence) const {
  const int there = segment_ ? segment_->local_of(rank) : -1;
  if (rank != rank_ && there < 0) return "";
  const FlightRing& ring = rank == rank_ ? flight_->ring() : segment_->flight(there);
  const FlightLog log = read_flight(ring);
  const std::uint64_t id = flight_hash(flight_id(communicator));
  const auto call = std::find_if(log.calls.rbegin(), log.calls.rend(), [&](const FlightCall& made) {
    return made.communicator == id && made.sequence == sequence && made.kind == Flight::Kind::call;
  });
  return call == log.calls.rend() ? "" : FlightNames{ring}.full_and_site(*call);
}

std::string Transport::sent_from(int rank, const Header& message) const {
  const int there = segment_ ? segment_->local_of(rank) : -1;
  if (rank != rank_ && there < 0) return "";
  const FlightRing& ring = rank == rank_ ? flight_->ring() : segment_->flight(there);
  const std::uint64_t id = flight_hash(flight_id(message.communicator));
  std::string text;
  for (const FlightCall& call : read_flight(ring).calls) {
    if (call.communicator != id || call.op != static_cast<std::uint8_t>(Op::send) ||
        call.dtype != static_cast<std::uint8_t>(message.dtype) || call.count != message.count ||
        call.place != message.root || call.argument != static_cast<std::uint64_t>(message.tag)) {
      continue;
    }
    const std::string site = "[" + FlightNames{ring}.site(call) + "]";
    if (site == "[]" || text.find(site) != std::string::npos) continue;
    text += (text.empty() ? "" : " or ") + site;
  }
  return text;
}

}  // namespace dlaunch::transport
