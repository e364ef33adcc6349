#include "collectives/bench/options.hpp"

#include "collectives/bench/sizes.hpp"
#include "collectives/reduce/reduce.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::bench {

namespace {

using Result = std::optional<Complaint>;

constexpr long calls_max = 1'000'000'000;
constexpr long warmup_max = 1'000'000;
constexpr long repetitions_max = 10'000;
constexpr long ranks_max = 1'000'000;
constexpr std::chrono::minutes repetition_time_max{10};

constexpr std::array dtypes = {DType::u8,  DType::i8,  DType::i16,     DType::u16, DType::i32,
                               DType::u32, DType::i64, DType::u64,     DType::f16, DType::bf16,
                               DType::f32, DType::f64, DType::boolean, DType::c64, DType::c128};
constexpr std::array redops = {ReduceOp::sum,  ReduceOp::product, ReduceOp::min, ReduceOp::max,
                               ReduceOp::mean, ReduceOp::band,    ReduceOp::bor, ReduceOp::bxor};

template <class Values>
std::string names_of(const Values& values) {
  std::string list;
  for (const auto& value : values) {
    list += list.empty() ? "" : ", ";
    list += to_string(value);
  }
  return list;
}

template <class Values, class Target>
Result store_named(std::string_view text, const Values& values, Target& target) {
  for (const auto& value : values) {
    if (text != to_string(value)) continue;
    target = value;
    return std::nullopt;
  }
  return Complaint{in_quotes(text) + " is none of " + names_of(values)};
}

template <class Target>
Result store_number(std::string_view text, long least, long most, Target& target) {
  const auto read = read_integer(text, least, most);
  if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
  target = static_cast<Target>(std::get<long>(read));
  return std::nullopt;
}

Result store_ops(std::string_view text, std::vector<Op>& target) {
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

Result store_buffers(std::string_view text, Buffers& target) {
  if (text == "warm") return target = Buffers::warm, std::nullopt;
  if (text == "rotating") return target = Buffers::rotating, std::nullopt;
  if (text == "registered") return target = Buffers::registered, std::nullopt;
  return Complaint{in_quotes(text) + " is none of warm, rotating, registered"};
}

Result store_device(std::string_view text, Device& target) {
  if (text == "host") return target = Device::host, std::nullopt;
  if (text == "cuda") return target = Device::cuda, std::nullopt;
  return Complaint{in_quotes(text) + " is none of host, cuda"};
}

Result store_time(std::string_view text, std::chrono::milliseconds& target) {
  const auto read = parse_duration(text);
  if (!read || read->count() == 0 || *read > repetition_time_max) {
    return Complaint{in_quotes(text) + " is not a duration such as 30ms or 1 (seconds), up to 10m"};
  }
  target = *read;
  return std::nullopt;
}

struct Entry {
  std::string_view flag;
  std::string_view argument;  ///< Empty for a flag.
  std::string_view standard;  ///< The default, as one would write it.
  std::string_view help;
  Result (*apply)(Settings& settings, std::string_view value);
};

// clang-format off
const std::array<Entry, 19> table = {{
  {"ops", "OP,OP...", "all", "What to measure; all, or some of those listed below.",
   [](Settings& s, std::string_view v) { return store_ops(v, s.ops); }},
  {"sizes", "SIZES", "4:64M:x4",
   "Bytes: a list (4,64K,1M), a range by a factor (4:64M:x4) or a step (1M:4M:+1M).",
   [](Settings& s, std::string_view v) -> Result {
     auto read = read_sizes(v);
     if (auto* complaint = std::get_if<Complaint>(&read)) return std::move(*complaint);
     s.sizes = std::get<0>(std::move(read));
     return std::nullopt; }},
  {"dtype", "TYPE", "f32", "The elements: u8, i32, f16, bf16, f32, f64, bool, c64...",
   [](Settings& s, std::string_view v) { return store_named(v, dtypes, s.dtype); }},
  {"redop", "OP", "sum", "How they are reduced: sum, product, min, max, mean, band, bor, bxor.",
   [](Settings& s, std::string_view v) { return store_named(v, redops, s.redop); }},
  {"any-order", "", "", "Fold in whatever order is fastest (Reduction::any_order).",
   [](Settings& s, std::string_view) -> Result { s.any_order = true; return std::nullopt; }},
  {"root", "R|rotate", "rotate",
   "The root of rooted operations; rotate: another one in every call, so that a root cannot run "
   "ahead of those that receive.",
   [](Settings& s, std::string_view v) -> Result {
     if (v == "rotate") return s.root.reset(), std::nullopt;
     return store_number(v, 0, ranks_max, s.root.emplace()); }},
  {"buffers", "KIND", "warm",
   "warm: the same memory in every call; rotating: other memory, more than the caches hold; "
   "registered: warm, but memory that the ranks of a node share, or that NCCL knows.",
   [](Settings& s, std::string_view v) { return store_buffers(v, s.buffers); }},
  {"device", "host|cuda", "host",
   "Where the buffers lie; cuda: on a GPU for each rank, moved by NCCL (--nproc-per-node [gpu]).",
   [](Settings& s, std::string_view v) { return store_device(v, s.device); }},
  {"in-place", "", "",
   "reduce: the root's input and output are one buffer. broadcast and all_reduce always work in "
   "place, the others never.",
   [](Settings& s, std::string_view) -> Result { s.in_place = true; return std::nullopt; }},
  {"started", "", "", "Measure the started forms: start, then wait.",
   [](Settings& s, std::string_view) -> Result { s.started = true; return std::nullopt; }},
  {"check", "", "",
   "Verify every element of a result after every repetition. Without it, samples of one result "
   "before them.",
   [](Settings& s, std::string_view) -> Result { s.check = true; return std::nullopt; }},
  {"explain", "", "", "Print which algorithm serves each size, and why; measure nothing.",
   [](Settings& s, std::string_view) -> Result { s.explain = true; return std::nullopt; }},
  {"calibrate", "FILE", "",
   "Measure where which algorithm is faster here, and write a table to FILE, by which programs go "
   "that are started with DLAUNCH_TABLE=FILE. --ops and --sizes do not count.",
   [](Settings& s, std::string_view v) -> Result {
     if (v.empty()) return Complaint{"the value is empty"};
     s.calibrate = v;
     return std::nullopt; }},
  {"warmup", "N", "5", "Calls before anything is timed.",
   [](Settings& s, std::string_view v) { return store_number(v, 0, warmup_max, s.warmup); }},
  {"iters", "N|auto", "auto", "Calls of one repetition; auto: as many as --repetition-time takes.",
   [](Settings& s, std::string_view v) -> Result {
     if (v == "auto") return s.iterations.reset(), std::nullopt;
     return store_number(v, 1, calls_max, s.iterations.emplace()); }},
  {"repetitions", "N", "9", "The time is the median of so many.",
   [](Settings& s, std::string_view v) { return store_number(v, 1, repetitions_max, s.repetitions); }},
  {"repetition-time", "TIME", "30ms", "What one repetition should take.",
   [](Settings& s, std::string_view v) { return store_time(v, s.repetition_time); }},
  {"json", "FILE|-", "", "Write the results as JSON; -: to stdout, and the table to stderr.",
   [](Settings& s, std::string_view v) -> Result {
     if (v.empty()) return Complaint{"the value is empty"};
     s.json = v;
     return std::nullopt; }},
  {"options-only", "N", "", "Read these options for N ranks (0: any number), and run nothing.",
   [](Settings& s, std::string_view v) { return store_number(v, 0, ranks_max, s.options_only.emplace()); }},
}};
// clang-format on

const Entry* find_entry(std::string_view flag) {
  std::string name(flag);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Entry& entry) { return entry.flag == name; });
  return found == table.end() ? nullptr : &*found;
}

