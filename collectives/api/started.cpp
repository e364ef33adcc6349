#include "collectives/communicator/flush_output.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/work_state.hpp"

#include <utility>

/// The started form of a collective is the blocking one, run by another thread in its turn. Views
/// are borrowed, everything else is copied. The communicator comes as an argument: this one may
/// have been moved by then.
namespace dlaunch {
namespace {

std::vector<std::size_t> kept(std::span<const std::size_t> counts) {
  return {counts.begin(), counts.end()};
}

}  // namespace

/// Output that is printed after it was started is not its concern.
Work Communicator::start_barrier(const Options& options) {
  if (options.cuda_stream != nullptr) {
    return state_->start_on_device(state_->barrier_on_device(), options);
  }
  if (options.ordered_output) flush_output();
  return state_->start(
      [options = state_->settled(options)](Communicator& comm) { comm.state_->barrier(options); });
}

Work Communicator::start_broadcast(TensorView inout, int root, const Options& options) {
  if (device::any_on_device({inout})) {
    return state_->start_on_device(device::broadcast(inout, root), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.broadcast(inout, root, options);
  });
}

Work Communicator::start_reduce(ConstTensorView in, TensorView out, int root,
                                const Reduction& reduction, const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->start_on_device(device::reduce(in, out, root, reduction, options), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.reduce(in, out, root, reduction, options);
  });
}

Work Communicator::start_all_reduce(TensorView inout, const Reduction& reduction,
                                    const Options& options) {
  if (device::any_on_device({inout})) {
    return state_->start_on_device(device::all_reduce(inout, reduction, options), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.all_reduce(inout, reduction, options);
  });
}

Work Communicator::start_all_gather(ConstTensorView in, TensorView out, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::all_gather(in, out), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.all_gather(in, out, options);
  });
}

Work Communicator::start_all_gather_v(ConstTensorView in, TensorView out,
                                      std::span<const std::size_t> counts, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::all_gather_v(in, out, counts), options);
  }
  return state_->start([=, options = state_->settled(options), counts = kept(counts)](
                           Communicator& comm) { comm.all_gather_v(in, out, counts, options); });
}

Work Communicator::start_gather(ConstTensorView in, TensorView out, int root,
                                const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->start_on_device(device::gather(in, out, root), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.gather(in, out, root, options);
  });
}

Work Communicator::start_gather_v(ConstTensorView in, TensorView out,
                                  std::span<const std::size_t> counts, int root,
                                  const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->start_on_device(device::gather_v(in, out, counts, root), options);
  }
  return state_->start([=, options = state_->settled(options), counts = kept(counts)](
                           Communicator& comm) { comm.gather_v(in, out, counts, root, options); });
}

Work Communicator::start_scatter(ConstTensorView in, TensorView out, int root,
                                 const Options& options) {
  if (device::is_on_device(rank() == root, out, in)) {
    return state_->start_on_device(device::scatter(in, out, root), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.scatter(in, out, root, options);
  });
}

Work Communicator::start_scatter_v(ConstTensorView in, TensorView out,
                                   std::span<const std::size_t> counts, int root,
                                   const Options& options) {
  if (device::is_on_device(rank() == root, out, in)) {
    return state_->start_on_device(device::scatter_v(in, out, counts, root), options);
  }
  return state_->start([=, options = state_->settled(options), counts = kept(counts)](
                           Communicator& comm) { comm.scatter_v(in, out, counts, root, options); });
}

Work Communicator::start_reduce_scatter(ConstTensorView in, TensorView out,
                                        const Reduction& reduction, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::reduce_scatter(in, out, reduction, options), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.reduce_scatter(in, out, reduction, options);
  });
}

Work Communicator::start_reduce_scatter_v(ConstTensorView in, TensorView out,
                                          std::span<const std::size_t> counts,
                                          const Reduction& reduction, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::reduce_scatter_v(in, out, counts, reduction, options),
                                   options);
  }
  return state_->start(
      [=, options = state_->settled(options), counts = kept(counts)](Communicator& comm) {
        comm.reduce_scatter_v(in, out, counts, reduction, options);
      });
}

Work Communicator::start_all_to_all(ConstTensorView in, TensorView out, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::all_to_all(in, out), options);
  }
  return state_->start([=, options = state_->settled(options)](Communicator& comm) {
    comm.all_to_all(in, out, options);
  });
}

Work Communicator::start_all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                                      TensorView out, std::span<const std::size_t> out_counts,
                                      const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->start_on_device(device::all_to_all_v(in, in_counts, out, out_counts), options);
  }
  return state_->start([=, options = state_->settled(options), in_counts = kept(in_counts),
                        out_counts = kept(out_counts)](Communicator& comm) {
    comm.all_to_all_v(in, in_counts, out, out_counts, options);
  });
}

}  // namespace dlaunch
