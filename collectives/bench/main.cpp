// The program behind `dlaunch bench`: one of the ranks that measure.
#include "collectives/bench/calibrate.hpp"
#include "collectives/bench/device.hpp"
#include "collectives/bench/explain.hpp"
#include "collectives/bench/measure.hpp"
#include "collectives/bench/memory.hpp"
#include "collectives/bench/options.hpp"
#include "collectives/bench/report.hpp"
#include "collectives/bench/sizes.hpp"
#include "collectives/communicator/table_in_use.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <sched.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::bench;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

const char* transport_text(int ranks, bool all_share, bool all_have_one) {
  if (ranks == 1) return "alone";
  if (!all_share) return "TCP";
  return all_have_one ? "shared memory" : "shared memory and TCP";
}

/// The place of the measurement, from all ranks' descriptions of their hosts.
Site site_of(const World& world, Communicator& communicator) {
  const WorldInfo& info = world.info();
  const auto segment = world.membership() ? world.membership()->segment() : nullptr;
  // A rank that is alone on its node has one for its flight recorder only.
  const bool is_common = segment != nullptr && segment->size() > 1;
  const auto all = communicator.all_gather_objects(
      Tree::dict({{"host", info.hostname},
                  {"cores", usable_cores()},
                  {"ranks", info.local_size},
                  {"segment", is_common ? static_cast<std::int64_t>(segment->id()) : 0},
                  {"crowded", segment != nullptr && segment->oversubscribed()}}));
  Site site;
  site.ranks = info.size;
  site.nodes = info.node_count;
  bool all_share = true;
  std::vector<std::int64_t> segments;
  for (const Tree& rank : all) {
    const auto& host = rank["host"].as<std::string>();
    const auto cores = static_cast<int>(rank["cores"].as<std::int64_t>());
    const auto ranks = static_cast<int>(rank["ranks"].as<std::int64_t>());
    site.crowded = site.crowded || rank["crowded"].as<bool>();
    const auto named = rank["segment"].as<std::int64_t>();
    const auto found = std::find(segments.begin(), segments.end(), named);
    const auto place = static_cast<int>(found - segments.begin());
    if (found == segments.end()) segments.push_back(named);
    all_share = all_share && named != 0;
    site.nodes_of_ranks.push_back(named != 0 ? std::optional(place) : std::nullopt);
    if (std::find(site.hosts.begin(), site.hosts.end(), host) == site.hosts.end()) {
      site.hosts.push_back(host);
    }
    // Cross-multiplied: cores for each rank, without fractions.
    if (site.cores == 0 || cores * site.ranks_there < site.cores * ranks) {
      site.cores = cores;
      site.ranks_there = ranks;
    }
  }
  site.shares_memory = all_share && segments.size() == 1;
  site.transport = transport_text(info.size, all_share, site.shares_memory);
  return site;
}

/// The same judgement as the ranks' own.
algorithms::Topology topology_of(const Site& site) {
  std::vector<std::uint64_t> numbers;
  bool some_share = false;
  for (std::size_t rank = 0; rank < site.nodes_of_ranks.size(); ++rank) {
    const auto node = static_cast<std::uint64_t>(site.nodes_of_ranks[rank].value_or(0));
    const bool shares = site.nodes_of_ranks[rank].has_value();
    numbers.push_back(shares ? 2 * node + 1 : 2 * rank);
    some_share = some_share || shares;
  }
  if (site.shares_memory || !some_share || site.ranks < 3) {
    return {.ranks = site.ranks, .shared = site.shares_memory};
  }
  return algorithms::topology_of(algorithms::Layout(numbers));
}

int say(const std::string& sentence, int code) {
  return say_and_exit_with(code, "dlaunch bench: " + sentence + "\n");
}

/// Whether all ranks can go on. `problem`: why this one cannot; empty if it can. The first such
/// rank's problem is printed once.
bool agreed(Communicator& communicator, const std::string& problem) {
  const int size = communicator.size();
  std::int32_t first[] = {problem.empty() ? size : communicator.rank()};
  communicator.all_reduce(first, ReduceOp::min);
  if (first[0] == communicator.rank()) say(problem, exit_code::usage);
  return first[0] == size;
}

bool all_agree(Communicator& communicator, bool here) {
  std::uint8_t all[] = {static_cast<std::uint8_t>(here)};
  communicator.all_reduce(all, ReduceOp::min);
  return all[0] != 0;
}

/// Rank 0 opens it before anything is measured.
std::string open_json(const Settings& settings, int rank, File& file) {
  if (rank != 0 || !settings.json || *settings.json == "-") return "";
  file.reset(std::fopen(settings.json->c_str(), "we"));
  if (file != nullptr) return "";
  return "--json " + *settings.json + ": cannot be written: " + std::strerror(errno);
}

/// The device that this rank measures, if one is asked for; or why it cannot.
std::string open_device(const Settings& settings, const WorldInfo& info,
                        std::unique_ptr<CudaDevice>& device) {
  if (settings.device == Device::host) return "";
  try {
    device = std::make_unique<CudaDevice>(info.local_rank);
    return "";
  } catch (const Error& error) {
    return std::string("--device cuda: on ") + info.hostname + " " + error.what();
  }
}

