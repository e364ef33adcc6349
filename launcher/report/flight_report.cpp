#include "launcher/report/flight_report.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::ordered_json;

using Key = std::pair<std::uint64_t, std::uint64_t>;  ///< Communicator and sequence.

bool is_text(const ordered_json& value) { return value.is_null() || value.is_string(); }
bool is_count(const ordered_json& value) { return value.is_null() || value.is_number_integer(); }

bool is_sound_call(const ordered_json& call) {
  return call.at("communicator").is_number_integer() && is_count(call.at("sequence")) &&
         is_count(call.at("count")) && call.at("op").is_string() && call.at("kind").is_string() &&
         is_text(call.at("dtype")) && is_text(call.at("reduction")) && is_text(call.at("site")) &&
         is_text(call.at("communicator_name")) && call.at("began").is_number() &&
         is_count(call.at(call.at("sequence").is_null() ? "peer" : "root")) &&
         (call.at("sequence").is_null() ? is_count(call.at("tag"))
                                        : call.at("argument").is_string());
}

bool is_sound_rank(const ordered_json& rank) {
  const auto& groups = rank.at("communicators");
  const auto records = rank.find("records");
  return rank.at("rank").is_number_integer() && rank.at("pid").is_number_integer() &&
         rank.at("state").is_string() && rank.at("doing").is_string() &&
         rank.at("calls").is_number_integer() &&
         std::all_of(groups.begin(), groups.end(),
                     [](const ordered_json& group) {
                       return group.at("id").is_number_integer() &&
                              group.at("sequence").is_number_integer() &&
                              group.at("ended").is_boolean();
                     }) &&
         (records == rank.end() || std::all_of(records->begin(), records->end(), is_sound_call));
}

/// It may come from another node, and by a store that the program can write to.
bool is_sound(const ordered_json& document) try {
  const auto& ranks = document.at("ranks");
  for (const char* number : {"node_rank", "nodes", "world_size", "epoch", "attempt"}) {
    if (!document.at(number).is_number_integer()) return false;
  }
  for (const char* text : {"job", "node", "host"}) {
    if (!document.at(text).is_string()) return false;
  }
  return ranks.is_array() && std::all_of(ranks.begin(), ranks.end(), is_sound_rank);
} catch (const ordered_json::exception&) {
  return false;
}

/// Keeps the first document of each node.
std::vector<ordered_json> parsed(const std::vector<std::string>& documents) {
  std::vector<ordered_json> read;
  std::set<std::string> nodes;
  for (const auto& text : documents) {
    auto document = ordered_json::parse(text, nullptr, false);
    if (!document.is_object() || !is_sound(document)) continue;
    if (nodes.insert(document["node"].get<std::string>()).second) {
      read.push_back(std::move(document));
    }
  }
  return read;
}

/// Takes node rank 0's head, if it is there.
ordered_json merged(std::vector<ordered_json> documents) {
  if (documents.empty()) return ordered_json::object();
  std::stable_sort(documents.begin(), documents.end(), [](const auto& a, const auto& b) {
    return a["node_rank"].template get<int>() < b["node_rank"].template get<int>();
  });
  ordered_json all = std::move(documents.front());
  for (auto& rank : all["ranks"]) rank["host"] = all["host"];
  for (std::size_t i = 1; i < documents.size(); ++i) {
    auto& document = documents[i];
    const bool tells = document.contains("stuck") && document["stuck"].is_string();
    if (tells && !all["stuck"].is_string()) all["stuck"] = document["stuck"];
    for (auto& rank : document["ranks"]) {
      rank["host"] = document["host"];
      all["ranks"].push_back(std::move(rank));
    }
  }
  std::sort(all["ranks"].begin(), all["ranks"].end(),
            [](const auto& a, const auto& b) { return a["rank"] < b["rank"]; });
  std::set<int> here;
  for (const auto& rank : all["ranks"]) here.insert(rank["rank"].get<int>());
  auto& missing = all["missing"] = ordered_json::array();
  for (int rank = 0; rank < all["world_size"].get<int>(); ++rank) {
    if (!here.contains(rank)) missing.push_back(rank);
  }
  return all;
}

std::string number_text(const ordered_json& number) {
  return number.is_null() ? "" : std::to_string(number.get<std::int64_t>());
}

