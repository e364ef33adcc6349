#include "collectives/bench/options.hpp"

#include "collectives/bench/sizes.hpp"
#include "collectives/reduce/reduce.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/text/take.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::bench {

namespace {

constexpr long calls_max = 1'000'000'000;
constexpr long warmup_max = 1'000'000;
constexpr long repetitions_max = 10'000;
constexpr long ranks_max = 1'000'000;
constexpr std::chrono::minutes repetition_time_max{10};

/// The value of the row of that name, if the row is offered.
template <class Rows, class Value, class Offered>
Taken store_named(std::string_view text, const Rows& rows,
                  Value std::ranges::range_value_t<Rows>::*value, const Offered& is_offered,
                  Value& target) {
  std::string all;
  for (const auto& row : rows) {
    if (!is_offered(row)) continue;
    if (text == row.name) return target = row.*value, std::nullopt;
    all += (all.empty() ? "" : ", ") + std::string(row.name);
  }
  return Complaint{in_quotes(text) + " is none of " + all};
}
constexpr auto is_any = [](const auto&) { return true; };
constexpr auto is_whole = [](const ReduceOpTraits& row) { return is_all(row.op); };
Taken store_dtype(Settings& settings, std::string_view text) {
  return store_named(text, element_types, &ElementType::dtype, is_any, settings.dtype);
}
Taken store_redop(Settings& settings, std::string_view text) {
  return store_named(text, reduce_ops, &ReduceOpTraits::op, is_whole, settings.redop);
}

Taken store_ops(std::string_view text, std::vector<Op>& target) {
  target.clear();
  std::string list = "all";
  for (const auto& entry : operations()) list.append(", ").append(entry.name);
  for (const auto name : split(text, ',')) {
    const auto* entry = find_operation(name);
    if (entry == nullptr && name != "all") {
      return Complaint{in_quotes(name) + " is none of " + list};
    }
    for (const auto& candidate : operations()) {
      const bool listed = std::find(target.begin(), target.end(), candidate.op) != target.end();
      if ((name == "all" || &candidate == entry) && !listed) target.push_back(candidate.op);
    }
  }
  return std::nullopt;
}

constexpr auto buffer_kinds =
    std::to_array<take::Named<Buffers>>({{"warm", Buffers::warm},
                                         {"rotating", Buffers::rotating},
                                         {"registered", Buffers::registered}});
constexpr auto devices =
    std::to_array<take::Named<Device>>({{"host", Device::host}, {"cuda", Device::cuda}});

Taken store_time(Settings& settings, std::string_view text) {
  const auto read = parse_duration(text);
  if (!read || read->count() == 0 || *read > repetition_time_max) {
    return Complaint{in_quotes(text) + " is not a duration such as 30ms or 1 (seconds), up to 10m"};
  }
  settings.repetition_time = *read;
  return std::nullopt;
}

/// A number, or a word that leaves it unset.
template <auto Member, long least, long most>
Taken number_or(Settings& settings, std::string_view text, std::string_view word) {
  if (text == word) return (settings.*Member).reset(), std::nullopt;
  return take::number<Member, least, most>(settings, text);
}

/// The names of rows that are offered, behind `words`, as Option::words has them.
template <class Rows, class Offered>
std::string words_of(std::string words, const Rows& rows, const Offered& is_offered) {
  for (const auto& row : rows) {
    if (!is_offered(row)) continue;
    if (!words.empty()) words += ' ';
    words += row.name;
  }
  return words;
}
const std::string op_words = words_of("all", operations(), is_any);
const std::string dtype_words = words_of("", element_types, is_any);
const std::string redop_words = words_of("", reduce_ops, is_whole);

constexpr std::string_view options = "Options";

// clang-format off
const auto rows = std::to_array<OptionRow<Settings>>({
  {{"ops", 0, "OP,OP...", "all", options, {},
    "What to measure; all, or some of those listed below.", {}, {}, op_words},
   [](Settings& s, std::string_view v) { return store_ops(v, s.ops); }},
  {{"sizes", 0, "SIZES", "4:64M:x4", options, {},
    "Bytes: a list (4,64K,1M), a range by a factor (4:64M:x4) or a step (1M:4M:+1M)."},
   take::by<&Settings::sizes, read_sizes>},
  {{"dtype", 0, "TYPE", "f32", options, {},
    "The elements: u8, i32, f16, bf16, f32, f64, bool, c64...", {}, {}, dtype_words}, store_dtype},
  {{"redop", 0, "OP", "sum", options, {},
    "How they are reduced: sum, product, min, max, mean, band, bor, bxor, land, lor, lxor.",
    {}, {}, redop_words}, store_redop},
  {{"any-order", 0, "", "0", options, {},
    "Fold in whatever order is fastest (Reduction::any_order)."}, take::flag<&Settings::any_order>},
  {{"root", 0, "R|rotate", "rotate", options, {},
    "The root of rooted operations; rotate: another one in every call, so that a root cannot run "
    "ahead of those that receive."},
   [](Settings& s, std::string_view v) {
     return number_or<&Settings::root, 0, ranks_max>(s, v, "rotate"); }},
  {{"buffers", 0, "warm|rotating|registered", "warm", options, {},
    "warm: the same memory in every call; rotating: other memory, more than the caches hold; "
    "registered: warm, but memory that the ranks of a node share, or that NCCL knows."},
   take::choice<&Settings::buffers, buffer_kinds>},
  {{"device", 0, "host|cuda", "host", options, {},
    "The buffers' memory; cuda: a GPU's for each rank, moved by NCCL (--nproc-per-node [gpu])."},
   take::choice<&Settings::device, devices>},
  {{"in-place", 0, "", "0", options, {},
    "reduce: the root's input and output are one buffer. broadcast and all_reduce always work in "
    "place, the others never."}, take::flag<&Settings::in_place>},
  {{"started", 0, "", "0", options, {},
    "Measure the started forms: start, then wait."}, take::flag<&Settings::started>},
  {{"tested", 0, "", "0", options, {},
    "Measure the started forms: start, then test until the call is complete."},
   take::flag<&Settings::tested>},
  {{"check", 0, "", "0", options, {},
    "Verify every element of a result after every repetition. Without it, samples of one result "
    "before them."}, take::flag<&Settings::check>},
  {{"explain", 0, "", "0", options, {},
    "Print which algorithm serves each size, and why; measure nothing."},
   take::flag<&Settings::explain>},
  {{"calibrate", 0, "FILE", "", options, {},
    "Measure where which algorithm is faster here, and write a table to FILE, which programs "
    "started with DLAUNCH_TABLE=FILE go by. --ops and --sizes do not count."},
   take::text<&Settings::calibrate>},
  {{"warmup", 0, "N", "5", options, {},
    "Calls before anything is timed."}, take::number<&Settings::warmup, 0, warmup_max>},
  {{"iters", 0, "N|auto", "auto", options, {},
    "Calls of one repetition; auto: as many as --repetition-time takes."},
   [](Settings& s, std::string_view v) {
     return number_or<&Settings::iterations, 1, calls_max>(s, v, "auto"); }},
  {{"repetitions", 0, "N", "9", options, {}, "The time is the median of so many."},
   take::number<&Settings::repetitions, 1, repetitions_max>},
  {{"repetition-time", 0, "TIME", "30ms", options, {},
    "The time that one repetition should take."}, store_time},
  {{"json", 0, "FILE|-", "", options, {},
    "Write the results as JSON; -: to stdout, and the table to stderr."},
   take::text<&Settings::json>},
  {{"options-only", 0, "N", "", options, {},
    "Read these options for N ranks (0: any number), and run nothing."},
   take::number<&Settings::options_only, 0, ranks_max>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

EarlyExit refuse(const std::string& sentence) {
  return bench_options().refuse(exit_code::usage, sentence);
}

/// Keeps the operations that a device has: a barrier moves nothing, and is the host's.
std::optional<EarlyExit> keep_to_device(Settings& settings) {
  if (settings.device == Device::host) return std::nullopt;
  std::erase_if(settings.ops, [](Op op) { return !operation(op).on_device; });
  if (settings.ops.empty())
    return refuse("barriers move no buffers, and NCCL has no scan; measure them without --device");
  if (settings.explain) {
    return refuse("--explain says how host buffers move; NCCL_DEBUG=INFO says what NCCL does");
  }
  if (settings.calibrate) return refuse("--calibrate is of host buffers; NCCL chooses by itself");
  return std::nullopt;
}

}  // namespace

const OptionTable& bench_options() {
  static const OptionTable table(
      "dlaunch bench",
      "Usage: dlaunch bench [options]\n"
      "\n"
      "Measures the collectives between as many ranks as the launcher starts: its\n"
      "options (--nproc-per-node [cpu], --nnodes, --rdzv-endpoint...) are taken too.\n",
      rows,
      {"Operations: " +
           joined(operations(), [](const auto& entry) { return std::string(entry.name); }) + ".",
       "time is the slowest rank's, the median of the repetitions; p50, p99 and max are of single "
       "calls. size, algbw and busbw are defined as in nccl-tests; docs/bench.md says how."});
  return table;
}

Reduction reduction_of(const Settings& settings) {
  const Reduction reduction(settings.redop);
  return settings.any_order ? reduction.any_order() : reduction;
}

std::variant<Settings, EarlyExit> parse_options(std::span<const std::string> arguments) {
  Settings settings;
  GivenOptions given(bench_options());
  std::vector<std::string> none;
  if (auto stop = given.take_arguments(arguments, {}, none)) return *std::move(stop);
  if (auto stop = given.apply(rows, settings)) return *std::move(stop);
  settings.started = settings.started || settings.tested;
  if (settings.calibrate && (settings.explain || settings.json || settings.started)) {
    return refuse(
        "--calibrate writes a table and nothing else: leave out --explain, --json and --started");
  }
  if (const auto exit = keep_to_device(settings)) return *exit;
  const bool reduces = std::any_of(settings.ops.begin(), settings.ops.end(),
                                   [](Op op) { return operation(op).reduces(); });
  const auto senseless = Reducer::objection(settings.redop, settings.dtype, true);
  if (reduces && senseless) return refuse(*senseless);
  return settings;
}

std::optional<EarlyExit> objection(const Settings& settings, int ranks) {
  if (settings.root && *settings.root >= ranks) {
    return refuse("--root " + std::to_string(*settings.root) + ": with " + std::to_string(ranks) +
                  " ranks the last one is " + std::to_string(ranks - 1));
  }
  const bool messages_alone = std::all_of(settings.ops.begin(), settings.ops.end(),
                                          [](Op op) { return operation(op).needs_another(); });
  if (ranks < 2 && settings.calibrate) {
    return refuse("--calibrate: one rank has nothing to choose; --nproc-per-node 2");
  }
  if (ranks < 2 && messages_alone) {
    return refuse("one rank has no other to send to; --nproc-per-node 2");
  }
  return std::nullopt;
}

}  // namespace dlaunch::bench
