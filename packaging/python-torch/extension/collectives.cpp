#include "packaging/python-torch/extension/backend.hpp"
#include "packaging/python-torch/extension/errors.hpp"
#include "packaging/python-torch/extension/several.hpp"
#include "packaging/python-torch/extension/tensors.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

/// Each collective of torch's by those of the library.
namespace dlaunch::torch_backend {
namespace {

using c10d::OpType;
using Lists = std::vector<std::vector<at::Tensor>>;
using Tensors = std::vector<at::Tensor>;

std::vector<at::Tensor> all_of(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// The memory of this rank's part, which is like `part`, of what all ranks have.
const void* part_of(const TensorView& whole, const TensorView& part, int rank) {
  return static_cast<const std::byte*>(whole.data) + static_cast<std::size_t>(rank) * part.bytes();
}

void check_gathered(const char* call, const TensorView& in, const std::vector<TensorView>& out,
                    int rank) {
  const auto me = static_cast<std::size_t>(rank);
  check_own_part(call, in.count, out[me].count);
  check_apart(call, {in}, read_only(out), in.data, out[me].data);
}

void check_scattered(const char* call, const std::vector<ConstTensorView>& in,
                     const TensorView& out, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  check_own_part(call, in[me].count, out.count);
  check_apart(call, in, {out}, in[me].data, out.data);
}

/// `whole` is as many parts as there are ranks.
void check_parts(const char* call, const at::Tensor& whole, const at::Tensor& part, int size) {
  check_types(call, whole, part);
  if (whole.numel() == part.numel() * size) return;
  refuse(std::string(call) + ": the tensor for all ranks has " + std::to_string(whole.numel()) +
         " elements, and not " + std::to_string(size) + " times the " +
         std::to_string(part.numel()) + " of one rank");
}

/// How many elements each rank has of a tensor that is cut along its first dimension.
std::vector<std::size_t> counts_of(const char* call, const at::Tensor& tensor,
                                   const std::vector<std::int64_t>& splits, int size) {
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : tensor.numel();
  const auto ranks = static_cast<std::size_t>(size);
  if (splits.empty()) {
    if (rows % size != 0) {
      refuse(std::string(call) + ": the first dimension of the tensor, " + std::to_string(rows) +
             ", is not divisible by the " + std::to_string(size) + " ranks; pass split sizes");
    }
    return std::vector<std::size_t>(ranks, static_cast<std::size_t>(tensor.numel() / size));
  }
  check_count(call, "split size", splits.size(), ranks);
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  const bool is_negative =
      std::any_of(splits.begin(), splits.end(), [](std::int64_t each) { return each < 0; });
  if (sum != rows || is_negative) {
    refuse(std::string(call) + ": the split sizes come to " + std::to_string(sum) +
           ", and the first dimension of the tensor is " + std::to_string(rows));
  }
  const std::int64_t row = rows > 0 ? tensor.numel() / rows : 0;
  std::vector<std::size_t> counts;
  for (const std::int64_t each : splits) counts.push_back(static_cast<std::size_t>(each * row));
  return counts;
}

}  // namespace

// ---- With one tensor for each rank. ----

DlaunchBackend::WorkPointer DlaunchBackend::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& options) {
  constexpr const char* call = "broadcast";
  const auto views = alike_views_of(call, tensors);
  const auto view = views[index_of(call, tensors, options.rootTensor)];
  const int root = root_of(call, options.rootRank);
  const Copies copies = others_from(tensors, options.rootTensor);
  return collective({OpType::BROADCAST,
                     call,
                     "dlaunch:broadcast",
                     0,
                     options.timeout,
                     tensors,
                     tensors,
                     {},
                     copies},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_broadcast(view, root, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& options) {
  constexpr const char* call = "all_reduce";
  const auto view = alike_views_of(call, tensors, Elements::reduced).front();
  const auto reduction = reduction_of(call, options.reduceOp, tensors.front().scalar_type());
  fold_into_first(tensors, reduction);
  const Copies copies = others_from(tensors, 0);
  return collective({OpType::ALLREDUCE,
                     call,
                     "dlaunch:all_reduce",
                     0,
                     options.timeout,
                     tensors,
                     tensors,
                     {},
                     copies},
                    [&](Communicator& communicator, const auto& asked, Works& works) {
                      works.push_back(communicator.start_all_reduce(view, reduction, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::allreduce_sparse(
    Tensors& /*tensors*/, const c10d::AllreduceOptions& /*options*/) {
  refuse_unsupported(
      "all_reduce: dlaunch reduces dense tensors, and this one is sparse; pass tensor.to_dense(), "
      "or all_gather its indices and values");
}

DlaunchBackend::WorkPointer DlaunchBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* call = "all_reduce";
  std::vector<TensorView> views;
  Reduction reduction;
  for (const auto& tensor : tensors) {
    const auto view = view_of(call, tensor, Elements::reduced);
    reduction = reduction_of(call, options.reduceOp, tensor.scalar_type());
    // A tensor that is listed twice is reduced once, as by gloo.
    const bool is_new = std::none_of(views.begin(), views.end(), [&](const TensorView& other) {
      return other.data == view.data && other.count == view.count;
    });
    if (is_new || view.count == 0) views.push_back(view);
  }
  return collective({OpType::ALLREDUCE_COALESCED, call, "dlaunch:all_reduce", 0, options.timeout,
                     tensors, tensors},
                    [&](Communicator& communicator, const auto& asked, Works& works) {
                      for (const auto& view : views) {
                        works.push_back(communicator.start_all_reduce(view, reduction, asked));
                      }
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& options) {
  constexpr const char* call = "reduce";
  const auto view = view_of(call, only(call, tensors), Elements::reduced);
  const int root = root_of(call, options.rootRank);
  const auto reduction = reduction_of(call, options.reduceOp, tensors.front().scalar_type());
  const auto out = root == rank_ ? view : TensorView(nullptr, 0, view.dtype);
  return collective({OpType::REDUCE, call, "dlaunch:reduce", 0, options.timeout, tensors, tensors},
                    [&](Communicator& communicator, const auto& asked, Works& works) {
                      works.push_back(communicator.start_reduce(view, out, root, reduction, asked));
                    });
}

// ---- From each rank to all. ----

DlaunchBackend::WorkPointer DlaunchBackend::allgather(Lists& outputs, Tensors& given,
                                                      const c10d::AllgatherOptions& options) {
  constexpr const char* call = "all_gather";
  const Tensors own = in_order(call, given);
  const auto in = alike_views_of(call, own);
  const std::size_t each = own.size();
  check_count(call, "list of output tensors", outputs.size(), each);
  for (const auto& list : outputs) {
    check_count(call, "output tensor", list.size(), each * static_cast<std::size_t>(size_));
  }
  check_types(call, own.front(), outputs.front().front());
  Copies copies;
  const auto out = views_of(call, memory_for(call, outputs.front(), copies));
  check_lists_alike(call, outputs, copies);
  // The tensors of each rank lie side by side in a list.
  std::vector<std::vector<TensorView>> parts(each);
  for (std::size_t i = 0; i < out.size(); ++i) parts[i % each].push_back(out[i]);
  for (std::size_t i = 0; i < each; ++i) check_gathered(call, in[i], parts[i], rank_);
  return collective({OpType::ALLGATHER,
                     call,
                     "dlaunch:all_gather",
                     0,
                     options.timeout,
                     own,
                     all_of(outputs),
                     {},
                     copies,
                     each > 1 ? outputs.front().size() : 0},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      for (std::size_t i = 0; i < each; ++i) {
                        works.push_back(communicator.start_all_gather_list(in[i], parts[i], asked));
                      }
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::_allgather_base(at::Tensor& output, at::Tensor& given,
                                                            const c10d::AllgatherOptions& options) {
  constexpr const char* call = "all_gather_into_tensor";
  const at::Tensor input = in_order(call, given);
  check_parts(call, output, input, size_);
  const auto in = view_of(call, input);
  const auto out = view_of(call, output);
  check_apart(call, {in}, {out}, in.data, part_of(out, in, rank_));
  return collective({OpType::_ALLGATHER_BASE, call, "dlaunch:all_gather_into_tensor", 0,
                     options.timeout, Tensors{input}, Tensors{output}},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_all_gather(in, out, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::allgather_coalesced(
    Lists& outputs, Tensors& given, const c10d::AllgatherOptions& options) {
  constexpr const char* call = "all_gather";
  const Tensors inputs = in_order(call, given);
  check_count(call, "list of output tensors", outputs.size(), static_cast<std::size_t>(size_));
  for (const auto& list : outputs) check_count(call, "tensor", list.size(), inputs.size());
  std::vector<TensorView> in;
  std::vector<std::vector<TensorView>> out(inputs.size());
  Copies copies;
  for (std::size_t i = 0; i < inputs.size(); ++i) in.push_back(view_of(call, inputs[i]));
  for (const auto& list : outputs) {
    const Tensors memory = memory_for(call, list, copies);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_types(call, inputs[i], memory[i]);
      out[i].push_back(view_of(call, memory[i]));
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) check_gathered(call, in[i], out[i], rank_);
  return collective({OpType::ALLGATHER_COALESCED,
                     call,
                     "dlaunch:all_gather",
                     0,
                     options.timeout,
                     inputs,
                     all_of(outputs),
                     {},
                     copies,
                     size_ > 1 ? inputs.size() : 0},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      for (std::size_t i = 0; i < in.size(); ++i) {
                        works.push_back(communicator.start_all_gather_list(in[i], out[i], asked));
                      }
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& given, const c10d::AllgatherOptions& options) {
  constexpr const char* call = "all_gather_into_tensor";
  const Tensors inputs = in_order(call, given);
  check_count(call, "output tensor", outputs.size(), inputs.size());
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_parts(call, outputs[i], inputs[i], size_);
    in.push_back(view_of(call, inputs[i]));
    out.push_back(view_of(call, outputs[i]));
    check_apart(call, {in[i]}, {out[i]}, in[i].data, part_of(out[i], in[i], rank_));
  }
  return collective({OpType::COALESCED, call, "dlaunch:all_gather_into_tensor", 0, options.timeout,
                     inputs, outputs},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      for (std::size_t i = 0; i < in.size(); ++i) {
                        works.push_back(communicator.start_all_gather(in[i], out[i], asked));
                      }
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::gather(Lists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  constexpr const char* call = "gather";
  const at::Tensor input = in_order(call, only(call, inputs));
  const int root = root_of(call, options.rootRank);
  const auto in = view_of(call, input);
  std::vector<TensorView> out;
  Copies copies;
  if (rank_ == root) {
    const auto& list = only(call, outputs);
    check_count(call, "output tensor", list.size(), static_cast<std::size_t>(size_));
    check_types(call, input, list.front());
    out = views_of(call, memory_for(call, list, copies));
    check_gathered(call, in, out, rank_);
  } else if (!all_of(outputs).empty()) {
    refuse("gather: rank " + std::to_string(root) + " gathers, so no other rank has outputs");
  }
  return collective({OpType::GATHER,
                     call,
                     "dlaunch:gather",
                     0,
                     options.timeout,
                     Tensors{input},
                     all_of(outputs),
                     {},
                     copies},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_gather_list(in, out, root, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::scatter(Tensors& outputs, Lists& inputs,
                                                    const c10d::ScatterOptions& options) {
  constexpr const char* call = "scatter";
  const auto& output = only(call, outputs);
  const int root = root_of(call, options.rootRank);
  const auto out = view_of(call, output);
  Tensors list;
  std::vector<ConstTensorView> in;
  if (rank_ == root) {
    list = in_order(call, only(call, inputs));
    check_count(call, "input tensor", list.size(), static_cast<std::size_t>(size_));
    check_types(call, output, list.front());
    in = read_views_of(call, list);
    check_scattered(call, in, out, rank_);
  } else if (!all_of(inputs).empty()) {
    refuse("scatter: rank " + std::to_string(root) + " scatters, so no other rank has inputs");
  }
  return collective({OpType::SCATTER, call, "dlaunch:scatter", 0, options.timeout, list, outputs},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_scatter_list(in, out, root, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::reduce_scatter(
    Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* call = "reduce_scatter";
  const auto out = alike_views_of(call, outputs, Elements::reduced);
  check_count(call, "list of input tensors", inputs.size(), out.size());
  const auto reduction = reduction_of(call, options.reduceOp, outputs.front().scalar_type());
  Tensors held;
  std::vector<std::vector<ConstTensorView>> in;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Tensors list = in_order(call, inputs[i]);
    check_count(call, "input tensor", list.size(), static_cast<std::size_t>(size_));
    check_types(call, outputs[i], list.front());
    in.push_back(read_views_of(call, list, Elements::reduced));
    check_scattered(call, in[i], out[i], rank_);
    held.insert(held.end(), list.begin(), list.end());
  }
  return collective(
      {OpType::REDUCE_SCATTER, call, "dlaunch:reduce_scatter", 0, options.timeout, held, outputs},
      [&](Communicator& communicator, const auto& asked, Works& works) {
        for (std::size_t i = 0; i < out.size(); ++i) {
          works.push_back(communicator.start_reduce_scatter_list(in[i], out[i], reduction, asked));
        }
      });
}

DlaunchBackend::WorkPointer DlaunchBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& given, const c10d::ReduceScatterOptions& options) {
  constexpr const char* call = "reduce_scatter_tensor";
  const at::Tensor input = in_order(call, given);
  check_parts(call, input, output, size_);
  const auto in = view_of(call, input, Elements::reduced);
  const auto out = view_of(call, output, Elements::reduced);
  check_apart(call, {in}, {out}, part_of(in, out, rank_), out.data);
  const auto reduction = reduction_of(call, options.reduceOp, output.scalar_type());
  return collective({OpType::_REDUCE_SCATTER_BASE, call, "dlaunch:reduce_scatter_tensor", 0,
                     options.timeout, Tensors{input}, Tensors{output}},
                    [&](Communicator& communicator, const auto& asked, Works& works) {
                      works.push_back(communicator.start_reduce_scatter(in, out, reduction, asked));
                    });
}

DlaunchBackend::WorkPointer DlaunchBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& given, const c10d::ReduceScatterOptions& options) {
  constexpr const char* call = "reduce_scatter_tensor";
  const Tensors inputs = in_order(call, given);
  check_count(call, "output tensor", outputs.size(), inputs.size());
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  Reduction reduction;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_parts(call, inputs[i], outputs[i], size_);
    in.push_back(view_of(call, inputs[i], Elements::reduced));
    out.push_back(view_of(call, outputs[i], Elements::reduced));
    check_apart(call, {in[i]}, {out[i]}, part_of(in[i], out[i], rank_), out[i].data);
    reduction = reduction_of(call, options.reduceOp, outputs[i].scalar_type());
  }
  return collective(
      {OpType::COALESCED, call, "dlaunch:reduce_scatter_tensor", 0, options.timeout, inputs,
       outputs},
      [&](Communicator& communicator, const auto& asked, Works& works) {
        for (std::size_t i = 0; i < in.size(); ++i) {
          works.push_back(communicator.start_reduce_scatter(in[i], out[i], reduction, asked));
        }
      });
}

// ---- From each rank to each. ----

DlaunchBackend::WorkPointer DlaunchBackend::alltoall_base(at::Tensor& output, at::Tensor& given,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& options) {
  constexpr const char* call = "all_to_all_single";
  const at::Tensor input = apart_from(call, {output}, {given}).front();
  check_types(call, input, output);
  const auto in = view_of(call, input);
  const auto out = view_of(call, output);
  const auto in_counts = counts_of(call, input, input_splits, size_);
  const auto out_counts = counts_of(call, output, output_splits, size_);
  const auto me = static_cast<std::size_t>(rank_);
  check_own_part(call, in_counts[me], out_counts[me]);
  return collective(
      {OpType::ALLTOALL_BASE, call, "dlaunch:all_to_all_single", 0, options.timeout, Tensors{input},
       Tensors{output}},
      [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
        // Ranks that give sizes and ranks that give none may meet in one call.
        works.push_back(communicator.start_all_to_all_v(in, in_counts, out, out_counts, asked));
      });
}

DlaunchBackend::WorkPointer DlaunchBackend::alltoall(Tensors& outputs, Tensors& given,
                                                     const c10d::AllToAllOptions& options) {
  constexpr const char* call = "all_to_all";
  const Tensors inputs = apart_from(call, outputs, in_order(call, given));
  check_count(call, "output tensor", outputs.size(), static_cast<std::size_t>(size_));
  check_count(call, "input tensor", inputs.size(), static_cast<std::size_t>(size_));
  check_types(call, inputs.front(), outputs.front());
  const auto in = read_views_of(call, inputs);
  Copies copies;
  const auto out = views_of(call, memory_for(call, outputs, copies));
  const auto me = static_cast<std::size_t>(rank_);
  check_own_part(call, in[me].count, out[me].count);
  check_apart(call, in, read_only(out), nullptr, nullptr);
  return collective({OpType::ALLTOALL,
                     call,
                     "dlaunch:all_to_all",
                     0,
                     options.timeout,
                     inputs,
                     outputs,
                     {},
                     copies},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_all_to_all_list(in, out, asked));
                    });
}

}  // namespace dlaunch::torch_backend