/// "all_reduce #3 (sum, f32, 8 elements)", "join's all_reduce #4 (who is here, sum, u64, ...)".
std::string call_text(const ordered_json& call) {
  std::string details;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) details += (details.empty() ? "" : ", ") + text;
  };
  if (call["purpose"].is_string()) add(call["purpose"].get<std::string>());
  if (call["reduction"].is_string()) add(call["reduction"].get<std::string>());
  if (call["dtype"].is_string()) {
    add(call["dtype"].get<std::string>());
    if (!call["count"].is_null()) {
      const auto count = call["count"].get<std::uint64_t>();
      add(std::to_string(count) + (count == 1 ? " element" : " elements"));
    }
  }
  const std::string root = call.contains("root") ? number_text(call["root"]) : "";
  if (!root.empty()) add("root " + root);
  const std::string owner = call["owner"].is_string() ? call["owner"].get<std::string>() + " " : "";
  return owner + call["op"].get<std::string>() + " #" + number_text(call["sequence"]) +
         (details.empty() ? "" : " (" + details + ")");
}

bool is_collective(const ordered_json& call) {
  return call["sequence"].is_number() && call["kind"] == "call";
}

bool same_call(const ordered_json& a, const ordered_json& b) {
  constexpr std::array fields{"op", "purpose", "dtype", "count", "reduction", "root", "argument"};
  return std::all_of(fields.begin(), fields.end(),
                     [&](const char* field) { return a[field] == b[field]; });
}

struct Made {
  int rank;
  const ordered_json* call;
};

/// The ranks of each communicator, and the number of each one's last collective.
std::map<std::uint64_t, std::map<int, std::uint64_t>> progress(const ordered_json& flight) {
  std::map<std::uint64_t, std::map<int, std::uint64_t>> last;
  for (const auto& rank : flight["ranks"]) {
    for (const auto& group : rank["communicators"]) {
      last[group["id"].get<std::uint64_t>()][rank["rank"].get<int>()] =
          group["sequence"].get<std::uint64_t>();
    }
  }
  return last;
}

std::optional<ordered_json> divergence_at(const Key& key, const std::vector<Made>& made,
                                          const std::map<int, std::uint64_t>& last) {
  ordered_json found;
  found["communicator"] = key.first;
  found["communicator_name"] = (*made.front().call)["communicator_name"];
  found["sequence"] = key.second;
  const bool differs = std::any_of(made.begin(), made.end(), [&](const Made& other) {
    return !same_call(*other.call, *made.front().call);
  });
  ordered_json absent = ordered_json::array();
  for (const auto& [rank, sequence] : last) {
    if (sequence < key.second) absent.push_back(rank);
  }
  if (!differs && absent.empty()) return std::nullopt;
  found["kind"] = differs ? "mismatch" : "absent";
  auto& calls = found["calls"] = ordered_json::array();
  for (const auto& [rank, call] : made) {
    calls.push_back({{"rank", rank}, {"call", call_text(*call)}, {"site", (*call)["site"]}});
  }
  found["absent"] = std::move(absent);
  return found;
}

/// The one that began first; its records are marked.
std::optional<ordered_json> find_divergence(ordered_json& flight) {
  std::map<Key, std::vector<Made>> calls;
  for (const auto& rank : flight["ranks"]) {
    for (const auto& call : rank["records"]) {
      if (!is_collective(call)) continue;
      calls[{call["communicator"].get<std::uint64_t>(), call["sequence"].get<std::uint64_t>()}]
          .push_back({rank["rank"].get<int>(), &call});
    }
  }
  const auto last = progress(flight);
  std::optional<ordered_json> first;
  Key first_key;
  double first_began = 0;
  for (const auto& [key, made] : calls) {
    const auto group = last.find(key.first);
    auto found = divergence_at(
        key, made, group == last.end() ? std::map<int, std::uint64_t>{} : group->second);
    if (!found) continue;
    double began = (*made.front().call)["began"].get<double>();
    for (const auto& each : made) began = std::min(began, (*each.call)["began"].get<double>());
    if (first && began >= first_began) continue;
    first = std::move(found);
    first_key = key;
    first_began = began;
  }
  if (!first) return std::nullopt;
  for (auto& rank : flight["ranks"]) {
    for (auto& call : rank["records"]) {
      if (is_collective(call) && call["communicator"] == first_key.first &&
          call["sequence"] == first_key.second) {
        call["diverges"] = true;
      }
    }
  }
  return first;
}

