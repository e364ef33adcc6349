#include "runtime/store/native/native.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/store/protocol/operations.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace dlaunch::store {
namespace {

/// The first of `all` names, as `listed` takes them.
template <class Name>
struct FirstOf {
  const std::vector<Name>& names;
  std::size_t all;
  std::size_t size() const { return all; }
  const Name& operator[](std::size_t i) const { return names[i]; }
};

std::string sentence(const TimedOut& late) {
  const std::size_t told = names_told(late.missing);
  if (!late.contributors.empty()) {
    return "waiting for " + listed(FirstOf<int>{late.contributors, late.missing}, told,
                                   [](int contributor) { return std::to_string(contributor); });
  }
  return "waiting for " +
         listed(FirstOf<std::string>{late.keys, late.missing}, told, name_in_quotes);
}

}  // namespace

NativeSession::NativeSession(NativeSpaces& spaces, std::uint64_t client, Outbox& out)
    : spaces_(spaces), client_(client), out_(out) {
  spaces_.clients_.emplace(client_, this);
}

NativeSession::~NativeSession() {
  attempt([&] {
    if (!goodbye_ || space_ == nullptr) return;
    space_->carry_out([&] { space_->values.end_leases(session_, space_->effects); });
    space_->forget(session_);
  });
  attempt([&] { leave(); });
  spaces_.clients_.erase(client_);
  const auto own = spaces_.by_session_.find(session_);
  if (own != spaces_.by_session_.end() && own->second == this) spaces_.by_session_.erase(own);
  if (!known_) return;
  attempt([&] {
    if (spaces_.backend_ != nullptr) spaces_.backend_->on_gone(from(), goodbye_);
  });
  attempt([&] { spaces_.host_.on_closed(client_, goodbye_); });
}

void NativeSession::superseded() {
  leave();
  state_ = State::closed;
  known_ = false;
  out_.close();
  if (spaces_.backend_ != nullptr) spaces_.backend_->on_gone(from(), false);
  spaces_.host_.on_closed(client_, true);
}

// ---- Where it sits ----

std::uint64_t NativeSession::epoch() const {
  return space_ == nullptr ? 0 : space_->epoch.value_or(welcome_epoch_);
}

void NativeSession::seat(NativeSpace* space) {
  if (state_ == State::preface || state_ == State::hello) {
    wanted_ = space == nullptr ? no_space : space->id;
  } else if (state_ == State::welcomed && space != space_) {
    sit(space, "the epoch " + std::to_string(epoch()) + " is over");
  }
}

void NativeSession::sit(NativeSpace* space, std::string_view why) {
  if (space_ != nullptr) {
    if (bulk_) refuse(bulk_->request(), Errc::aborted, std::string(why));
    space_->carry_out([&] { space_->values.dismiss(client_, why, space_->effects); });
    leave();
  }
  space_ = space;
  if (space_ != nullptr) space_->attach(client_, *this);
}

void NativeSession::leave() {
  NativeSpace* const space = std::exchange(space_, nullptr);
  replies_ = nullptr;
  bulk_.reset();
  if (space == nullptr) return;
  space->detach(client_);
  if (session_ != 0) space->leave(session_, spaces_.now_);
  spaces_.touch(*space);
}

// ---- Bytes to frames ----

bool NativeSession::feed(BytesView in, Clock::time_point now) {
  now_ = spaces_.now_ = now;
  if (unread_.empty()) {
    const auto used = consume(in);
    if (!used) return false;
    unread_.assign(in.begin() + static_cast<std::ptrdiff_t>(*used), in.end());
    return true;
  }
  if (!in.empty()) cut_off_taken_up();
  const std::size_t before = unread_.size();
  unread_.resize(before + in.size());
  std::copy(in.begin(), in.end(), unread_.begin() + static_cast<std::ptrdiff_t>(before));
  const auto used = consume(BytesView(unread_).subspan(taken_up_));
  if (!used) return false;
  taken_up_ += *used;
  if (taken_up_ == unread_.size()) {
    Bytes().swap(unread_);
    taken_up_ = 0;
  } else if (taken_up_ >= unread_.size() / 2) {  // A short turn takes up little of much.
    cut_off_taken_up();
  }
  return true;
}

void NativeSession::cut_off_taken_up() {
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(taken_up_));
  taken_up_ = 0;
}

