#include "runtime/store/relay/uplink.hpp"

#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>

namespace dlaunch::store {
namespace {

constexpr std::size_t unsent_bytes_max = 64u << 20;

std::string peer_of(const Uplink::Options& options) {
  if (options.host.empty()) return options.peer_name;
  const bool path = options.host.starts_with(unix_prefix);
  return options.peer_name + " at " + (path ? options.host : host_port(options.host, options.port));
}

void rethrow(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

Uplink::State::State(asio::io_context& context, Options given, Events& listener,
                     std::uint64_t first_request)
    : io(context),
      options(std::move(given)),
      events(&listener),
      resolver(context),
      socket(context),
      timer(context),
      peer(peer_of(options)),
      session({.hello = options.hello,
               .key = options.key,
               .joining = "joining " + peer,
               .peer = peer,
               .silence_max = options.silence_max,
               .unsent_bytes_max = unsent_bytes_max,
               .first_request = first_request}),
      random(static_cast<std::minstd_rand::result_type>(options.hello.session)),
      backoff(options.backoff_min),
      good(Clock::now()) {}

Uplink::Uplink(boost::asio::io_context& io, Options options, Events& events)
    : state_(std::make_shared<State>(io, std::move(options), events)) {}

Uplink::~Uplink() {
  if (!state_->closed) state_->end();
}

void Uplink::start() { asio::co_spawn(state_->io, State::run(state_), rethrow); }

/// A request's number is used once: its asker may forget it later.
void Uplink::move_to(Target target) {
  const std::shared_ptr<State> old = state_;
  Options options;
  options.hello = old->options.hello;
  options.key = old->options.key;
  options.backoff_min = old->options.backoff_min;
  options.backoff_max = old->options.backoff_max;
  options.step_max = old->options.step_max;
  options.host = std::move(target.host);
  options.port = target.port;
  options.connected = std::move(target.connected);
  options.peer_name = std::move(target.peer_name);
  options.silence_max = target.silence_max;
  if (!old->closed) old->end();
  state_ = std::make_shared<State>(old->io, std::move(options), *old->events,
                                   old->session.next_request());
  state_->reconnected = old->reconnected;
  start();
}

bool Uplink::connected() const { return state_->session.open(); }

void Uplink::after_reconnect(std::function<void(bool)> call) {
  state_->reconnected = std::move(call);
}

std::optional<Uplink::Trouble> Uplink::trouble() const {
  if (connected()) return std::nullopt;
  return Trouble{state_->good, state_->last_trouble};
}

Address Uplink::local_address() const {
  return connected() ? dlaunch::local_address(state_->socket.native_handle()) : Address{};
}

std::uint64_t Uplink::request(wire::Type type, std::uint64_t epoch, BytesView payload,
                              Answer answer) {
  const auto number =
      state_->session.request(type, epoch, payload, std::move(answer), Clock::now());
  state_->flush_soon();
  return number;
}

void Uplink::forget(std::uint64_t number) {
  state_->session.forget(number, Clock::now());
  state_->flush_soon();
}

void Uplink::tell(wire::Type type, BytesView payload) {
  state_->session.tell(type, 0, payload);
  state_->flush_soon();
}

void Uplink::close() {
  State& s = *state_;
  if (s.closed) return;
  if (!connected()) return s.end();
  s.session.leave();
  s.closed = true;
  s.serving = false;
  ++s.generation;  // From now on only say_goodbye reads.
  boost::system::error_code ignored;
  s.socket.cancel(ignored);
  s.timer.cancel();
  asio::co_spawn(s.io, State::say_goodbye(state_), rethrow);
}

void Uplink::State::end() {
  closed = true;
  serving = false;
  resolver.cancel();
  session.give_up();
  disconnect();
}

}  // namespace dlaunch::store
