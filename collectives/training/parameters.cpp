#include "collectives/training/parameters.hpp"

#include "collectives/api/buffers.hpp"
#include "collectives/call/call.hpp"
#include "collectives/reduce/element_types.hpp"
#include "collectives/reduce/reduce.hpp"

#include <dlaunch/tree.hpp>

#include <algorithm>
#include <limits>
#include <optional>

namespace dlaunch::training {
namespace {

/// Larger views travel alone, smaller ones in chunks of up to so many bytes.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

bool has_mean(DType dtype) { return !Reducer::objection(ReduceOp::mean, dtype, false); }

bool is_usable(const TensorView& view) {
  return size_of(view.dtype) != 0 && (view.data != nullptr || view.count == 0);
}

bool is_summed_on_device(DType dtype) {
  return is_of(ElementKind::floating, dtype) && element_type(dtype).in_nccl;
}

std::string place_text(int device) {
  return device < 0 ? "in host memory" : "on CUDA device " + std::to_string(device);
}

/// Why these are not all in one place, or are invalid there.
std::optional<std::string> objection_to_places(std::span<const Parameter> parameters,
                                               std::span<const TensorView> buffers) {
  const int device = device_of(parameters);
  const auto check = [&](const TensorView& view,
                         const std::string& which) -> std::optional<std::string> {
    if (view.count == 0) return std::nullopt;
    if (view.place.cuda_device != device) {
      return which + " lies " + place_text(view.place.cuda_device) + ", and the first parameter " +
             place_text(device);
    }
    if (device < 0 || view.stride == 1 || view.count == 1) return std::nullopt;
    return which + " has a stride, which nothing on a CUDA device may have";
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string which = name_of(parameters, i);
    if (auto found = check(parameters[i].value, which)) return found;
    if (auto found = check(parameters[i].gradient, "the gradient of " + which)) return found;
    if (device >= 0 && !is_summed_on_device(parameters[i].value.dtype)) {
      return which + " has " + to_string(parameters[i].value.dtype) +
             " elements, which NCCL does not sum";
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (auto found = check(buffers[i], "buffer " + std::to_string(i))) return found;
  }
  return std::nullopt;
}

std::string shape_text(const Parameter& parameter) {
  if (parameter.shape.empty()) return "[" + std::to_string(parameter.value.count) + "]";
  std::string text;
  for (const std::int64_t extent : parameter.shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + "]";
}

/// Why this rank's parameters cannot be trained.
std::optional<std::string> objection(std::span<const Parameter> parameters,
                                     std::span<const TensorView> buffers) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, value, gradient, shape] = parameters[i];
    const std::string which = name_of(parameters, i);
    if (!is_usable(value) || !is_usable(gradient)) {
      return which + " is a null pointer, or has no dtype";
    }
    if (!has_mean(value.dtype)) {
      return which + " has " + to_string(value.dtype) +
             " elements: gradients are floating-point or complex";
    }
    const bool provided = gradient.count == 0;
    if (!provided && (gradient.count != value.count || gradient.dtype != value.dtype)) {
      return which + " has " + std::to_string(value.count) + " " + to_string(value.dtype) +
             " elements, its gradient " + std::to_string(gradient.count) + " " +
             to_string(gradient.dtype);
    }
    std::uint64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
    if (!shape.empty() && elements != value.count) {
      return which + " has " + std::to_string(value.count) + " elements, which are not " +
             shape_text(parameters[i]);
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!is_usable(buffers[i])) {
      return "buffer " + std::to_string(i) + " is a null pointer, or has no dtype";
    }
  }
  return objection_to_places(parameters, buffers);
}

/// A line for each thing that ranks must have in common.
Tree::List describe(std::span<const Parameter> parameters, std::span<const TensorView> buffers,
                    const ReducerSettings& settings) {
  Tree::List lines;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const char* const where = parameters[i].value.place.is_host() ? "" : ", CUDA";
    lines.emplace_back(name_of(parameters, i) + " (" + to_string(parameters[i].value.dtype) + " " +
                       shape_text(parameters[i]) + where + ")");
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    lines.emplace_back("buffer " + std::to_string(i) + " (" + to_string(buffers[i].dtype) + " [" +
                       std::to_string(buffers[i].count) + "])");
  }
  lines.emplace_back("settings (first_bucket_bytes " + std::to_string(settings.first_bucket_bytes) +
                     ", bucket_bytes " + std::to_string(settings.bucket_bytes) + ", find_unused " +
                     (settings.find_unused ? "true" : "false") + ", rebuild_buckets " +
                     (settings.rebuild_buckets ? "true" : "false") + ")");
  return lines;
}