void NativeSession::fail() noexcept { out_.fail(); }

std::optional<std::size_t> NativeSession::consume(BytesView in) {
  std::size_t used = 0;
  while (state_ != State::closed && !goodbye_ && !out_.congested()) {
    if (bulk_) {
      go_on_with_bulk();
      continue;
    }
    const BytesView rest = in.subspan(used);
    if (state_ == State::preface) {
      if (!open(rest)) return std::nullopt;
      if (state_ == State::preface) break;
      used += wire::preface_bytes;
      continue;
    }
    if (rest.size() < wire::header_bytes) break;
    const wire::FrameHeader header = wire::decode_header(rest);
    const std::size_t longest =
        state_ == State::hello ? wire::unauthenticated_bytes_max : wire::frame_bytes_max;
    if (header.length > longest) return std::nullopt;
    if (rest.size() - wire::header_bytes < header.length) break;
    if (!dispatch(header, rest.subspan(wire::header_bytes, header.length))) return std::nullopt;
    used += wire::header_bytes + header.length;
  }
  return state_ == State::closed ? in.size() : used;
}

/// Whether what has come so far is the beginning of a preface.
bool NativeSession::open(BytesView preface) {
  Bytes expected;
  wire::encode_preface(expected);
  const std::size_t magic = std::min<std::size_t>(preface.size(), 4);
  if (!std::equal(preface.begin(), preface.begin() + static_cast<std::ptrdiff_t>(magic),
                  expected.begin())) {
    return false;
  }
  const auto version = wire::decode_preface(preface);
  if (!version) return true;
  Bytes& out = out_.buffer();
  out.insert(out.end(), expected.begin(), expected.end());
  state_ = State::hello;
  if (*version != wire::version) {
    refuse(0, Errc::version,
           "this side speaks version " + std::to_string(wire::version) +
               " of the protocol, the other version " + std::to_string(*version) +
               "; use the same dlaunch everywhere");
    spaces_.host_.on_other_version(client_, *version);
    state_ = State::closed;
    out_.close();
  }
  return true;
}

bool NativeSession::dispatch(const wire::FrameHeader& header, BytesView payload) {
  if (state_ == State::hello) return greet(header, payload);
  if (role_ != Role::node) {
    if (std::string no = beyond(role_, header.type); !no.empty()) {
      refuse(header.request, Errc::refused, std::move(no));
      return true;
    }
  }
  const bool for_store = wire::is_store_request(header.type);
  change_ = 0;
  if (space_ == nullptr && (for_store || header.epoch != 0)) {
    refuse(header.request, Errc::refused, "not admitted to a round yet");
    return true;
  }
  if (header.epoch != 0 && header.epoch != epoch()) {
    refuse(header.request, Errc::refused,
           "a message of epoch " + std::to_string(header.epoch) + " came in epoch " +
               std::to_string(epoch()));
    return true;
  }
  if (!for_store) return other(header, payload);
  spaces_.touch(*space_);
  if (wire::is_change(header.type)) {
    if (answered_before(header)) return true;
    if (std::string why = space_->refusal(); !why.empty()) {
      refuse_change(header.request, std::move(why));
      return true;
    }
    change_ = header.request;
  }
  if (spaces_.backend_ != nullptr) {
    return spaces_.backend_->on_request(from(), header, payload, now_);
  }
  return store_request(header, payload);
}

bool NativeSession::greet(const wire::FrameHeader& header, BytesView payload) {
  if (header.type != wire::Type::hello) return false;
  const auto hello = wire::decode<wire::Hello>(payload);
  if (!hello) return false;
  known_ = true;  // If it fails on the way, the host may know of it all the same.
  auto verdict = spaces_.host_.admit(client_, *hello);
  if (const auto* refusal = std::get_if<Host::Refusal>(&verdict)) {
    known_ = false;
    refuse(header.request, refusal->code, refusal->sentence);
    state_ = State::closed;
    out_.close();
    return true;
  }
  const auto& welcome = std::get<wire::Welcome>(verdict);
  welcome_epoch_ = welcome.epoch;
  session_ = hello->session;
  state_ = State::welcomed;
  sit(spaces_.find(wanted_), {});
  if (session_ != 0) {
    NativeSession* before = std::exchange(spaces_.by_session_[session_], this);
    if (before != nullptr) before->superseded();
  }
  send(header.request, welcome);
  return true;
}