/// How far behind the first of each communicator this rank is, at most.
std::uint64_t lag_of(const ordered_json& rank,
                     const std::map<std::uint64_t, std::map<int, std::uint64_t>>& last) {
  std::uint64_t lag = 0;
  for (const auto& group : rank["communicators"]) {
    const auto& all = last.at(group["id"].get<std::uint64_t>());
    const auto most = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    lag = std::max(lag, most->second - group["sequence"].get<std::uint64_t>());
  }
  return lag;
}

/// Over several lines for a flight, which people look into.
std::string dumped(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

bool has_calls(const std::vector<std::string>& documents) {
  for (const auto& document : parsed(documents)) {
    for (const auto& rank : document["ranks"]) {
      if (rank["calls"] != 0) return true;
    }
  }
  return false;
}

bool is_complete(const std::vector<std::string>& documents) {
  const ordered_json all = merged(parsed(documents));
  return !all.empty() && all["missing"].empty();
}

std::string merge_flight(const std::vector<std::string>& documents) {
  ordered_json flight = merged(parsed(documents));
  if (flight.empty()) return "{}\n";
  auto ranks = std::move(flight["ranks"]);
  flight.erase("ranks");
  flight["divergence"] = nullptr;
  flight["ranks"] = std::move(ranks);
  if (auto divergence = find_divergence(flight)) flight["divergence"] = std::move(*divergence);
  return dumped(flight, 1);
}

std::string merge_status(const std::vector<std::string>& documents) {
  ordered_json status = merged(parsed(documents));
  if (status.empty()) return "{}\n";
  const auto last = progress(status);
  // A rank that has no communicator is behind nobody, as far as anybody can tell.
  for (auto& rank : status["ranks"]) {
    rank["behind"] =
        rank["communicators"].empty() ? ordered_json(nullptr) : ordered_json(lag_of(rank, last));
  }
  return dumped(status, -1);
}

std::string status_text(const std::vector<std::string>& documents) {
  const ordered_json status = ordered_json::parse(merge_status(documents));
  if (!status.contains("ranks")) return "";
  const auto world = status["world_size"].get<std::size_t>();
  std::string text = "job " + status["job"].get<std::string>() + ", epoch " +
                     number_text(status["epoch"]) + ", attempt " + number_text(status["attempt"]) +
                     ": " + std::to_string(world) + (world == 1 ? " rank" : " ranks");
  const auto missing = status["missing"].get<std::vector<int>>();
  if (!missing.empty()) {
    text += ", of which " + number_ranges(missing) +
            " cannot be seen: their nodes do not answer, or are not connected";
  }
  text += "\n";
  if (status["stuck"].is_string()) text += "stuck: " + status["stuck"].get<std::string>() + "\n";
  // Several nodes need one more column.
  std::size_t host_width = 0;
  for (const auto& rank : status["ranks"]) {
    if (status["nodes"] != 1) {
      host_width =
          std::max({host_width, rank["host"].get_ref<const std::string&>().size(), std::size_t{4}});
    }
  }
  const auto host_column = [&](std::string host) {
    if (host_width == 0) return std::string();
    host.resize(host_width, ' ');
    return "  " + host;
  };
  char line[96];
  std::snprintf(line, sizeof line, " %8s  %-8s %7s  %s\n", "pid", "state", "behind", "doing");
  text += "  rank" + host_column("host") + line;
  for (const auto& rank : status["ranks"]) {
    const std::string number = std::to_string(rank["rank"].get<int>());
    text += std::string(6 - std::min<std::size_t>(number.size(), 6), ' ') + number +
            host_column(rank["host"].get<std::string>());
    const std::string behind = rank["behind"].is_null() ? "-" : number_text(rank["behind"]);
    std::snprintf(line, sizeof line, " %8d  %-8s %7s  ", rank["pid"].get<int>(),
                  rank["state"].get<std::string>().c_str(), behind.c_str());
    text += line + rank["doing"].get<std::string>() + "\n";
  }
  return text;
}

}  // namespace dlaunch::launcher
