#include "collectives/api/buffers.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/communicator/device_work.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_pool.hpp"
#include "collectives/communicator/work_state.hpp"
#include "collectives/device/plan.hpp"
#include "collectives/transport/message/fault_point.hpp"

#include <array>
#include <memory>
#include <utility>

namespace dlaunch {
namespace {

using transport::Fingerprint;
using transport::Kind;
using transport::Op;
using transport::Outgoing;
using transport::Receive;

Fingerprint fingerprint(Op op, const ConstTensorView& view) {
  Fingerprint call;
  call.op = op;
  call.dtype = view.dtype;
  call.count = view.count;
  return call;
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

std::shared_ptr<MessageWork> new_work(const MessageOptions& options, int peer) {
  return std::allocate_shared<MessageWork>(PooledWorks<MessageWork>(), options, peer);
}

Received received(const Group& group, int source, const transport::Header& header) {
  return {group.rank_of(source), header.tag, header.dtype, header.count};
}

}  // namespace

Work Communicator::isend(ConstTensorView data, int to, const MessageOptions& options) {
  if (state_->send_now(data, to, options, Flight::Kind::start)) return complete_message();
  if (!data.place.is_host()) {
    const std::array one{Transfer::send(data, to, options.tag)};
    return state_->start_on_device(device::messages(one), options);
  }
  auto work = new_work(options, to);
  state_->message(fingerprint(Op::send, data), options, to, Flight::Kind::start, [&](Call& call) {
    check_peer(call, to, options.tag, false);
    check_view(call, data, "data");
    BytesView bytes{static_cast<const std::byte*>(data.data), data.bytes()};
    if (data.stride != 1) {
      const auto packed = work->pack_for({}, data.bytes());
      pack(data, packed.data());
      bytes = packed;
    }
    work->send() = call.make_message(to, options.tag, bytes);
    work->begin(*state_);
  });
  return Work(std::move(work));
}

Work Communicator::irecv(TensorView data, int from, const MessageOptions& options) {
  const auto print = fingerprint(Op::recv, data);
  auto work = new_work(options, from);
  if (options.tag >= any_tag && state_->is_plain(data, from, options)) {
    state_->describe(work->receive(), data, from, options);
    const auto lock = state_->mesh->lock();
    if (work->begin_plainly(*state_)) {
      state_->note_message(print, options, from, Flight::Kind::start);
      return Work(std::move(work));
    }
  }
  if (!data.place.is_host()) {
    const std::array one{Transfer::recv(data, from, options.tag)};
    return state_->start_on_device(device::messages(one), options);
  }
  state_->message(print, options, from, Flight::Kind::start, [&](Call& call) {
    check_peer(call, from, options.tag, true);
    check_view(call, data, "data");
    std::span into{static_cast<std::byte*>(data.data), data.bytes()};
    if (data.stride != 1) into = work->pack_for(data, data.bytes());
    work->receive() = call.make_message_receive(from, options.tag, into);
    work->begin(*state_);
  });
  return Work(std::move(work));
}

/// Whether nothing is to be said against a message, nor to be done for it beside moving it. If so
/// it may go the short way; else the long one says what is wrong.
bool Communicator::State::is_plain(const ConstTensorView& view, int peer,
                                   const MessageOptions& options) const {
  return !transport::is_armed() && !error.is_set() && !is_forked() && !aborted &&
         !mesh->control().has_failures() && peer >= 0 && peer < group.size() &&
         options.timeout >= Clock::duration::zero() && view.place.is_host() && view.stride == 1 &&
         (view.data != nullptr || view.count == 0) && size_of(view.dtype) != 0;
}

bool Communicator::State::send_now(const ConstTensorView& data, int to,
                                   const MessageOptions& options, Flight::Kind kind) {
  if (options.tag < 0 || !is_plain(data, to, options)) return false;
  const auto call = fingerprint(Op::send, data);
  Outgoing outgoing;
  outgoing.to = group.world_rank(to);
  outgoing.header = make_header(Kind::message, group.id, call, data.bytes(), options.tag);
  outgoing.payload = {static_cast<const std::byte*>(data.data), data.bytes()};
  const auto lock = mesh->lock();
  if (!mesh->send_now(outgoing)) return false;
  note_message(call, options, to, kind);
  return true;
}

void Communicator::State::describe(Receive& receive, const TensorView& data, int from,
                                   const MessageOptions& options) const {
  receive.kind = Kind::message;
  receive.communicator = group.id;
  receive.from = group.world_rank(from);
  receive.tag = options.tag;
  receive.expected = fingerprint(Op::recv, data);
  receive.into = {static_cast<std::byte*>(data.data), data.bytes()};
}

void Communicator::send(ConstTensorView data, int to, const MessageOptions& options) {
  if (state_->send_now(data, to, options, Flight::Kind::call)) return;
  if (!data.place.is_host()) {
    const std::array one{Transfer::send(data, to, options.tag)};
    return state_->run_on_device(device::messages(one), options);
  }
  state_->message(fingerprint(Op::send, data), options, to, Flight::Kind::call, [&](Call& call) {
    check_peer(call, to, options.tag, false);
    check_view(call, data, "data");
    const Packed packed(data);
    call.send_message(to, options.tag, packed.bytes());
  });
}

Received Communicator::recv(TensorView data, int from, const MessageOptions& options) {
  const auto call = fingerprint(Op::recv, data);
  if (options.tag >= any_tag && state_->is_plain(data, from, options)) {
    Receive receive;
    state_->describe(receive, data, from, options);
    const auto lock = state_->mesh->lock();
    if (state_->mesh->receive_now(receive)) {
      state_->note_message(call, options, from, Flight::Kind::call);
      return {from, receive.header.tag, receive.header.dtype, receive.header.count};
    }
  }
  if (!data.place.is_host()) {
    const std::array one{Transfer::recv(data, from, options.tag)};
    state_->run_on_device(device::messages(one), options);
    return {from, 0, data.dtype, data.count};
  }
  Received what;
  state_->message(call, options, from, Flight::Kind::call, [&](Call& mesh) {
    check_peer(mesh, from, options.tag, true);
    check_view(mesh, data, "data");
    const Unpacked into(data);
    const auto [source, header] = mesh.receive_message(from, options.tag, into.bytes());
    into.commit();
    what = received(state_->group, source, header);
  });
  return what;
}

Received Communicator::sendrecv(ConstTensorView out, int to, TensorView in, int from,
                                const MessageOptions& options) {
  if (!out.place.is_host() || !in.place.is_host()) {
    batch({Transfer::send(out, to, options.tag), Transfer::recv(in, from, options.tag)}, options);
    return {from, 0, in.dtype, in.count};
  }
  Work sending = isend(out, to, options);
  const Received what = recv(in, from, options);
  sending.wait();
  return what;
}

std::vector<Work> Communicator::start_batch(std::span<const Transfer> transfers,
                                            const Options& options) {
  if (device::any_on_device(transfers)) {
    // One call on the device, for which every one of them stands.
    const auto work = state_->start_batch_on_device(transfers, options);
    std::vector<Work> all;
    for (std::size_t i = 0; i < transfers.size(); ++i) all.emplace_back(work);
    return all;
  }
  std::vector<Work> works;
  MessageOptions each = options;
  for (const Transfer& transfer : transfers) {
    each.tag = transfer.tag;
    works.push_back(transfer.is_send ? isend(transfer.out, transfer.peer, each)
                                     : irecv(transfer.in, transfer.peer, each));
  }
  return works;
}

void Communicator::batch(std::span<const Transfer> transfers, const Options& options) {
  if (device::any_on_device(transfers)) {
    return state_->run_on_device(device::messages(transfers), options);
  }
  for (Work& work : start_batch(transfers, options)) work.wait();
}

std::optional<Received> Communicator::try_probe(int from, const MessageOptions& options) {
  std::optional<Received> what;
  Fingerprint call;
  call.op = Op::probe;
  state_->message(call, options, from, Flight::Kind::call, [&](Call& mesh) {
    check_peer(mesh, from, options.tag, true);
    const auto lock = state_->mesh->lock();
    state_->mesh->step(Clock::now());
    const auto found = state_->mesh->inbox().peek(
        state_->group.id, from == any_source ? from : state_->group.world_rank(from), options.tag,
        state_->group.world_ranks);
    if (found) what = received(state_->group, found->first, found->second);
  });
  return what;
}

Received Communicator::probe(int from, const MessageOptions& options) {
  Received what;
  Fingerprint call;
  call.op = Op::probe;
  state_->message(call, options, from, Flight::Kind::call, [&](Call& mesh) {
    check_peer(mesh, from, options.tag, true);
    const int source = from == any_source ? from : state_->group.world_rank(from);
    std::optional<std::pair<int, transport::Header>> found;
    mesh.wait_until(
        [&] {
          found = state_->mesh->inbox().peek(state_->group.id, source, options.tag,
                                             state_->group.world_ranks);
          return found.has_value();
        },
        from);
    what = received(state_->group, found->first, found->second);
  });
  return what;
}

}  // namespace dlaunch
