#include "runtime/store/c10d/c10d_session.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace dlaunch::c10d {

namespace {

using store::Caller;
using store::Effect;

/// The limit of replies held behind a wait: more than any client has in flight.
constexpr std::size_t held_bytes_max = 2 * value_bytes_max;
/// A larger buffer is freed, not kept for the life of the connection.
constexpr std::size_t kept_capacity_max = 64u << 10;
/// Pending waits of one connection; PyTorch's clients have one at a time.
constexpr std::size_t waits_max = 1024;
/// The most keys of all pending waits together: eight times those of one.
constexpr std::size_t awaited_keys_max = 8 * keys_per_request_max;

constexpr std::uint8_t ready = 0;
constexpr std::uint8_t not_ready = 1;
constexpr std::uint8_t wait_cancelled = 1;
constexpr std::uint8_t watch_registered = 3;

/// A request's number carries its operation, so that an answer needs no look-up.
Caller caller(std::uint64_t client, std::uint64_t number, Op op) {
  return {client, number << 8 | static_cast<std::uint64_t>(op)};
}

Op op_of(const Caller& to) { return static_cast<Op>(to.request & 0xFF); }

template <class T>
void put(Bytes& out, T value) {
  ByteWriter(out).integer(value);
}

void put_text(Bytes& out, BytesView text) {
  put(out, std::uint64_t{text.size()});
  ByteWriter(out).raw(text);
}

std::size_t size_of(const store::FoundMany& found) {
  std::size_t size = 0;
  for (const auto& value : found.values) {
    size += sizeof(std::uint64_t) + (value ? value->size() : 0);
  }
  return size;
}

std::string too_much_held() {
  return "answers of more than " + std::to_string(held_bytes_max) +
         " bytes that have to wait for that of an earlier request, which is the limit";
}

std::string sentence_of(const Decoder::Objection& objection) {
  using To = Decoder::Objection::To;
  const auto limit = [&](std::size_t most) {
    return " of " + std::to_string(objection.size) + " bytes; the limit is " + std::to_string(most);
  };
  switch (objection.to) {
    case To::operation:
      return "there is no operation " + std::to_string(objection.size) +
             " in the protocol of PyTorch's that dlaunch knows";
    case To::key:
      return "a key" + limit(key_bytes_max);
    case To::value:
      return "a value for " + name_in_quotes(objection.key) + limit(value_bytes_max);
    case To::keys:
      return std::to_string(objection.size) + " keys in one request; the limit is " +
             std::to_string(keys_per_request_max);
    case To::request:
      return "a request" + limit(request_bytes_max);
  }
  return {};
}

void put_texts(Bytes& out, const store::FoundMany& found) {
  for (const auto& value : found.values) put_text(out, value.value_or(BytesView{}));
}

void put_list(Bytes& out, const store::KeyList& list) {
  put(out, static_cast<std::int64_t>(list.keys.size()));
  for (const auto& key : list.keys) put_text(out, as_bytes(key));
}

void put_popped(Bytes& out, const store::Popped& popped) {
  put(out, popped.length_before);
  if (popped.value) put_text(out, *popped.value);
}

void put_change(Bytes& out, const store::Changed& change) {
  // Without default or return below, the compiler finds a kind that has no number.
  const auto code = [](KeyChange::Kind kind) -> std::uint8_t {
    switch (kind) {
      case KeyChange::Kind::updated:
        return 0;
      case KeyChange::Kind::created:
        return 1;
      case KeyChange::Kind::deleted:
        break;
    }
    return 2;
  };
  put(out, code(change.kind));
  put_text(out, as_bytes(change.key));
  put_text(out, change.before.value_or(BytesView{}));
  put_text(out, change.after.value_or(BytesView{}));
}

}  // namespace

Namespace::Namespace(store::Limits limits)
    : store::Namespace([&limits] {
        limits.value_bytes = std::max(limits.value_bytes, value_bytes_max);
        limits.listed_keys = limits.keys;  // Its protocol has no pages.
        limits.listed_bytes = 64u << 20;
        return limits;
      }()) {}

std::unique_ptr<store::Session> Namespace::open(std::uint64_t client, store::Outbox& out) {
  return std::make_unique<Session>(client, *this, out);
}

Session::Session(std::uint64_t client, Namespace& shared, store::Outbox& out)
    : client_(client), shared_(shared), out_(out) {
  shared_.attach(client_, *this);
  shared_.open_.emplace(client_, this);
}

Session::~Session() {
  drop_waits();
  shared_.open_.erase(client_);
  shared_.detach(client_);
}

