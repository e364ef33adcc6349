#include "collectives/bench/report.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dlaunch::bench {

namespace {

constexpr std::size_t hosts_shown_max = 4;

std::string hosts_text(const std::vector<std::string>& hosts) {
  std::string text;
  for (std::size_t i = 0; i < std::min(hosts.size(), hosts_shown_max); ++i) {
    text += (i == 0 ? "" : ", ") + hosts[i];
  }
  if (hosts.size() > hosts_shown_max) {
    text += fmt::format(" and {} more", hosts.size() - hosts_shown_max);
  }
  return text;
}

std::string plural(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Some four figures, whatever the magnitude.
std::string figure(double value) {
  if (value == 0) return "-";
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0);
}

const char* buffers_text(Buffers buffers) {
  switch (buffers) {
    case Buffers::warm:
      return "warm";
    case Buffers::rotating:
      return "rotating";
    case Buffers::registered:
      return "registered";
  }
  return "";
}

/// A warning if registered buffers are only ordinary memory: it matters more than any figure.
const char* sharing_text(const Site& site, const Settings& settings) {
  if (settings.buffers != Buffers::registered || site.buffers_shared) return "";
  if (settings.device == Device::cuda) return "";
  return " (not shared by all ranks: calls copy)";
}

std::string root_text(const Operation& entry, const Settings& settings) {
  if (!entry.rooted()) return "-";
  return settings.root ? std::to_string(*settings.root) : "rotate";
}

constexpr const char* columns =
    "{:<15} {:>12} {:>12} {:>5} {:>8} {:>6} {:>10} {:>8} {:>8} {:>7} "
    "{:>10} {:>10} {:>10}\n";

/// With a device there is one column more.
std::string with_host(std::string line, const std::string& cell, const Settings& settings) {
  if (settings.device == Device::host) return line;
  line.pop_back();
  return line + fmt::format(" {:>10}\n", cell);
}

}  // namespace

std::string site_text(const Site& site) {
  return fmt::format("# dlaunch bench {}: {} on {}, {}; {}: {}; {} for {}{}\n", version(),
                     plural(site.ranks, "rank"), plural(site.nodes, "node"), site.transport,
                     site.hosts.size() == 1 ? "host" : "hosts", hosts_text(site.hosts),
                     plural(site.cores, "core"), plural(site.ranks_there, "rank"),
                     site.oversubscribed() ? ": oversubscribed" : "");
}

std::string head_text(const Site& site, const Settings& settings) {
  std::string text = site_text(site);
  text += fmt::format(
      "# {} buffers{}{}{}; {}, then {} of {}; {}\n", buffers_text(settings.buffers),
      sharing_text(site, settings), settings.in_place ? ", in place" : "",
      settings.tested    ? ", started calls, tested"
      : settings.started ? ", started calls"
                         : "",
      plural(settings.warmup, "warm-up call"), plural(settings.repetitions, "repetition"),
      settings.iterations ? plural(static_cast<int>(*settings.iterations), "call")
                          : fmt::format("about {} ms", settings.repetition_time.count()),
      settings.check ? "every element is checked after each" : "samples are checked before them");
  text += "#\n";
  text += with_host(fmt::format(fmt::runtime(columns), "#", "size", "count", "type", "redop",
                                "root", "time", "algbw", "busbw", "#wrong", "p50", "p99", "max"),
                    "host", settings);
  text += with_host(fmt::format(fmt::runtime(columns), "# op", "(B)", "(elements)", "", "", "",
                                "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)"),
                    "(us)", settings);
  return text;
}

std::string row_text(const Row& row, const Site& site, const Settings& settings) {
  const Operation& entry = operation(row.op);
  return with_host(
      fmt::format(fmt::runtime(columns), entry.name, row.amount.bytes, row.amount.count,
                  entry.sized() ? to_string(settings.dtype) : "-",
                  entry.reduces() ? to_string(settings.redop) : "-", root_text(entry, settings),
                  figure(row.time_us), figure(algorithm_bandwidth(row)),
                  figure(bus_bandwidth(row, site.ranks)), row.wrong, figure(row.p50_us),
                  figure(row.p99_us), figure(row.max_us)),
      figure(row.host_us), settings);
}

std::string json_text(const Site& site, const Settings& settings, std::span<const Row> rows) {
  nlohmann::ordered_json all;
  all["program"] = "dlaunch bench";
  all["version"] = version();
  all["ranks"] = site.ranks;
  all["nodes"] = site.nodes;
  all["transport"] = site.transport;
  all["hosts"] = site.hosts;
  all["cores"] = site.cores;
  all["oversubscribed"] = site.oversubscribed();
  all["device"] = settings.device == Device::cuda ? "cuda" : "host";
  all["dtype"] = to_string(settings.dtype);
  all["redop"] = to_string(settings.redop);
  all["any_order"] = settings.any_order;
  all["buffers"] = buffers_text(settings.buffers);
  all["buffers_shared"] = site.buffers_shared;
  all["in_place"] = settings.in_place;
  all["started"] = settings.started;
  all["tested"] = settings.tested;
  all["checked"] = settings.check ? "all" : "samples";
  all["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    const Operation& entry = operation(row.op);
    nlohmann::ordered_json line;
    line["op"] = entry.name;
    line["size"] = row.amount.bytes;
    line["count"] = row.amount.count;
    if (entry.rooted()) line["root"] = root_text(entry, settings);
    line["time_us"] = row.time_us;
    line["time_least_us"] = row.least_us;
    line["time_most_us"] = row.most_us;
    line["algbw_gb_s"] = algorithm_bandwidth(row);
    line["busbw_gb_s"] = bus_bandwidth(row, site.ranks);
    line["wrong"] = row.wrong;
    line["p50_us"] = row.p50_us;
    line["p99_us"] = row.p99_us;
    line["max_us"] = row.max_us;
    if (settings.device == Device::cuda) line["host_us"] = row.host_us;
    line["iterations"] = row.iterations;
    line["repetitions"] = row.repetitions;
    all["rows"].push_back(std::move(line));
  }
  return all.dump(2) + "\n";
}

}  // namespace dlaunch::bench