constexpr std::int64_t ranks_max = std::int64_t{1} << 31;
constexpr std::int64_t nothing_wrong = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string name_of(std::span<const Parameter> parameters, std::size_t index) {
  std::string text = "parameter " + std::to_string(index);
  if (!parameters[index].name.empty()) text += " '" + parameters[index].name + "'";
  return text;
}

int device_of(std::span<const Parameter> parameters) {
  return parameters.empty() ? -1 : parameters.front().value.place.cuda_device;
}

void check_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                      std::span<const TensorView> buffers, const ReducerSettings& settings,
                      const Options& options, const JoinGroup& group) {
  const Tree::List mine = describe(parameters, buffers, settings);
  const std::string place = place_text(options.site);
  const Tree theirs = communicator.broadcast_object(Tree::list({mine, place}), 0, options);
  const auto& first = theirs[0].as<Tree::List>();
  const std::string call = " in the reducer's broadcast_object #" + std::to_string(group.number());
  const std::string me = "rank " + std::to_string(communicator.rank());
  const auto differs = std::mismatch(first.begin(), first.end(), mine.begin(), mine.end());
  // The lowest is reported: errors before differences, earlier ones first.
  std::int64_t key = nothing_wrong;
  std::string sentence;
  if (const auto wrong = objection(parameters, buffers)) {
    key = communicator.rank();
    sentence = "GradientReducer: on " + me + " " + *wrong + place;
  } else if (differs.first != first.end() || differs.second != mine.end()) {
    key = (differs.first - first.begin() + 1) * ranks_max + communicator.rank();
    const auto text = [](auto at, auto end) {
      return at == end ? std::string("nothing more") : at->template as<std::string>();
    };
    sentence = "GradientReducer: ranks have different parameters: rank 0 has " +
               text(differs.first, first.end()) + call + theirs[1].as<std::string>() + ", but " +
               me + " has " + text(differs.second, mine.end()) + call + place;
  }
  std::int64_t lowest = key;
  communicator.all_reduce(lowest, ReduceOp::min, options);
  if (lowest == nothing_wrong) return;
  const Tree told =
      communicator.broadcast_object(Tree(sentence), static_cast<int>(lowest % ranks_max), options);
  throw Error(lowest < ranks_max ? Errc::misuse : Errc::mismatch, told.as<std::string>());
}

void spread(Communicator& communicator, std::span<const TensorView> views, int root,
            const Options& options) {
  std::vector<std::byte> chunk;
  for (std::size_t at = 0; at < views.size();) {
    if (views[at].bytes() >= chunk_bytes || !views[at].place.is_host()) {
      communicator.broadcast(views[at++], root, options);
      continue;
    }
    std::size_t end = at, bytes = 0;
    while (end < views.size() && views[end].place.is_host() &&
           bytes + views[end].bytes() <= chunk_bytes) {
      bytes += views[end++].bytes();
    }
    chunk.resize(bytes);
    std::byte* place = chunk.data();
    for (std::size_t i = at; i < end; place += views[i++].bytes()) pack(views[i], place);
    communicator.broadcast(chunk, root, options);
    place = chunk.data();
    for (std::size_t i = at; i < end; place += views[i++].bytes()) unpack(place, views[i]);
    at = end;
  }
}

}  // namespace dlaunch::training