bool Session::feed(BytesView in, Clock::time_point now) try {
  if (closed_) return true;
  now_ = now;
  // The common case, whole requests only, is served out of the server's own buffer.
  if (!kept_.empty()) {
    const std::size_t before = kept_.size();
    kept_.resize(before + in.size());
    std::copy(in.begin(), in.end(), kept_.begin() + static_cast<std::ptrdiff_t>(before));
    in = kept_;
  }
  const auto consumed = consume(in);
  if (!consumed) return false;
  if (closed_) {
    kept_ = {};
  } else if (kept_.empty()) {
    const auto rest = in.subspan(*consumed);
    kept_.assign(rest.begin(), rest.end());
  } else {
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(*consumed));
    if (kept_.empty() && kept_.capacity() > kept_capacity_max) kept_ = {};
  }
  return true;
} catch (...) {
  shared_.abandon();
  throw;
}

/// Serves all requests that are complete and tells their size; nullopt where the bytes are none.
std::optional<std::size_t> Session::consume(BytesView unread) {
  if (!decoder_) {
    const auto dialect = detect(unread);
    if (!dialect) return 0;
    dialect_ = *dialect;
    decoder_.emplace(dialect_);
  }
  std::size_t consumed = 0;
  while (!closed_ && !out_.congested()) {
    if (answering_) {
      answer_more();
      continue;
    }
    Request request;
    const auto decoded = decoder_->next(unread.subspan(consumed), request);
    if (decoded.status == Decoder::Status::invalid) {
      // A stranger that has not sent a valid request yet is not reported.
      if (next_request_ > 0) refuse(sentence_of(decoder_->objection()));
      return std::nullopt;
    }
    if (decoded.status == Decoder::Status::incomplete) break;
    serve(request);
    consumed += decoded.size;
  }
  return consumed;
}

void Session::refuse(const std::string& why) {
  if (std::exchange(closed_, true)) return;
  out_.close();
  if (shared_.hear_refusal) shared_.hear_refusal(client_, why);
}

void Session::serve(const Request& request) {
  // A client of dialect A that sends a new request has given up its wait, whose answer it would
  // take for that of the new request.
  if (dialect_ == Dialect::a) drop_waits();
  const auto by = caller(client_, next_request_++, request.op);
  auto& values = shared_.values;
  auto& effects = shared_.effects;
  switch (request.op) {
    case Op::validate:
      if (request.number != magic) refuse("a greeting that is not PyTorch's");
      return;
    case Op::cancel_wait:
      cancel_waits();
      return;
    case Op::ping:
      put(replies(), static_cast<std::uint32_t>(request.number));
      break;
    case Op::set:
      values.set(by, request.key, request.value, effects);
      break;
    case Op::compare_set:
      expected_ = request.value;
      values.compare_set(by, request.key, request.value, request.desired, effects, true);
      break;
    case Op::get:
      values.get(by, request.key, effects);
      break;
    case Op::add:
      values.add(by, request.key, request.number, effects);
      break;
    case Op::check:
      values.check(by, request.keys, effects);
      break;
    case Op::wait:
      wait(by, request);
      break;
    case Op::count:
      values.count(by, effects);
      break;
    case Op::watch:
      put(replies(), watch_registered);
      values.watch(by, request.key, effects);
      break;
    case Op::erase:
      values.erase(by, request.key, effects);
      break;
    case Op::append:
      values.append(by, request.key, request.value, effects);
      break;
    case Op::multi_get:
      multi_get(by, request);
      break;
    case Op::multi_set:
      values.multi_set(by, request.keys, request.values, effects);
      break;
    case Op::push:
      values.push(by, request.key, request.value, effects);
      break;
    case Op::pop:
      values.try_pop(by, request.key, effects);
      break;
    case Op::queue_size:
      values.queue_size(by, request.key, effects);
      break;
    case Op::list:
      values.list(by, {}, effects);
      break;
    case Op::barrier:
      arrive(by, request);
      break;
  }
  deliver();
  if (held_bytes() > held_bytes_max) refuse(too_much_held());
}

std::size_t Session::held_bytes() const {
  std::size_t held = 0;
  for (const auto& each : waits_) held += each.after.size();
  return held;
}

void Session::multi_get(Caller by, const Request& request) {
  if (waits_.empty()) {
    answering_ = Answering{{request.keys.begin(), request.keys.end()}, 0};
    return answer_more();
  }
  // Behind a wait the answer has to be kept whole.
  auto& effects = shared_.effects;
  shared_.values.multi_get(by, request.keys, effects);
  const auto* found = std::get_if<store::FoundMany>(&effects.back().answer);
  if (found == nullptr || held_bytes() + size_of(*found) <= held_bytes_max) return;
  effects.clear();
  refuse(too_much_held());
}

/// Sends one value at least: the caller has seen that there is room.
void Session::answer_more() {
  auto& effects = shared_.effects;
  do {
    if (answering_->next == answering_->keys.size()) return answering_.reset();
    shared_.values.get({}, answering_->keys[answering_->next++], effects);
    const auto* found = std::get_if<store::Found>(&effects.back().answer);
    put_text(out_.buffer(), found != nullptr ? found->value : BytesView{});
    effects.clear();
  } while (!out_.congested());
}

