#include "collectives/bench/calibrate.hpp"

#include "collectives/bench/calls.hpp"
#include "collectives/bench/measure.hpp"
#include "collectives/communicator/table_in_use.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

namespace dlaunch::bench {

namespace {

using Line = algorithms::Row;
using algorithms::Table;
using algorithms::TableEntry;
using algorithms::Topology;
using Micros = std::chrono::duration<double, std::micro>;

constexpr std::size_t first_bytes = 64;
/// How far beyond the built-in limit sizes are measured.
constexpr std::size_t reach = 32;
constexpr std::size_t bytes_max = std::size_t{8} << 20;       ///< One buffer's.
constexpr std::size_t all_bytes_max = std::size_t{64} << 20;  ///< All ranks' buffers.
/// By how much two measurements of the same thing may differ.
constexpr double noise = 0.03;
constexpr long repetition_calls_max = 1L << 20;  ///< The most calls of one repetition.

Table with_limit(const Table& table, std::string_view name, std::size_t most) {
  Table changed = table;
  changed.set_limit(name, most);
  return changed;
}

/// A call that is measured in rounds, whose order and tables alternate.
class Contest {
 public:
  Contest(Communicator& communicator, const Settings& settings, const Operation& operation,
          const Amount& amount, Arena& in, Arena& out)
      : communicator_(communicator),
        settings_(settings),
        name_(operation.name),
        bytes_(amount.bytes),
        calls_(communicator, settings, operation, amount, in, out) {}

  /// The least of the repetitions, which alternate.
  void run(const std::shared_ptr<const Table>& with, const std::shared_ptr<const Table>& without,
           Duel& duel) {
    for (const auto& table : {with, without}) verify(table);
    for (int i = 0; i < settings_.warmup; ++i) calls_(turn_++);
    const Micros one = slowest(time(1));
    const auto fitting = static_cast<long>(Micros(settings_.repetition_time) / one);
    const long calls = settings_.iterations.value_or(std::clamp(fitting, 1L, repetition_calls_max));
    for (int i = 0; i < settings_.repetitions; ++i) {
      for (const bool is_with : {i % 2 == 0, i % 2 != 0}) {
        TableInUse::replace(communicator_, is_with ? with : without);
        const double took = slowest(time(calls)).count();
        double& least = is_with ? duel.with_us : duel.without_us;
        least = i == 0 ? took : std::min(least, took);
      }
    }
  }

 private:
  void meet() { communicator_.barrier(); }

  void verify(const std::shared_ptr<const Table>& table) {
    TableInUse::replace(communicator_, table);
    meet();
    std::uint64_t wrong[] = {calls_.verify(turn_++, Depth::every_element)};
    communicator_.all_reduce(wrong);
    if (wrong[0] == 0) return;
    throw Error(Errc::internal,
                fmt::format("{} of {} bytes: {} elements were wrong", name_, bytes_, wrong[0]));
  }
  Micros time(long calls) {
    meet();
    const auto begin = Clock::now();
    for (long i = 0; i < calls; ++i) calls_(turn_++);
    return Micros(Clock::now() - begin) / static_cast<double>(calls);
  }
  Micros slowest(Micros mine) {
    double values[] = {mine.count()};
    communicator_.all_reduce(values, ReduceOp::max);
    return Micros(std::max(values[0], 1e-3));
  }

