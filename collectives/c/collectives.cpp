#include "collectives/c/c_api.hpp"

#include <map>
#include <mutex>
#include <set>

/// Collectives, blocking and started.
using namespace dlaunch::c_api;  // NOLINT: what follows is this namespace's face.
using dlaunch::Communicator;

namespace {

/// The C++ reductions behind the functions of dl_reductions.
void fold_by_reduction(void* argument, void* accumulated, const void* next, size_t count,
                       dl_dtype dtype) {
  static_cast<const dlaunch::Reduction*>(argument)->fold()(accumulated, next, count,
                                                           static_cast<dlaunch::DType>(dtype));
}

/// A number that is none becomes an unknown dtype, of which there is one.
dlaunch::DType known_dtype(dl_dtype dtype) {
  return dl_dtype_size(dtype) != 0 ? static_cast<dlaunch::DType>(dtype) : dlaunch::DType{};
}

/// In place of a reduction that cannot be made; calls refuse it with the reason, which is kept.
dl_reduction none_because(const char* reason) noexcept {
  static std::mutex mutex;
  static std::set<std::string> all;
  dl_reduction none{};
  try {
    const std::lock_guard lock(mutex);
    none.name = all.insert(reason).first->c_str();
    none.fold = fold_of_none;
  } catch (...) {
    // Without memory it is an unknown one.
  }
  return none;
}

/// Each is made once and stays, since a dl_reduction points to it.
dl_reduction located(dlaunch::Reduction (*make)(dlaunch::DType, dlaunch::DType), dl_dtype value,
                     dl_dtype index) noexcept {
  struct Made {
    std::string name;
    dlaunch::Reduction reduction;
  };
  static std::mutex mutex;
  static std::map<std::string, Made> all;
  try {
    dlaunch::Reduction reduction = make(known_dtype(value), known_dtype(index));
    const std::string name = reduction.name();
    const std::lock_guard lock(mutex);
    Made& made = all.try_emplace(name, Made{name, std::move(reduction)}).first->second;
    return {DL_CUSTOM,
            DL_ORDER_ANY,
            1,
            made.name.c_str(),
            fold_by_reduction,
            &made.reduction,
            made.reduction.element_bytes()};
  } catch (const dlaunch::Error& senseless) {
    return none_because(senseless.what());
  } catch (...) {
    return {};
  }
}

}  // namespace

dl_reduction dl_op_min_located(dl_dtype value, dl_dtype index) {
  return located(&dlaunch::Reduction::min_located, value, index);
}

dl_reduction dl_op_max_located(dl_dtype value, dl_dtype index) {
  return located(&dlaunch::Reduction::max_located, value, index);
}

dl_status dl_barrier(dl_comm* comm, const dl_options* options) {
  return run(comm, &Communicator::barrier, options);
}

dl_status dl_start_barrier(dl_comm* comm, dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_barrier, options);
}

dl_status dl_broadcast(dl_comm* comm, dl_view inout, int root, const dl_options* options) {
  return run(comm, &Communicator::broadcast, inout, root, options);
}

dl_status dl_start_broadcast(dl_comm* comm, dl_view inout, int root, dl_work** work,
                             const dl_options* options) {
  return start(comm, work, &Communicator::start_broadcast, inout, root, options);
}

dl_status dl_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_reduction reduction,
                    const dl_options* options) {
  return run(comm, &Communicator::reduce, in, out, root, reduction, options);
}

dl_status dl_start_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root,
                          dl_reduction reduction, dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_reduce, in, out, root, reduction, options);
}

dl_status dl_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction,
                        const dl_options* options) {
  return run(comm, &Communicator::all_reduce, inout, reduction, options);
}

dl_status dl_start_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, &Communicator::start_all_reduce, inout, reduction, options);
}

dl_status dl_all_reduce_into(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                             const dl_options* options) {
  return run(comm, &Communicator::all_reduce_into, in, out, reduction, options);
}

dl_status dl_start_all_reduce_into(dl_comm* comm, dl_const_view in, dl_view out,
                                   dl_reduction reduction, dl_work** work,
                                   const dl_options* options) {
  return start(comm, work, &Communicator::start_all_reduce_into, in, out, reduction, options);
}

dl_status dl_all_gather(dl_comm* comm, dl_const_view in, dl_view out, const dl_options* options) {
  return run(comm, &Communicator::all_gather, in, out, options);
}

dl_status dl_start_all_gather(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, &Communicator::start_all_gather, in, out, options);
}

dl_status dl_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                          const dl_options* options) {
  return run(comm, &Communicator::all_gather_v, in, out, counts, options);
}

dl_status dl_start_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                                dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_all_gather_v, in, out, counts, options);
}

dl_status dl_all_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out,
                             const dl_options* options) {
  return run(comm, &Communicator::all_gather_list, in, out, options);
}