/// Most requests have one answer, which goes to their own client: that needs no look-up.
void Session::deliver() {
  auto& effects = shared_.effects;
  if (effects.size() == 1 && effects.front().to.client == client_) {
    answer(effects.front());
    effects.clear();
  } else {
    shared_.deliver();
  }
}

void Session::wait(Caller by, const Request& request) {
  if (begin_wait(by, {}, request.keys, 0)) {
    shared_.values.wait(by, request.keys, Clock::time_point::max(), shared_.effects);
  }
}

void Session::arrive(Caller by, const Request& request) {
  if (!begin_wait(by, request.key, {&request.key, 1}, request.number)) return;
  shared_.barriers.arrive(shared_.values, by, request.key, request.number, shared_.effects);
}

bool Session::begin_wait(Caller by, std::string_view barrier,
                         std::span<const std::string_view> keys, std::int64_t world) {
  std::size_t awaited = keys.size();
  for (const auto& each : waits_) awaited += each.keys;
  if (waits_.size() >= waits_max || awaited > awaited_keys_max) {
    refuse(std::to_string(waits_.size() + 1) + " waits at once for " + std::to_string(awaited) +
           " keys; the limits are " + std::to_string(waits_max) + " and " +
           std::to_string(awaited_keys_max));
    return false;
  }
  waits_.push_back(
      {by.request, std::string(barrier), keys.size(), false, {}, story_of(keys, world)});
  return true;
}

void Session::finish_wait(std::uint64_t request) {
  const auto finished = std::find_if(waits_.begin(), waits_.end(),
                                     [&](const Wait& each) { return each.request == request; });
  if (finished == waits_.end()) return;
  finished->answered = true;
  given_up_ = {};
  auto& out = out_.buffer();
  auto head = waits_.begin();
  for (; head != waits_.end() && head->answered; ++head) {
    put(out, ready);
    ByteWriter(out).raw(head->after);
  }
  waits_.erase(waits_.begin(), head);
}

void Session::drop_wait(Wait& dropped) {
  if (dropped.answered) return;
  given_up_ = std::move(dropped.story);
  const Caller by{client_, dropped.request};
  if (op_of(by) == Op::barrier) {
    shared_.barriers.cancel(by, dropped.barrier);
  } else {
    shared_.values.cancel(by);
  }
}

void Session::drop_waits() {
  for (auto& each : waits_) drop_wait(each);
  waits_.clear();
}

/// The answer is 1 whether or not there was a wait; the client knows from the replies before.
void Session::cancel_waits() {
  auto& out = out_.buffer();
  for (auto& each : waits_) {
    drop_wait(each);
    if (each.answered) put(out, ready);
    ByteWriter(out).raw(each.after);
  }
  waits_.clear();
  put(out, wait_cancelled);
}

void Session::answer(const Effect& effect) {
  if (closed_) return;
  const auto op = op_of(effect.to);
  if (const auto* refused = std::get_if<store::Refused>(&effect.answer)) {
    refuse(refused->reason);
  } else if (op == Op::wait || op == Op::barrier) {
    finish_wait(effect.to.request);
  } else if (const auto* change = std::get_if<store::Changed>(&effect.answer)) {
    put_change(out_.buffer(), *change);
  } else {
    reply(op, effect.answer, replies());
  }
}

void Session::reply(Op op, const store::Answer& answer, Bytes& out) {
  switch (op) {
    case Op::validate:
    case Op::cancel_wait:
    case Op::ping:
    case Op::wait:
    case Op::barrier:
      break;  // Answered elsewhere.
    case Op::set:
    case Op::append:
    case Op::multi_set:
    case Op::push:
    case Op::watch:
      break;  // No reply.
    case Op::compare_set: {
      const auto& compared = std::get<store::Compared>(answer);
      put_text(out, compared.current.value_or(expected_));
      break;
    }
    case Op::get: {
      const auto* found = std::get_if<store::Found>(&answer);
      put_text(out, found != nullptr ? found->value : BytesView{});
      break;
    }
    case Op::add:
    case Op::count:
    case Op::erase:
    case Op::queue_size:
      put(out, std::get<store::Number>(answer).value);
      break;
    case Op::check:
      put(out, std::get<store::Number>(answer).value != 0 ? ready : not_ready);
      break;
    case Op::multi_get:
      put_texts(out, std::get<store::FoundMany>(answer));
      break;
    case Op::pop:
      put_popped(out, std::get<store::Popped>(answer));
      break;
    case Op::list:
      put_list(out, std::get<store::KeyList>(answer));
      break;
  }
}

}  // namespace dlaunch::c10d
