#include "collectives/api/buffers.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/communicator/device_work.hpp"
#include "collectives/communicator/matched_message.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_state.hpp"
#include "collectives/device/plan.hpp"
#include "collectives/transport/message/fault_point.hpp"

#include <array>
#include <memory>
#include <utility>

#include <sched.h>

namespace dlaunch {
namespace {

using transport::Fingerprint;
using transport::Kind;
using transport::Op;
using transport::Outgoing;
using transport::Receive;

Fingerprint fingerprint(Op op, const ConstTensorView& view) {
  return {.op = op, .dtype = view.dtype, .count = view.count};
}

void check_peer(const Call& call, int peer, int tag, bool may_be_any) {
  require(call, (peer >= 0 && peer < call.size()) || (may_be_any && peer == any_source), [&] {
    return std::string("there is no rank " + std::to_string(peer) + ", ranks are 0 to " +
                       std::to_string(call.size() - 1));
  });
  require(call, tag >= 0 || (may_be_any && tag == any_tag), [&] {
    return std::string("the tag " + std::to_string(tag) + " is not in 0 to " +
                       std::to_string(tag_max));
  });
}

/// Refuses CUDA buffers for calls that NCCL lacks.
void check_host(const Call& call, const ConstTensorView& data) {
  if (data.place.is_host()) return;
  throw Error(
      Errc::unsupported,
      call.label() + ": it takes host memory alone, and this is a CUDA buffer" + call.where());
}

void check_send(const Call& call, const ConstTensorView& data, int to, int tag) {
  check_peer(call, to, tag, false);
  check_view(call, data, "data");
  check_host(call, data);
}

void check_recv(const Call& call, const TensorView& data, int from, int tag) {
  check_peer(call, from, tag, true);
  check_view(call, data, "data");
  check_host(call, data);
}

Received received(const Group& group, int source, const transport::Header& header) {
  return {group.rank_of(source), header.tag, header.dtype, header.count};
}

}  // namespace

// ---- Sending. ----

Work Communicator::isend(const ConstTensorView& data, int to, const MessageOptions& options) {
  Work work = complete_message();  // Written before the message: see make_header.
  if (state_->send_now(data, to, options, Flight::Kind::start)) {
    state_->mesh->tell_program();
  } else if (!data.place.is_host()) {
    const std::array one{Transfer::send(data, to, options.tag)};
    work = state_->start_on_device(device::messages(one), options);
  } else {
    work = state_->start_send(data, to, options, false);
  }
  return work;
}

Work Communicator::issend(const ConstTensorView& data, int to, const MessageOptions& options) {
  return state_->start_send(data, to, options, true);
}

Work Communicator::State::start_send(const ConstTensorView& data, int to,
                                     const MessageOptions& options, bool is_synchronous) {
  auto work = MessageWork::make(options, to);
  const auto print = fingerprint(Op::send, data);
  message(print, options, to, Flight::Kind::start, name_of_send(is_synchronous), [&](Call& call) {
    check_send(call, data, to, options.tag);
    BytesView bytes{static_cast<const std::byte*>(data.data), data.bytes()};
    if (data.stride != 1) {
      const auto packed = work->pack_for({}, data.bytes());
      pack(data, packed.data());
      bytes = packed;
    }
    Outgoing& outgoing = work->send() = call.make_message(to, options.tag, bytes);
    outgoing.is_synchronous = is_synchronous;
    work->begin(*this);
  });
  return Work(std::move(work));
}

void Communicator::send(const ConstTensorView& data, int to, const MessageOptions& options) {
  if (state_->send_now(data, to, options, Flight::Kind::call)) return;
  if (!data.place.is_host()) {
    const std::array one{Transfer::send(data, to, options.tag)};
    return state_->run_on_device(device::messages(one), options);
  }
  state_->wait_to_send(data, to, options, false);
}

void Communicator::ssend(const ConstTensorView& data, int to, const MessageOptions& options) {
  state_->wait_to_send(data, to, options, true);
}

void Communicator::State::wait_to_send(const ConstTensorView& data, int to,
                                       const MessageOptions& options, bool is_synchronous) {
  const auto print = fingerprint(Op::send, data);
  message(print, options, to, Flight::Kind::call, name_of_send(is_synchronous), [&](Call& call) {
    check_send(call, data, to, options.tag);
    const Packed packed(data);
    Outgoing outgoing = call.make_message(to, options.tag, packed.bytes());
    outgoing.is_synchronous = is_synchronous;
    call.send_message(outgoing);
  });
}

/// Whether a message is valid and needs only to be moved. If so it takes the short way; otherwise
/// the long way finds what is wrong.
bool Communicator::State::is_plain(const ConstTensorView& view, int peer,
                                   const MessageOptions& options, int least_peer) const {
  return !transport::is_armed() && !error.is_set() && !is_forked() && !aborted &&
         !mesh->control().has_failures() && peer >= least_peer && peer < group.size() &&
         options.timeout >= Clock::duration::zero() && view.place == Place{} && view.stride == 1 &&
         (view.data != nullptr || view.count == 0) && view.count <= elements_max &&
         size_of(view.dtype) != 0 && !is_poisoned(view);
}

bool Communicator::State::send_now(const ConstTensorView& data, int to,
                                   const MessageOptions& options, Flight::Kind kind) {
  if (options.tag < 0 || !is_plain(data, to, options)) return false;
  const auto call = fingerprint(Op::send, data);
  const auto header = make_header(Kind::message, group.id, call, data.bytes(), options.tag);
  const BytesView bytes{static_cast<const std::byte*>(data.data), data.bytes()};
  const auto lock = mesh->lock();
  if (!mesh->send_now(group.world_rank(to), header, bytes)) return false;
  flight.note_message(call, options, to, kind);
  return true;
}

void Communicator::State::describe(Receive& receive, const TensorView& data, int from,
                                   const MessageOptions& options, bool up_to) const {
  receive.kind = Kind::message;
  receive.communicator = group.id;
  receive.from = from == any_source ? any_source : group.world_rank(from);
  receive.sources = group.world_ranks;
  receive.tag = options.tag;
  receive.expected.op = Op::recv;
  receive.expected.dtype = data.dtype;
  receive.expected.count = data.count;
  receive.up_to = up_to;
  receive.into = {static_cast<std::byte*>(data.data), data.bytes()};
}

// ---- Receiving. ----

Work Communicator::irecv(const TensorView& data, int from, const MessageOptions& options) {
  if (!data.place.is_host()) {
    const std::array one{Transfer::recv(data, from, options.tag)};
    return state_->start_on_device(device::messages(one), options);
  }
  return state_->start_receive(data, from, options, false);
}

Work Communicator::irecv_up_to(const TensorView& data, int from, const MessageOptions& options) {
  return state_->start_receive(data, from, options, true);
}

Work Communicator::State::start_receive(const TensorView& data, int from,
                                        const MessageOptions& options, bool up_to) {
  const auto print = fingerprint(Op::recv, data);
  if (options.tag >= any_tag && is_plain(data, from, options, any_source)) {
    const auto lock = mesh->lock();
    Work plain = start_plain_receive(data, from, options, up_to);
    if (!plain.is_empty()) {
      flight.note_message(print, options, from, Flight::Kind::start);
      return plain;
    }
  }
  auto work = MessageWork::make(options, from);
  message(print, options, from, Flight::Kind::start, name_of_receive(up_to), [&](Call& call) {
    check_recv(call, data, from, options.tag);
    std::span into{static_cast<std::byte*>(data.data), data.bytes()};
    if (data.stride != 1) into = work->pack_for(data, data.bytes());
    Receive& incoming = work->receive() = call.make_message_receive(from, options.tag, into);
    incoming.up_to = up_to;
    work->begin(*this);
  });
  return Work(std::move(work));
}

Received Communicator::recv(const TensorView& data, int from, const MessageOptions& options) {
  if (!data.place.is_host()) {
    const std::array one{Transfer::recv(data, from, options.tag)};
    state_->run_on_device(device::messages(one), options);
    return {from, 0, data.dtype, data.count};
  }
  return state_->receive(data, from, options, false);
}

Received Communicator::recv_up_to(const TensorView& data, int from, const MessageOptions& options) {
  return state_->receive(data, from, options, true);
}

Received Communicator::State::receive(const TensorView& data, int from,
                                      const MessageOptions& options, bool up_to) {
  const auto print = fingerprint(Op::recv, data);
  if (options.tag >= any_tag && is_plain(data, from, options, any_source)) {
    Receive plain;
    describe(plain, data, from, options, up_to);
    const auto lock = mesh->lock();
    if (mesh->receive_now(plain)) {
      flight.note_message(print, options, from, Flight::Kind::call);
      return received_by(plain, from);
    }
  }
  Received what;
  message(print, options, from, Flight::Kind::call, name_of_receive(up_to), [&](Call& call) {
    check_recv(call, data, from, options.tag);
    const Unpacked into(data);
    Receive incoming = call.make_message_receive(from, options.tag, into.bytes());
    incoming.up_to = up_to;
    call.receive_message(incoming);
    into.commit(incoming.header.count);
    what = received(group, incoming.source, incoming.header);
    const auto lock = mesh->lock();
    if (mesh->is_telling()) progress_thread->attend();  // Its sender hears while this rank goes on.
  });
  return what;
}

/// What has been checked, in host memory: the message to receive is waited for without being
/// posted first, where it comes soon.
static Received exchange(Communicator& communicator, const Transfer& out, const Transfer& in,
                         const Options& options) {
  MessageOptions each = options;
  each.tag = out.tag;
  Work sending = communicator.isend(out.out, out.peer, each);
  each.tag = in.tag;
  const Received what = in.up_to ? communicator.recv_up_to(in.in, in.peer, each)
                                 : communicator.recv(in.in, in.peer, each);
  sending.wait();
  return what;
}

Received Communicator::sendrecv(const ConstTensorView& out, int to, const TensorView& in, int from,
                                const MessageOptions& options) {
  const std::array both{Transfer::send(out, to, options.tag),
                        Transfer::recv(in, from, options.tag)};
  if (device::any_on_device(both)) {
    batch(both, options);
    return {from, 0, in.dtype, in.count};
  }
  state_->check_transfers(both, options);
  return exchange(*this, both[0], both[1], options);
}

Received Communicator::sendrecv_up_to(const ConstTensorView& out, int to, const TensorView& in,
                                      int from, const MessageOptions& options) {
  const std::array both{Transfer::send(out, to, options.tag),
                        Transfer::recv_up_to(in, from, options.tag)};
  state_->check_transfers(both, options);
  return exchange(*this, both[0], both[1], options);
}

void Communicator::State::check_transfers(std::span<const Transfer> transfers,
                                          const Options& options) {
  check_process();
  throw_if_broken();
  MessageOptions each = options;
  for (const Transfer& transfer : transfers) {
    each.tag = transfer.tag;
    const bool sends = transfer.is_send;
    const auto view = sends ? transfer.out : ConstTensorView(transfer.in);
    if (each.tag >= 0 && is_plain(view, transfer.peer, each)) continue;
    const auto print = fingerprint(sends ? Op::send : Op::recv, view);
    const Call::Setting setting{*mesh,     group,   kept,          aborted, timeout_of(each),
                                each.site, nullptr, transfer.peer, each.tag};
    const Call call(setting, print);
    check_timeout(call, each.timeout);
    if (sends) {
      check_send(call, transfer.out, transfer.peer, each.tag);
    } else {
      check_recv(call, transfer.in, transfer.peer, each.tag);
    }
  }
}

std::vector<Work> Communicator::start_batch(std::span<const Transfer> transfers,
                                            const Options& options) {
  if (device::any_on_device(transfers)) {
    // The whole batch is one call on the device, which every Work stands for.
    const std::vector all(transfers.size(), state_->start_batch_on_device(transfers, options));
    return {all.begin(), all.end()};
  }
  state_->check_transfers(transfers, options);
  std::vector<Work> works;
  works.reserve(transfers.size());
  MessageOptions each = options;
  for (const Transfer& transfer : transfers) {
    each.tag = transfer.tag;
    works.push_back(transfer.is_send ? isend(transfer.out, transfer.peer, each)
                    : transfer.up_to ? irecv_up_to(transfer.in, transfer.peer, each)
                                     : irecv(transfer.in, transfer.peer, each));
  }
  return works;
}

void Communicator::batch(std::span<const Transfer> transfers, const Options& options) {
  if (device::any_on_device(transfers)) {
    return state_->run_on_device(device::messages(transfers), options);
  }
  if (transfers.size() == 2 && transfers[0].is_send != transfers[1].is_send) {
    state_->check_transfers(transfers, options);
    const std::size_t sent = transfers[0].is_send ? 0 : 1;
    exchange(*this, transfers[sent], transfers[1 - sent], options);
    return;
  }
  std::vector<Work> works = start_batch(transfers, options);
  wait_all(works);
}

// ---- Looking. ----

void Communicator::State::find(int from, const MessageOptions& options,
                               const std::function<bool(int source)>& finds, bool waits,
                               const char* name) {
  const Fingerprint print{.op = Op::probe};
  message(print, options, from, Flight::Kind::call, name, [&](Call& call) {
    check_peer(call, from, options.tag, true);
    const int source = from == any_source ? from : group.world_rank(from);
    if (waits) return call.wait_until([&] { return finds(source); }, from);
    auto lock = mesh->lock();
    if (finds(source)) return;
    if (source == any_source) {
      mesh->inbox().look_past(group.world_ranks);
    } else {
      mesh->inbox().look_past({&source, 1});
    }
    mesh->look();
    if (finds(source) || !mesh->is_crowded()) return;
    lock.unlock();
    ::sched_yield();  // The awaited rank may need this processor.
  });
}

std::optional<Received> Communicator::State::find_message(int from, const MessageOptions& options,
                                                          bool waits) {
  std::optional<std::pair<int, transport::Header>> found;
  const auto finds = [&](int source) {
    found = mesh->inbox().peek(group.id, source, options.tag, group.world_ranks);
    return found.has_value();
  };
  find(from, options, finds, waits);
  if (!found) return std::nullopt;
  return received(group, found->first, found->second);
}

Received Communicator::probe(int from, const MessageOptions& options) {
  return *state_->find_message(from, options, true);
}

std::optional<Received> Communicator::try_probe(int from, const MessageOptions& options) {
  return state_->find_message(from, options, false);
}

Work Communicator::start_probe(int from, const MessageOptions& options) {
  return state_->start_probe(from, options);
}

Work Communicator::State::start_probe(int from, const MessageOptions& options) {
  auto work = MessageWork::make(options, from);
  const Fingerprint print{.op = Op::probe};
  message(print, options, from, Flight::Kind::start, nullptr, [&](Call& call) {
    check_peer(call, from, options.tag, true);
    Receive& probe = work->receive() = call.make_message_receive(from, options.tag, {});
    probe.is_probe = true;
    work->begin(*this);
  });
  return Work(std::move(work));
}

Message Communicator::State::match_message(int from, const MessageOptions& options, bool waits) {
  std::shared_ptr<MatchedMessage> matched;
  const auto finds = [&](int source) {
    if (matched) return true;
    const auto found = mesh->inbox().set_apart(group.id, source, options.tag, group.world_ranks);
    if (found) matched = std::make_shared<MatchedMessage>(shared_from_this(), *found);
    return found.has_value();
  };
  find(from, options, finds, waits, "match");
  return Message(std::move(matched));
}

Message Communicator::match(int from, const MessageOptions& options) {
  return state_->match_message(from, options, true);
}

std::optional<Message> Communicator::try_match(int from, const MessageOptions& options) {
  Message found = state_->match_message(from, options, false);
  if (found.is_empty()) return std::nullopt;
  return found;
}

Received Communicator::recv_matched(Message&& message, const TensorView& data,
                                    const Options& options) {
  const Received what = message.what();
  MessageOptions of_it = options;
  of_it.tag = what.tag;
  state_->message(
      fingerprint(Op::recv, data), of_it, what.source, Flight::Kind::call, "recv_matched",
      [&](Call& call) {
        check_view(call, data, "data");
        check_host(call, data);
        require(call, !message.is_empty(), [] {
          return std::string("the message is empty: it was made without a match, or was received");
        });
        require(call, message.matched_->is_of(*state_), [] {
          return std::string("the message was matched by another communicator, which receives it");
        });
        require(call, data.dtype == what.dtype && data.count >= what.count, [&] {
          return "the message has " + std::to_string(what.count) + " elements of " +
                 to_string(what.dtype) + ", and the buffer has room for " +
                 std::to_string(data.count) + " of " + to_string(data.dtype);
        });
        TensorView part = data;
        part.count = what.count;
        const Unpacked into(part);
        Receive incoming = call.make_message_receive(what.source, what.tag, into.bytes());
        incoming.up_to = true;
        const auto matched = std::move(message.matched_);
        matched->note_taken();
        call.receive_apart(incoming, matched->message());
        into.commit();
      });
  return what;
}

}  // namespace dlaunch
