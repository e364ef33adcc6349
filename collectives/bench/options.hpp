#pragma once

#include "collectives/bench/operations.hpp"
#include "runtime/base/text/options.hpp"

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch::bench {

/// --buffers.
enum class Buffers {
  warm,        ///< The same memory in every call.
  rotating,    ///< Other memory in every call, together more than the caches hold.
  registered,  ///< The same memory in every call, from Communicator::allocate.
};

/// --device: where the buffers lie.
enum class Device { host, cuda };

/// The command line, resolved. A plain value.
struct Settings {
  std::vector<Op> ops;
  std::vector<std::size_t> sizes;  ///< Bytes, as asked.
  DType dtype = DType::f32;
  ReduceOp redop = ReduceOp::sum;
  bool any_order = false;   ///< Reduction::any_order
  std::optional<int> root;  ///< Unset: another one in every call.
  Buffers buffers = Buffers::warm;
  Device device = Device::host;
  bool in_place = false;
  bool started = false;
  bool tested = false;  ///< Calls are started, and tested until they are complete.
  bool check = false;
  bool explain = false;  ///< Name the algorithm of each row, and measure nothing.
  int warmup = 0;
  std::optional<long> iterations;  ///< Calls of one repetition; unset: found by measuring.
  int repetitions = 0;
  std::chrono::milliseconds repetition_time{};
  std::optional<std::string> json;       ///< A file, or "-".
  std::optional<std::string> calibrate;  ///< The file to write a table of limits to.
  /// Only read the options, for so many ranks; 0: unknown.
  std::optional<int> options_only;
};

Reduction reduction_of(const Settings& settings);

const OptionTable& bench_options();

/// Reads the options. Pure.
std::variant<Settings, EarlyExit> parse_options(std::span<const std::string> arguments);
/// Why the settings do not fit so many ranks; nullopt: they do.
std::optional<EarlyExit> objection(const Settings& settings, int ranks);

}  // namespace dlaunch::bench
