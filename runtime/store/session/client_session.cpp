#include "runtime/store/session/client_session.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {
namespace {

constexpr std::size_t sealed_bytes_max = 64u << 10;  ///< Ciphertext is made in such pieces.
constexpr std::size_t sealed_bytes_per_read = 32u << 10;
constexpr std::size_t kept_buffer_bytes = 1u << 20;
/// A `tick` this late shows that this process stood still: a small part of the longest silence, but
/// at least the delays of a busy machine, and at most a second.
Clock::duration own_stall(Clock::duration silence_max) {
  using namespace std::chrono_literals;
  return std::clamp<Clock::duration>(silence_max / 4, 100ms, 1s);
}

bool is_final(Errc code) {
  switch (code) {
    case Errc::timeout:
    case Errc::peer_lost:
    case Errc::unreachable:
    case Errc::aborted:
      return false;
    case Errc::mismatch:
    case Errc::refused:
    case Errc::misuse:
    case Errc::revoked:
    case Errc::unsupported:
    case Errc::version:
    case Errc::internal:
    case Errc::unauthenticated:
      return true;
  }
  return true;
}

}  // namespace

// ---- The connection ----

void ClientSession::begin(bool sealed, Clock::time_point now) {
  broken_.reset();
  at_ = Connection{};
  at_.heard = now;
  if (!sealed || !options_.key) return greet();
  at_.stage = Stage::proving;
  try {
    at_.tls = connect_tls(options_.hello.job, *options_.key);
  } catch (const Error& error) {
    return fail(error, is_final(error.errc()));
  }
  at_.arriving.resize(sealed_bytes_per_read);
  prove({});
}

void ClientSession::fail(Error error, bool final) {
  if (broken_) return;
  at_.stage = Stage::apart;
  Bytes().swap(at_.unsent);
  at_.sent = at_.replayed = 0;
  broken_.emplace(Break{std::move(error), final});
}

std::span<std::byte> ClientSession::room() {
  return at_.tls ? std::span(at_.arriving) : at_.reader.room();
}

void ClientSession::received(std::size_t size, std::vector<unique_fd> descriptors,
                             Clock::time_point now) {
  if (at_.stage == Stage::apart) return;
  at_.heard = now;
  at_.pinged = at_.silent = false;
  if (at_.tls) {
    prove(BytesView(at_.arriving).first(size));
  } else {
    at_.reader.arrived(size, std::move(descriptors));
  }
}

/// The TLS handshake, and what comes after it.
void ClientSession::prove(BytesView arrived) {
  TlsChannel& tls = *at_.tls;
  const auto fed = at_.reader.append([&](Bytes& to) { return tls.feed(arrived, to, at_.sealed); });
  if (fed == TlsChannel::Fed::broken) {
    const Error error =
        error_of(tls, at_.stage == Stage::proving ? options_.joining : "lost " + options_.peer);
    return fail(error, at_.stage == Stage::proving && is_final(error.errc()));
  }
  if (at_.stage == Stage::proving && tls.established()) greet();
  at_.over = fed == TlsChannel::Fed::ended;
}

void ClientSession::greet() {
  at_.stage = Stage::greeting;
  wire::encode_preface(at_.unsent);
  wire::encode_frame(at_.unsent, {0, wire::Type::hello, 0, 0, 0}, options_.hello);
}

void ClientSession::ended(const std::string& error) {
  const std::string why = error.empty() ? error : ": " + error;
  const std::string closed = options_.joining + ": it closed the connection";
  switch (at_.stage) {
    case Stage::proving:
      return fail(
          Error(Errc::unreachable,
                closed +
                    (at_.silent ? " when asked to speak TLS; is it a rendezvous with a secret?"
                                : " in the middle of the TLS handshake") +
                    why));
    case Stage::greeting:
      return fail(Error(Errc::unreachable,
                        closed + (error.empty() ? " without an answer; is it one, and is the port "
                                                  "right?"
                                                : why)));
    case Stage::open:
    case Stage::leaving:
      return fail(Error(Errc::peer_lost, "lost " + options_.peer + ": " +
                                             (error.empty() ? "it closed the connection" : error)));
    case Stage::apart:
      return;
  }
}

// ---- What came ----

std::optional<ClientSession::Event> ClientSession::next(Clock::time_point now) {
  auto event = take(now);
  if (!event && at_.over) ended({});
  return event;
}

std::optional<ClientSession::Event> ClientSession::take(Clock::time_point now) {
  try {
    if (at_.stage == Stage::greeting) return take_welcome();
    while (at_.stage == Stage::open) {
      auto frame = at_.reader.next();
      if (!frame) return std::nullopt;
      if ((frame->header.flags & wire::reply) == 0) {
        return Event{
            Event::Kind::push, frame->header, frame->payload, std::move(frame->descriptors), {}};
      }
      if (auto event = take_answer(*std::move(frame), now)) return event;
    }
    while (at_.stage == Stage::leaving && at_.reader.next()) {
    }
  } catch (const Error& error) {
    fail(Error(at_.stage == Stage::greeting ? Errc::unreachable : Errc::peer_lost,
               (at_.stage == Stage::greeting ? options_.joining : "lost " + options_.peer) + ": " +
                   error.what()));
  }
  return std::nullopt;
}