std::string lack_of_memory(const Settings& settings, const WorldInfo& info) {
  if (settings.device != Device::host) return "";
  const auto available = available_in(read_whole_file("/proc/meminfo").value_or(""));
  const auto ranks = static_cast<std::size_t>(info.local_size);
  const std::size_t needed = buffer_bytes(settings, info.size) * ranks;
  if (!available || needed <= *available) return "";
  constexpr std::size_t mebibyte = 1 << 20;
  return "--sizes: up to " + size_text(largest_message(settings, info.size)) + " take " +
         size_text(needed / mebibyte * mebibyte) + " on " + info.hostname + " for " +
         std::to_string(ranks) + " ranks, where " + size_text(*available / mebibyte * mebibyte) +
         " are free";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (::gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%F", &parts);
  return text;
}

/// Rank 0 writes a temporary file, which replaces FILE when everything is known.
int write_table(const Settings& settings, Communicator& communicator, const Site& site) {
  const bool first = communicator.rank() == 0;
  const std::string part = *settings.calibrate + ".part";
  const auto failure = [&] {
    return "--calibrate " + *settings.calibrate + ": cannot be written: " + std::strerror(errno);
  };
  File file;
  if (first) file.reset(std::fopen(part.c_str(), "we"));
  if (!agreed(communicator, first && file == nullptr ? failure() : "")) return exit_code::usage;
  std::string where = site_text(site);
  where = where.substr(2, where.size() - 3) + "; " + today();
  const auto entries =
      calibrate(communicator, settings, topology_of(site), [&](const algorithms::TableEntry& one) {
        if (!first) return;
        std::printf("%s\n", algorithms::entry_text(one).c_str());
        std::fflush(stdout);
      });
  if (!first) return 0;
  const std::vector<std::string> comments{where,
                                          std::string("element type: ") + to_string(settings.dtype),
                                          "In use with DLAUNCH_TABLE=FILE; lines that are not here "
                                          "have the limits of the built-in table."};
  const std::string text = algorithms::table_text(comments, entries);
  if (std::fputs(text.c_str(), file.get()) < 0 || std::fflush(file.get()) != 0 ||
      std::rename(part.c_str(), settings.calibrate->c_str()) != 0) {
    return say(failure(), exit_code::internal);
  }
  return 0;
}

int run(const Settings& settings) {
  const World world = World::from_env();
  const bool first = world.rank() == 0;
  if (const auto ending = objection(settings, world.size())) {
    return first ? say_and_exit_with(ending->code, ending->text) : ending->code;
  }
  Communicator communicator(world, "bench");
  Site site = site_of(world, communicator);
  if (settings.explain) {
    if (!first) return 0;
    return say_and_exit_with(0, site_text(site) + explain_text(settings, topology_of(site),
                                                               TableInUse::of(communicator)));
  }
  if (settings.calibrate) return write_table(settings, communicator, site);
  File file;
  std::unique_ptr<CudaDevice> device;
  if (!agreed(communicator, open_json(settings, world.rank(), file)) ||
      !agreed(communicator, open_device(settings, world.info(), device)) ||
      !agreed(communicator, lack_of_memory(settings, world.info()))) {
    return exit_code::usage;
  }

  const std::size_t bytes_max = largest_message(settings, world.size());
  if (device) {
    site.transport = device->library_name();
    device->bring_up(communicator);
  }
  Arena in(communicator, bytes_max, settings.buffers, device.get());
  Arena out(communicator, bytes_max, settings.buffers, device.get());
  // Each node has memory of its own.
  site.buffers_shared =
      world.info().node_count == 1 && all_agree(communicator, in.is_shared() && out.is_shared());

  const bool json_to_stdout = settings.json == "-";
  std::FILE* table = json_to_stdout ? stderr : stdout;
  const auto print = [&](const std::string& text) {
    if (!first) return;
    std::fputs(text.c_str(), table);
    std::fflush(table);  // Each row is shown at once.
  };
  print(head_text(site, settings));
  const auto rows = measure(communicator, settings, in, out,
                            [&](const Row& row) { print(row_text(row, site, settings)); });
  std::uint64_t wrong = 0;
  for (const Row& row : rows) wrong += row.wrong;
  if (first && settings.json) {
    std::FILE* written = json_to_stdout ? stdout : file.get();
    const std::string text = json_text(site, settings, rows);
    if (std::fputs(text.c_str(), written) < 0 || std::fflush(written) != 0) {
      return say("--json: cannot be written: " + std::string(std::strerror(errno)),
                 exit_code::internal);
    }
  }
  if (wrong == 0) return 0;
  return first ? say(std::to_string(wrong) + " elements were wrong; see #wrong", 1) : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  fill_standard_descriptors();
  const auto parsed = parse_options(std::vector<std::string>(argv + 1, argv + argc));
  if (const auto* ending = std::get_if<EarlyExit>(&parsed)) {
    return say_and_exit_with(ending->code, ending->text);
  }
  const auto& settings = std::get<Settings>(parsed);
  if (!settings.options_only) return run(settings);
  if (*settings.options_only > 0) {
    if (const auto ending = objection(settings, *settings.options_only)) {
      return say_and_exit_with(ending->code, ending->text);
    }
  }
  return 0;
} catch (const dlaunch::Error& error) {
  const int code = error.errc() == dlaunch::Errc::peer_lost ? dlaunch::exit_code::preempted : 1;
  return say(error.what(), code);
} catch (const std::bad_alloc&) {
  return say("out of memory; --sizes asks for buffers that do not fit", 1);
}
