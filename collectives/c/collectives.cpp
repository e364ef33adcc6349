#include "collectives/c/c_api.hpp"

/// Collectives, blocking.
using namespace dlaunch::c_api;  // NOLINT: what follows is this namespace's face.

dl_status dl_barrier(dl_comm* comm, const dl_options* options) {
  return guarded_on(comm, [&] { comm->comm.barrier(options_of(options)); });
}

dl_status dl_broadcast(dl_comm* comm, dl_view inout, int root, const dl_options* options) {
  return guarded_on(comm, [&] { comm->comm.broadcast(view_of(inout), root, options_of(options)); });
}

dl_status dl_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_reduction reduction,
                    const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.reduce(view_of(in), view_of(out), root, reduction_of(reduction),
                      options_of(options));
  });
}

dl_status dl_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction,
                        const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.all_reduce(view_of(inout), reduction_of(reduction), options_of(options));
  });
}

dl_status dl_all_gather(dl_comm* comm, dl_const_view in, dl_view out, const dl_options* options) {
  return guarded_on(comm,
                    [&] { comm->comm.all_gather(view_of(in), view_of(out), options_of(options)); });
}

dl_status dl_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                          const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.all_gather_v(view_of(in), view_of(out), counts_of(comm, counts),
                            options_of(options));
  });
}

dl_status dl_gather(dl_comm* comm, dl_const_view in, dl_view out, int root,
                    const dl_options* options) {
  return guarded_on(
      comm, [&] { comm->comm.gather(view_of(in), view_of(out), root, options_of(options)); });
}

dl_status dl_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts, int root,
                      const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.gather_v(view_of(in), view_of(out), counts_of(comm, counts), root,
                        options_of(options));
  });
}

dl_status dl_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root,
                     const dl_options* options) {
  return guarded_on(
      comm, [&] { comm->comm.scatter(view_of(in), view_of(out), root, options_of(options)); });
}

dl_status dl_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts, int root,
                       const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.scatter_v(view_of(in), view_of(out), counts_of(comm, counts), root,
                         options_of(options));
  });
}

dl_status dl_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                            const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.reduce_scatter(view_of(in), view_of(out), reduction_of(reduction),
                              options_of(options));
  });
}

dl_status dl_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                              dl_reduction reduction, const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.reduce_scatter_v(view_of(in), view_of(out), counts_of(comm, counts),
                                reduction_of(reduction), options_of(options));
  });
}

dl_status dl_all_to_all(dl_comm* comm, dl_const_view in, dl_view out, const dl_options* options) {
  return guarded_on(comm,
                    [&] { comm->comm.all_to_all(view_of(in), view_of(out), options_of(options)); });
}

dl_status dl_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts, dl_view out,
                          const size_t* out_counts, const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.all_to_all_v(view_of(in), counts_of(comm, in_counts), view_of(out),
                            counts_of(comm, out_counts), options_of(options));
  });
}

dl_status dl_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                  const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.scan(view_of(in), view_of(out), reduction_of(reduction), options_of(options));
  });
}

dl_status dl_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                    const dl_options* options) {
  return guarded_on(comm, [&] {
    comm->comm.exscan(view_of(in), view_of(out), reduction_of(reduction), options_of(options));
  });
}