/// Preface and WELCOME.
std::optional<ClientSession::Event> ClientSession::take_welcome() {
  if (!at_.preface) {
    const auto version = at_.reader.preface();
    if (!version) return std::nullopt;
    if (*version != wire::version) {
      fail(Error(Errc::version,
                 options_.joining + ": it speaks version " + std::to_string(*version) +
                     " of the protocol, this side version " + std::to_string(wire::version) +
                     "; use the same dlaunch everywhere"),
           true);
      return std::nullopt;
    }
    at_.preface = true;
  }
  const auto frame = at_.reader.next();
  if (!frame) return std::nullopt;
  if (frame->header.type == wire::Type::welcome) {
    if (auto welcome = wire::decode<wire::Welcome>(frame->payload)) {
      welcome_ = *std::move(welcome);
      at_.stage = Stage::open;
      return Event{Event::Kind::welcome, frame->header, frame->payload, {}, {}};
    }
  } else if (frame->header.type == wire::Type::failed) {
    if (const auto failure = wire::decode<wire::Failed>(frame->payload)) {
      fail(Error(failure->code, options_.joining + ": refused: " + failure->sentence),
           is_final(failure->code));
      return std::nullopt;
    }
  }
  fail(Error(Errc::unreachable, options_.joining + ": it answers HELLO with a message of type " +
                                    std::to_string(static_cast<unsigned>(frame->header.type)) +
                                    ", which makes no sense"));
  return std::nullopt;
}

std::optional<ClientSession::Event> ClientSession::take_answer(FrameReader::Frame frame,
                                                               Clock::time_point now) {
  const auto found = unanswered_.find(frame.header.request);
  // The request was forgotten meanwhile, or is a ping.
  if (found == unanswered_.end()) return std::nullopt;
  Event event{Event::Kind::answer, frame.header, frame.payload, {}, {}};
  if ((frame.header.flags & wire::more) != 0 || found->second.stands) {
    event.answer = found->second.answer;
    return event;
  }
  count(found->second.type, -1);
  event.answer = std::move(found->second.answer);
  unanswered_.erase(found);
  release_held(now);
  return event;
}

// ---- Time ----

Clock::time_point ClientSession::due() const {
  if (!open() || options_.silence_max == Clock::duration::max()) return Clock::time_point::max();
  return at_.heard + (at_.pinged ? options_.silence_max : options_.silence_max / 3);
}

void ClientSession::tick(Clock::time_point now) {
  const auto since = due();
  if (now < since) return;
  // We stood still, and the peer's messages may still be unread, so it is pinged again.
  const bool stood_still = now - since > own_stall(options_.silence_max);
  if (stood_still) at_.heard = now;
  if (at_.pinged && !stood_still) {
    return fail(Error(Errc::peer_lost, "lost " + options_.peer + ": nothing came from it for " +
                                           duration_text(options_.silence_max)));
  }
  at_.pinged = true;
  queue({0, wire::Type::ping, 0, next_request_++, 0}, {});
}

// ---- What is to be sent ----

BytesView ClientSession::unsent() {
  if (!at_.tls) return BytesView(at_.unsent).subspan(at_.sent);
  if (at_.sealed_sent == at_.sealed.size() && at_.sent < at_.unsent.size() &&
      at_.tls->established()) {
    at_.sealed.clear();
    at_.sealed_sent = 0;
    const BytesView rest = BytesView(at_.unsent).subspan(at_.sent);
    const BytesView part = rest.first(std::min(rest.size(), sealed_bytes_max));
    at_.sent += part.size();
    if (!at_.tls->seal(part, at_.sealed)) fail(error_of(*at_.tls, "lost " + options_.peer));
  }
  return BytesView(at_.sealed).subspan(at_.sealed_sent);
}

void ClientSession::sent(std::size_t size) {
  (at_.tls ? at_.sealed_sent : at_.sent) += size;
  if (at_.sent == at_.unsent.size()) {
    at_.sent = at_.replayed = 0;
    at_.unsent.clear();
    if (at_.unsent.capacity() > kept_buffer_bytes) Bytes().swap(at_.unsent);
  } else if (at_.sent > kept_buffer_bytes && at_.sent > at_.unsent.size() / 2) {
    at_.unsent.erase(at_.unsent.begin(),
                     at_.unsent.begin() + static_cast<std::ptrdiff_t>(at_.sent));
    at_.sent = 0;
  }
}

void ClientSession::queue(const wire::FrameHeader& header, BytesView payload) {
  wire::encode_frame(at_.unsent, header, payload);
  check_unsent();
}

void ClientSession::check_unsent() {
  const std::size_t waiting = at_.unsent.size() - at_.sent;
  if (waiting <= at_.replayed || waiting - at_.replayed <= options_.unsent_bytes_max) return;
  fail(Error(Errc::peer_lost, "lost " + options_.peer + ": it does not read; " +
                                  std::to_string(waiting >> 20) + " MiB wait to be sent"));
}

void ClientSession::tell(wire::Type type, std::uint64_t epoch, BytesView payload) {
  if (open()) queue({0, type, 0, 0, epoch}, payload);
}

void ClientSession::leave() {
  if (!open()) return give_up();
  tell(wire::Type::goodbye, 0, {});
  give_up();
  at_.stage = Stage::leaving;
}

void ClientSession::give_up() {
  at_.stage = Stage::apart;
  unanswered_.clear();
  held_.clear();
  held_pops_.clear();
}

}  // namespace dlaunch::store