Ending refuse(const std::string& sentence) {
  return {exit_code::usage, "dlaunch bench: " + sentence + "\n"};
}

/// Keeps the operations that a device has: a barrier moves nothing, and is the host's.
std::optional<Ending> keep_to_device(Settings& settings) {
  if (settings.device == Device::host) return std::nullopt;
  std::erase_if(settings.ops, [](Op op) { return !operation(op).sized; });
  if (settings.ops.empty())
    return refuse("barriers move no buffers; measure them without --device");
  if (settings.explain) {
    return refuse("--explain says how host buffers move; NCCL_DEBUG=INFO says what NCCL does");
  }
  if (settings.calibrate) return refuse("--calibrate is of host buffers; NCCL chooses by itself");
  return std::nullopt;
}

/// "; did you mean --sizes?" where a flag is near.
std::string suggestion(std::string_view flag) {
  constexpr std::size_t near_max = 2;
  for (const auto& entry : table) {
    if (edit_distance(flag, entry.flag) <= near_max) {
      return "; did you mean --" + std::string(entry.flag) + "?";
    }
  }
  return "; dlaunch bench --help lists the options";
}

void wrap(std::string& out, std::size_t column, std::string_view text) {
  constexpr std::size_t width = 80;
  std::size_t at = column;
  for (const auto word : split(text, ' ')) {
    if (at > column && at + 1 + word.size() > width) {
      out.append("\n").append(column, ' ');
      at = column;
    } else if (at > column) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  out += '\n';
}

}  // namespace