bool NativeSession::answered_before(const wire::FrameHeader& header) {
  if (session_ == 0 || header.request == 0) return false;
  if (replies_ == nullptr) replies_ = &space_->replies_of(session_);
  const auto reply = replies_->find(header.request);
  if (!reply) return false;
  if (reply->forgotten) {
    refuse(header.request, Errc::refused,
           "this request was carried out, but its answer was too big to be kept");
    return true;
  }
  wire::encode_frame(out_.buffer(), {0, reply->type, wire::reply, header.request, epoch()},
                     reply->payload);
  return true;
}

// ---- Frames to calls ----

bool NativeSession::store_request(const wire::FrameHeader& header, BytesView payload) {
  // Counted before they are decoded, since four million fit into a frame. A count that cannot fit
  // is garbage.
  const std::size_t keys = BulkRequest::keys_named(header.type, payload);
  if (keys > wire::keys_per_request_max && keys <= payload.size() / sizeof(std::uint32_t)) {
    refuse(header.request, Errc::refused, too_many_keys(keys, wire::keys_per_request_max));
    return true;
  }
  bulk_ = BulkRequest::from(header, payload);
  if (bulk_) return true;
  const Asked asked{space_->values, {client_, header.request}, session_, now_, space_->effects};
  const auto carry_out = [&](const auto& request) { request.carry_out(asked); };
  bool sound = false;
  space_->carry_out([&] { sound = wire::decode_request(header.type, payload, carry_out); });
  return sound;
}

void NativeSession::go_on_with_bulk() {
  const std::uint64_t request = bulk_->request();
  spaces_.touch(*space_);
  if (bulk_->is_change()) {
    change_ = request;
    if (std::string why = space_->refusal(); !why.empty()) {
      bulk_.reset();
      change_ = 0;
      return refuse_change(request, std::move(why));
    }
  }
  std::optional<Answer> over;
  space_->carry_out([&] {
    over = bulk_->go_on({space_->values, {client_, request}, session_, now_, space_->effects});
  });
  if (!over) return;
  const std::unique_ptr<BulkRequest> done = std::move(bulk_);
  if (!std::holds_alternative<FoundMany>(*over)) {
    answer({{client_, request}, *over});
  } else if (request != 0 && fits(request, done->values_bytes() - sizeof(std::uint32_t))) {
    const wire::FrameHeader header{0, wire::Values::type, wire::reply, request, epoch()};
    wire::encode_frame(out_.buffer(), header, done->values());
  }
}

bool NativeSession::other(const wire::FrameHeader& header, BytesView payload) {
  if (wire::party_of(header.type) == wire::Party::host) {
    spaces_.host_.on_message(client_, header, payload);
  } else if (header.type == wire::Type::ping) {
    send(header.request, wire::Done{});
  } else if (header.type == wire::Type::goodbye) {
    goodbye_ = true;
    out_.close();
  } else {
    refuse(header.request, Errc::unsupported,
           "this server knows no message of type " +
               std::to_string(static_cast<unsigned>(header.type)));
  }
  return true;
}

// ---- Answers to frames ----

void NativeSession::pass_on(const wire::FrameHeader& header, BytesView payload, bool remember) {
  if (state_ != State::welcomed || header.request == 0) return;
  wire::encode_frame(out_.buffer(), {0, header.type, header.flags, header.request, epoch()},
                     payload);
  if (remember && replies_ != nullptr) {
    space_->remember(session_, *replies_, header.request, header.type, payload);
  }
}

template <class Message>
void NativeSession::send(std::uint64_t request, const Message& message, std::uint16_t flags) {
  if (request == 0 && Message::type != wire::Type::welcome && Message::type != wire::Type::failed) {
    return;  // Nobody waits for it.
  }
  Bytes& out = out_.buffer();
  const std::size_t at = out.size();
  wire::encode_frame(out, {0, Message::type, flags, request, epoch()}, message);
  // A pop that has waited is answered outside of its own turn, so its answer is remembered by its
  // kind.
  constexpr bool pop = Message::type == wire::Type::popped;
  if (replies_ != nullptr && request != 0 && (request == change_ || pop)) {
    space_->remember(session_, *replies_, request, Message::type,
                     BytesView(out).subspan(at + wire::header_bytes));
  }
}