dl_status dl_start_all_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out,
                                   dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_all_gather_list, in, out, options);
}

dl_status dl_gather(dl_comm* comm, dl_const_view in, dl_view out, int root,
                    const dl_options* options) {
  return run(comm, &Communicator::gather, in, out, root, options);
}

dl_status dl_start_gather(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_work** work,
                          const dl_options* options) {
  return start(comm, work, &Communicator::start_gather, in, out, root, options);
}

dl_status dl_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts, int root,
                      const dl_options* options) {
  return run(comm, &Communicator::gather_v, in, out, counts, root, options);
}

dl_status dl_start_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                            int root, dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_gather_v, in, out, counts, root, options);
}

dl_status dl_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out, int root,
                         const dl_options* options) {
  return run(comm, &Communicator::gather_list, in, out, root, options);
}

dl_status dl_start_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out, int root,
                               dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_gather_list, in, out, root, options);
}

dl_status dl_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root,
                     const dl_options* options) {
  return run(comm, &Communicator::scatter, in, out, root, options);
}

dl_status dl_start_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root, dl_work** work,
                           const dl_options* options) {
  return start(comm, work, &Communicator::start_scatter, in, out, root, options);
}

dl_status dl_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts, int root,
                       const dl_options* options) {
  return run(comm, &Communicator::scatter_v, in, out, counts, root, options);
}

dl_status dl_start_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                             int root, dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_scatter_v, in, out, counts, root, options);
}

dl_status dl_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out, int root,
                          const dl_options* options) {
  return run(comm, &Communicator::scatter_list, in, out, root, options);
}

dl_status dl_start_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out, int root,
                                dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_scatter_list, in, out, root, options);
}

dl_status dl_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                            const dl_options* options) {
  return run(comm, &Communicator::reduce_scatter, in, out, reduction, options);
}

dl_status dl_start_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out,
                                  dl_reduction reduction, dl_work** work,
                                  const dl_options* options) {
  return start(comm, work, &Communicator::start_reduce_scatter, in, out, reduction, options);
}

dl_status dl_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                              dl_reduction reduction, const dl_options* options) {
  return run(comm, &Communicator::reduce_scatter_v, in, out, counts, reduction, options);
}

dl_status dl_start_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                    const size_t* counts, dl_reduction reduction, dl_work** work,
                                    const dl_options* options) {
  return start(comm, work, &Communicator::start_reduce_scatter_v, in, out, counts, reduction,
               options);
}

dl_status dl_reduce_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                 dl_reduction reduction, const dl_options* options) {
  return run(comm, &Communicator::reduce_scatter_list, in, out, reduction, options);
}

dl_status dl_start_reduce_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                       dl_reduction reduction, dl_work** work,
                                       const dl_options* options) {
  return start(comm, work, &Communicator::start_reduce_scatter_list, in, out, reduction, options);
}

dl_status dl_all_to_all(dl_comm* comm, dl_const_view in, dl_view out, const dl_options* options) {
  return run(comm, &Communicator::all_to_all, in, out, options);
}

dl_status dl_start_all_to_all(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                              const dl_options* options) {
  return start(comm, work, &Communicator::start_all_to_all, in, out, options);
}

dl_status dl_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts, dl_view out,
                          const size_t* out_counts, const dl_options* options) {
  return run(comm, &Communicator::all_to_all_v, in, in_counts, out, out_counts, options);
}

dl_status dl_start_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts,
                                dl_view out, const size_t* out_counts, dl_work** work,
                                const dl_options* options) {
  return start(comm, work, &Communicator::start_all_to_all_v, in, in_counts, out, out_counts,
               options);
}

dl_status dl_all_to_all_list(dl_comm* comm, const dl_const_view* in, const dl_view* out,
                             const dl_options* options) {
  return run(comm, &Communicator::all_to_all_list, in, out, options);
}

dl_status dl_start_all_to_all_list(dl_comm* comm, const dl_const_view* in, const dl_view* out,
                                   dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_all_to_all_list, in, out, options);
}

dl_status dl_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                  const dl_options* options) {
  return run(comm, &Communicator::scan, in, out, reduction, options);
}

dl_status dl_start_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                        dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_scan, in, out, reduction, options);
}

dl_status dl_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                    const dl_options* options) {
  return run(comm, &Communicator::exscan, in, out, reduction, options);
}

dl_status dl_start_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                          dl_work** work, const dl_options* options) {
  return start(comm, work, &Communicator::start_exscan, in, out, reduction, options);
}

dl_status dl_reduce_local(dl_const_view in, dl_view inout, dl_reduction reduction) {
  return guarded(
      [&] { dlaunch::reduce_local(view_of(in), view_of(inout), reduction_of(reduction)); });
}
