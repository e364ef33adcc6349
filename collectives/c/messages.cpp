#include "collectives/c/c_api.hpp"

#include <optional>

/// Point to point.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Communicator;
using dlaunch::Transfer;

dl_received received_of(const dlaunch::Received& what) {
  return {what.source, what.tag, static_cast<dl_dtype>(what.dtype), 0, what.count};
}

/// The handle of all messages that left at once, which is never freed.
dl_work* sent_work(dlaunch::Work&& sent) {
  static dl_work* const work = new dl_work(std::move(sent), true);
  return work;
}

using Transfers = ShortList<Transfer, 8>;

Transfer transfer_of(const dl_transfer& given) {
  require(given.up_to == 0 || (given.up_to == 1 && given.is_send == 0),
          "a dl_transfer's 'up_to' is 0, or 1 for one that receives; make it with dl_make_send, "
          "dl_make_recv or dl_make_recv_up_to");
  if (given.is_send != 0) return Transfer::send(view_of(given.out), given.peer, given.tag);
  return given.up_to != 0 ? Transfer::recv_up_to(view_of(given.in), given.peer, given.tag)
                          : Transfer::recv(view_of(given.in), given.peer, given.tag);
}

Transfers transfers_of(const dl_transfer* transfers, std::size_t count) {
  require(transfers != nullptr || count == 0, [&] {
    return "'transfers' is a null pointer for " + std::to_string(count) + " transfers";
  });
  return {std::span(transfers, count), transfer_of};
}

}  // namespace

dl_status dl_send(dl_comm* comm, dl_const_view data, int to, const dl_options* options) {
  return run(comm, &Communicator::send, data, to, options);
}

dl_status dl_ssend(dl_comm* comm, dl_const_view data, int to, const dl_options* options) {
  return run(comm, &Communicator::ssend, data, to, options);
}

dl_status dl_recv(dl_comm* comm, dl_view data, int from, dl_received* received,
                  const dl_options* options) {
  return guarded_on(comm, [&] {
    const auto what = comm->comm.recv(view_of(data), from, options_of(options));
    if (received != nullptr) *received = received_of(what);
  });
}

dl_status dl_recv_up_to(dl_comm* comm, dl_view data, int from, dl_received* received,
                        const dl_options* options) {
  return guarded_on(comm, [&] {
    const auto what = comm->comm.recv_up_to(view_of(data), from, options_of(options));
    if (received != nullptr) *received = received_of(what);
  });
}

dl_status dl_sendrecv(dl_comm* comm, dl_const_view out, int to, dl_view in, int from,
                      dl_received* received, const dl_options* options) {
  return guarded_on(comm, [&] {
    const auto what = comm->comm.sendrecv(view_of(out), to, view_of(in), from, options_of(options));
    if (received != nullptr) *received = received_of(what);
  });
}

dl_status dl_sendrecv_up_to(dl_comm* comm, dl_const_view out, int to, dl_view in, int from,
                            dl_received* received, const dl_options* options) {
  return guarded_on(comm, [&] {
    const auto what =
        comm->comm.sendrecv_up_to(view_of(out), to, view_of(in), from, options_of(options));
    if (received != nullptr) *received = received_of(what);
  });
}

dl_status dl_isend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                   const dl_options* options) {
  Called call(comm);
  return guarded_on(comm, [&] {
    auto& started = place(work, "work");
    auto made = started_by(call, &Communicator::isend, data, to, options);
    const bool has_left = call.fault.empty() && made.done() && !made.error();
    started = has_left ? sent_work(std::move(made)) : handle_of(std::move(made), call);
  });
}

dl_status dl_issend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                    const dl_options* options) {
  return start(comm, work, &Communicator::issend, data, to, options);
}

dl_status dl_irecv(dl_comm* comm, dl_view data, int from, dl_work** work,
                   const dl_options* options) {
  return start(comm, work, &Communicator::irecv, data, from, options);
}

dl_status dl_irecv_up_to(dl_comm* comm, dl_view data, int from, dl_work** work,
                         const dl_options* options) {
  return start(comm, work, &Communicator::irecv_up_to, data, from, options);
}

dl_status dl_work_received(const dl_work* work, int* found, dl_received* received) {
  return guarded_on(work, [&] {
    auto& answer = place(found, "found");
    const auto what = work->work.received();
    if (what && received != nullptr) *received = received_of(*what);
    answer = what ? 1 : 0;
  });
}

dl_status dl_batch(dl_comm* comm, const dl_transfer* transfers, size_t count,
                   const dl_options* options) {
  return guarded_on(comm,
                    [&] { comm->comm.batch(transfers_of(transfers, count), options_of(options)); });
}

dl_status dl_start_batch(dl_comm* comm, const dl_transfer* transfers, size_t count, dl_work** works,
                         const dl_options* options) {
  return guarded_on(comm, [&] {
    require(works != nullptr || count == 0, "'works' is a null pointer");
    std::vector<std::unique_ptr<dl_work>> handles;
    for (auto& work : comm->comm.start_batch(transfers_of(transfers, count), options_of(options))) {
      handles.push_back(std::make_unique<dl_work>(std::move(work)));
    }
    for (auto& handle : handles) *works++ = handle.release();
  });
}

dl_status dl_probe(dl_comm* comm, int from, dl_received* received, const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& what = place(received, "received");
    what = received_of(comm->comm.probe(from, options_of(options)));
  });
}

dl_status dl_try_probe(dl_comm* comm, int from, int* found, dl_received* received,
                       const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& answer = place(found, "found");
    const auto what = comm->comm.try_probe(from, options_of(options));
    if (what && received != nullptr) *received = received_of(*what);
    answer = what ? 1 : 0;
  });
}

dl_status dl_start_probe(dl_comm* comm, int from, dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_probe, from, options);
}

dl_status dl_match(dl_comm* comm, int from, dl_message** message, const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& matched = place(message, "message");
    matched = new dl_message(comm->comm.match(from, options_of(options)));
  });
}

dl_status dl_try_match(dl_comm* comm, int from, int* found, dl_message** message,
                       const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& answer = place(found, "found");
    auto& matched = place(message, "message");
    auto what = comm->comm.try_match(from, options_of(options));
    if (what) matched = new dl_message(std::move(*what));
    answer = what ? 1 : 0;
  });
}

dl_status dl_message_what(const dl_message* message, dl_received* received) {
  return guarded_on(message, [&] {
    auto& what = place(received, "received");
    what = received_of(message->message.what());
  });
}

dl_status dl_recv_matched(dl_comm* comm, dl_message* message, dl_view data, dl_received* received,
                          const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& matched = place(message, "message").message;
    const auto what =
        comm->comm.recv_matched(std::move(matched), view_of(data), options_of(options));
    if (received != nullptr) *received = received_of(what);
  });
}

void dl_message_free(dl_message* message) { delete message; }
