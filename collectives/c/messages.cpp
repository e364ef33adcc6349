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

std::vector<Transfer> transfers_of(const dl_transfer* transfers, std::size_t count) {
  require(transfers != nullptr || count == 0,
          "'transfers' is a null pointer for " + std::to_string(count) + " transfers");
  std::vector<Transfer> all;
  for (const dl_transfer& each : std::span(transfers, count)) {
    require(each.reserved == 0,
            "a dl_transfer's 'reserved' is 0; make it with dl_make_send or dl_make_recv");
    all.push_back(each.is_send != 0 ? Transfer::send(view_of(each.out), each.peer, each.tag)
                                    : Transfer::recv(view_of(each.in), each.peer, each.tag));
  }
  return all;
}

}  // namespace

dl_status dl_send(dl_comm* comm, dl_const_view data, int to, const dl_options* options) {
  return run(comm, &Communicator::send, data, to, options);
}

dl_status dl_recv(dl_comm* comm, dl_view data, int from, dl_received* received,
                  const dl_options* options) {
  return guarded_on(comm, [&] {
    const auto what = comm->comm.recv(view_of(data), from, options_of(options));
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

dl_status dl_isend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                   const dl_options* options) {
  return start(comm, work, &Communicator::isend, data, to, options);
}

dl_status dl_irecv(dl_comm* comm, dl_view data, int from, dl_work** work,
                   const dl_options* options) {
  return start(comm, work, &Communicator::irecv, data, from, options);
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