  Communicator& communicator_;
  const Settings& settings_;
  const std::string_view name_;
  const std::size_t bytes_;
  Calls calls_;
  long turn_ = 0;
};

/// The topology in which the line serves calls of its operation.
Topology for_line(Topology topology, const Line& row) {
  topology.freedom = allows(row.freedom, Freedom::extends) ? row.freedom : Freedom::extends;
  return topology;
}

Settings for_line(const Settings& settings, const Line& row) {
  Settings changed = settings;
  changed.any_order = row.freedom == Freedom::any;
  return changed;
}

std::string pairs_text(const std::vector<Duel>& duels) {
  std::string text;
  for (const Duel& duel : duels) {
    text += fmt::format("{}{} {:.1f}/{:.1f}", text.empty() ? "" : ", ", duel.bytes, duel.with_us,
                        duel.without_us);
  }
  return text;
}

/// The limit that just lets these sizes pass.
std::size_t limit_for(const Line& row, const Topology& topology, const std::vector<Duel>& duels,
                      std::size_t cut) {
  if (cut == 0) return 0;
  if (cut < duels.size()) {
    return row.measured(duels[cut - 1].bytes, topology.ranks, topology.nodes);
  }
  // Nothing is known beyond what was measured.
  const std::size_t top = row.measured(duels.back().bytes, topology.ranks, topology.nodes);
  return std::max(row.most, top);
}

}  // namespace

std::size_t best_cut(std::span<const Duel> duels, std::size_t now) {
  std::vector<double> gains{0};  // The gains of the first 0, 1, 2... duels.
  for (const Duel& duel : duels) {
    gains.push_back(gains.back() + std::log(duel.without_us / duel.with_us));
  }
  const auto best = std::max_element(gains.begin(), gains.end());
  return *best > gains[now] + noise ? static_cast<std::size_t>(best - gains.begin()) : now;
}

std::vector<std::size_t> sizes_to_measure(const Table& table, const Line& row,
                                          const Topology& topology) {
  std::vector<std::size_t> sizes;
  const Topology here = for_line(topology, row);
  const Operation* const entry = find_measuring(row.op);
  if (entry == nullptr || row.name.empty() || !row.fits(here)) return sizes;
  const Table with = with_limit(table, row.name, algorithms::unlimited);
  const Table without = with_limit(table, row.name, 0);
  const auto n = static_cast<std::size_t>(here.ranks);
  const std::size_t limit = row.limit(here.ranks, here.nodes);
  // Some algorithms hold what all ranks have.
  std::size_t top = std::min(bytes_max, all_bytes_max / n / entry->parts(static_cast<int>(n)));
  if (limit < top / reach) top = std::max(limit * reach, first_bytes);
  for (std::size_t bytes = first_bytes; bytes <= top; bytes *= 2) {
    const auto by = with.select(row.op, bytes, here).algorithm;
    if (by == row.choice.algorithm && by != without.select(row.op, bytes, here).algorithm) {
      sizes.push_back(bytes);
    }
  }
  return sizes;
}

std::vector<TableEntry> calibrate(Communicator& communicator, const Settings& settings,
                                  const Topology& topology,
                                  const std::function<void(const TableEntry&)>& told) {
  const auto original = std::make_shared<const Table>(TableInUse::of(communicator));
  Table table = *original;
  std::vector<TableEntry> entries;
  for (const Line& line : original->rows()) {
    const Line row = line.name.empty() ? line : *table.find(line.name);
    const auto sizes = sizes_to_measure(table, row, topology);
    if (sizes.empty()) continue;
    const Topology here = for_line(topology, row);
    const Settings how = for_line(settings, row);
    const Operation& entry = *find_measuring(row.op);
    const auto with = std::make_shared<Table>(table), without = std::make_shared<Table>(table);
    with->set_limit(row.name, algorithms::unlimited);
    without->set_limit(row.name, 0);
    std::vector<Duel> duels;
    std::size_t now = 0;  // How many duels it wins with the present limit.
    for (const std::size_t bytes : sizes) {
      const std::size_t parts = entry.parts(here.ranks);
      const Amount amount = amount_for(entry, bytes * parts, size_of(how.dtype), here.ranks);
      Arena in(communicator, amount.bytes, how.buffers),
          out(communicator, amount.bytes, how.buffers);
      duels.push_back({bytes});
      Contest(communicator, how, entry, amount, in, out).run(with, without, duels.back());
      now += bytes <= row.limit(here.ranks, here.nodes);
    }
    TableInUse::replace(communicator, original);
    const std::size_t most = limit_for(row, here, duels, best_cut(duels, now));
    table.set_limit(row.name, most);
    const std::string before =
        row.most == algorithms::unlimited ? "unlimited" : std::to_string(row.most);
    entries.push_back(
        {std::string(row.name), most,
         fmt::format("{}, {}; before: {}. us with/without: {}", to_string(row.choice.algorithm),
                     to_string(row.measure), before, pairs_text(duels))});
    told(entries.back());
  }
  return entries;
}

}  // namespace dlaunch::bench