Reduction reduction_of(const Settings& settings) {
  const Reduction reduction(settings.redop);
  return settings.any_order ? reduction.any_order() : reduction;
}

std::variant<Settings, Ending> parse_options(std::span<const std::string> arguments) {
  Settings settings;
  for (const auto& entry : table) {
    if (!entry.standard.empty()) entry.apply(settings, entry.standard);
  }
  for (std::size_t next = 0; next < arguments.size(); ++next) {
    const std::string_view argument = arguments[next];
    if (argument == "--help" || argument == "-h") return Ending{0, help_text()};
    if (!argument.starts_with("--")) {
      return refuse("unknown argument " + in_quotes(argument) +
                    "; it runs a program of its own and takes options alone");
    }
    const auto equals = argument.find('=');
    const auto flag = argument.substr(2, equals == argument.npos ? equals : equals - 2);
    const auto* entry = find_entry(flag);
    if (entry == nullptr) return refuse("unknown option --" + std::string(flag) + suggestion(flag));
    std::string value;
    if (entry->argument.empty() && equals != argument.npos) {
      return refuse("--" + std::string(entry->flag) + " takes no value");
    }
    if (!entry->argument.empty() && equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (!entry->argument.empty()) {
      if (++next == arguments.size()) {
        return refuse("--" + std::string(entry->flag) +
                      " needs a value: " + std::string(entry->argument));
      }
      value = arguments[next];
    }
    if (const auto complaint = entry->apply(settings, value)) {
      return refuse("--" + std::string(entry->flag) + " " + value + ": " + complaint->sentence);
    }
  }
  if (settings.calibrate && (settings.explain || settings.json || settings.started)) {
    return refuse(
        "--calibrate writes a table and nothing else: leave out --explain, --json and --started");
  }
  if (const auto ending = keep_to_device(settings)) return *ending;
  const bool reduces = std::any_of(settings.ops.begin(), settings.ops.end(),
                                   [](Op op) { return operation(op).reduces; });
  const auto senseless = Reducer::objection(settings.redop, settings.dtype, true);
  if (reduces && senseless) return refuse(*senseless);
  return settings;
}

std::optional<Ending> objection(const Settings& settings, int ranks) {
  if (settings.root && *settings.root >= ranks) {
    return refuse("--root " + std::to_string(*settings.root) + ": with " + std::to_string(ranks) +
                  " ranks the last one is " + std::to_string(ranks - 1));
  }
  const bool pairs_alone = std::all_of(settings.ops.begin(), settings.ops.end(),
                                       [](Op op) { return operation(op).pair; });
  if (ranks < 2 && settings.calibrate) {
    return refuse("--calibrate: one rank has nothing to choose; --nproc-per-node 2");
  }
  if (ranks < 2 && pairs_alone) {
    return refuse("one rank has no other to send to; --nproc-per-node 2");
  }
  return std::nullopt;
}

std::string help_text() {
  constexpr std::size_t column = 26;
  std::string out =
      "Usage: dlaunch bench [options]\n"
      "\n"
      "Measures the collectives between as many ranks as the launcher starts: its\n"
      "options (--nproc-per-node [cpu], --nnodes, --rdzv-endpoint...) are taken too.\n"
      "\n"
      "Options:\n";
  for (const auto& entry : table) {
    std::string line = "  --" + std::string(entry.flag);
    if (!entry.argument.empty()) line.append(" ").append(entry.argument);
    std::string help(entry.help);
    if (!entry.standard.empty()) help.append(" [").append(entry.standard).append("]");
    if (line.size() + 2 > column) {
      out.append(line).append("\n").append(column, ' ');
    } else {
      out.append(line).append(column - line.size(), ' ');
    }
    wrap(out, column, help);
  }
  out += "\nOperations:\n  ";
  std::string names;
  for (const auto& entry : operations()) names.append(names.empty() ? "" : " ").append(entry.name);
  wrap(out, 2, names);
  out += "\n";
  wrap(out, 0,
       "time is the slowest rank's, the median of the repetitions; p50, p99 and max are of single "
       "calls. size, algbw and busbw are defined as in nccl-tests; docs/bench.md says how.");
  return out;
}

}  // namespace dlaunch::bench