void NativeSession::refuse(std::uint64_t request, Errc code, std::string sentence) {
  send(request, wire::Failed{code, std::move(sentence)});
}

void NativeSession::refuse_change(std::uint64_t request, std::string why) {
  wire::encode_frame(out_.ahead(), {0, wire::Failed::type, wire::reply, request, epoch()},
                     wire::Failed{Errc::refused, std::move(why)});
}

/// A frame has a limit; an answer that does not fit is refused instead.
bool NativeSession::fits(std::uint64_t request, std::size_t payload_bytes) {
  if (payload_bytes + sizeof(std::uint32_t) <= wire::frame_bytes_max) return true;
  refuse(request, Errc::refused,
         "the answer would have " + std::to_string(payload_bytes) + " bytes, more than the " +
             std::to_string(wire::frame_bytes_max) + " of one message; ask for fewer keys at once");
  return false;
}

void NativeSession::answer(const Effect& effect) {
  const std::uint64_t request = effect.to.request;
  std::visit(wire::Overloaded{
                 [&](const Done&) { send(request, wire::Done{}); },
                 [&](const Number& a) { send(request, wire::Number{a.value}); },
                 [&](const Found& a) {
                   if (a.block) return share(request, wire::Found{}, wire::reply, a.block);
                   send(request, wire::Found{a.value});
                 },
                 [&](const Absent&) { send(request, wire::Absent{}); },
                 [&](const FoundMany& a) {
                   std::size_t size = 0;
                   for (const auto& value : a.values) size += 5 + (value ? value->size() : 0);
                   if (fits(request, size)) send(request, wire::Values{a.values});
                 },
                 [&](const KeyList& a) {
                   std::size_t size = 0;
                   for (const auto& key : a.keys) size += 4 + key.size();
                   if (fits(request, size))
                     send(request, wire::Keys{{a.keys.begin(), a.keys.end()}});
                 },
                 [&](const KeyPage& a) {
                   send(request, wire::Page{a.more, a.keys});
                 },
                 [&](const Compared& a) {
                   send(request, wire::Compared{a.stored, a.current});
                 },
                 [&](const Popped& a) {
                   send(request,
                        wire::Popped{a.length_before,
                                     a.value ? std::optional<BytesView>(*a.value) : std::nullopt});
                 },
                 [&](const Gathered& a) { gathered(request, a); },
                 [&](const Changed& a) {
                   const std::uint16_t flags = effect.last ? wire::reply : wire::reply | wire::more;
                   if (!a.block) return send(request, wire::Changed{a.kind, a.key, a.after}, flags);
                   share(request, wire::Changed{a.kind, a.key, BytesView()}, flags, a.block);
                 },
                 [&](const TimedOut& a) { refuse(request, Errc::timeout, sentence(a)); },
                 [&](const Refused& a) { refuse(request, a.code, a.reason); },
             },
             effect.answer);
}

/// The message has an empty value, its last field, in whose place the block is.
template <class Message>
void NativeSession::share(std::uint64_t request, const Message& message, std::uint16_t flags,
                          const std::shared_ptr<const Bytes>& block) {
  if (request == 0) return;
  const auto size = static_cast<std::uint32_t>(block->size());
  Bytes fields;
  wire::encode(fields, message);
  const BytesView before = BytesView(fields).first(fields.size() - sizeof size);
  wire::FrameHeader header{0, Message::type, flags, request, epoch()};
  header.length = static_cast<std::uint32_t>(before.size() + sizeof size) + size;
  Bytes& out = out_.buffer();
  wire::encode_header(out, header);
  ByteWriter writer(out);
  writer.raw(before);
  writer.integer(size);
  out_.share(block);
}

void NativeSession::gathered(std::uint64_t request, const Gathered& answer) {
  if (request == 0) return;
  Bytes& out = out_.buffer();
  wire::FrameHeader header{0, wire::Type::gathered, wire::reply, request, epoch()};
  const auto count = static_cast<std::uint32_t>(answer.count);
  header.length = static_cast<std::uint32_t>(sizeof count + answer.block->size());
  ByteWriter writer(out);
  wire::encode_header(out, header);
  writer.integer(count);
  if (answer.block->size() <= copied_value_max) {
    writer.raw(*answer.block);
  } else {
    out_.share(answer.block);
  }
}

}  // namespace dlaunch::store
