#include "launcher/hang/awaited_keys.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"
#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t keys_told_max = 4;
constexpr std::size_t others_told_max = 4;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A key may be any bytes. PyTorch's keys differ at their ends, so a long key is cut at its
/// beginning.
std::string shown_key(const std::string& key) {
  constexpr std::size_t most = 160;
  const auto text = key.size() > most ? "..." + key.substr(key.size() - most) : key;
  return in_quotes(without_controls(text));
}

/// Clients that wait for the same keys.
struct Together {
  std::vector<int> ranks;
  std::vector<std::string> others;  ///< Clients whose rank is not known.
  std::uint64_t for_ms = 0;
};

std::string who(const Together& clients) {
  std::string text;
  if (!clients.ranks.empty()) text = ranks_text(clients.ranks);
  if (!clients.others.empty()) {
    text += (text.empty() ? "" : " and ") + listed(clients.others, others_told_max);
  }
  return text;
}

/// The ranks for which the barrier waits: none of them has a client in it.
std::string absent_text(const Together& clients, std::int32_t world) {
  constexpr std::size_t told_max = 8;
  std::vector<int> absent;
  for (int rank = 0; rank < world; ++rank) {
    if (!std::ranges::count(clients.ranks, rank)) absent.push_back(rank);
  }
  if (absent.empty() || absent.size() > told_max || !clients.others.empty()) return "";
  return ranks_text(absent) + (absent.size() == 1 ? " does" : " do") + " not wait for it";
}

/// Whether all ranks come to the barrier of this key.
bool is_barrier_key(std::string_view key) {
  return key.ends_with("/last_worker") || key.find("store_based_barrier_key") != key.npos;
}

}  // namespace

std::string setter_of(std::string_view key) {
  if (is_barrier_key(key)) return "the last rank to come to the barrier sets it";
  // "default_pg/<default group>/<other group>/<device>/<number>/<rank>", some of it empty; up to
  // torch 2.0 "worker/attempt_0/default_pg/0/<number>/<rank>", and "rank_<rank>" at its end.
  std::vector<std::string_view> parts = split(key, '/');
  std::erase(parts, "");
  const auto begin = std::ranges::find(parts, "default_pg");
  if (begin == parts.end()) return "";
  parts.erase(parts.begin(), begin + 1);
  if (parts.size() < 3) return "";
  std::string_view rank = parts.back();
  if (rank.starts_with("rank_")) rank.remove_prefix(std::string_view("rank_").size());
  if (!is_number(rank)) return "";
  const auto nccl = std::ranges::find(parts, "cuda"), gloo = std::ranges::find(parts, "cpu");
  if (nccl != parts.end()) rank = "0";
  const auto device = nccl != parts.end() ? nccl : gloo;
  const bool subgroup = device != parts.end() && device > parts.begin() + 1;
  return "rank " + std::string(rank) + (subgroup ? " of group " + std::string(*(device - 1)) : "") +
         " sets it when it joins (" + (nccl != parts.end() ? "NCCL" : "gloo") + ")";
}

std::string awaited_text(const JobStoreWaits& waits) {
  using Asked = std::tuple<std::vector<std::string>, std::uint64_t, std::int64_t, std::int64_t>;
  std::map<Asked, Together> all;
  for (const auto& wait : waits.waits) {
    if (wait.keys.empty()) continue;
    Together& same = all[{wait.keys, wait.more, wait.arrived, wait.expected}];
    if (wait.rank >= 0) {
      same.ranks.push_back(wait.rank);
    } else {
      same.others.push_back(wait.client);
    }
    same.for_ms = std::max(same.for_ms, wait.for_ms);
  }
  std::string text;
  for (const auto& [asked, clients] : all) {
    const auto& [keys, more, arrived, expected] = asked;
    std::string line = "  " + listed(keys, keys_told_max, shown_key);
    if (more > 0) line += " and perhaps some of " + std::to_string(more) + " others";
    line += ", by " + who(clients) + " for " + age_text(std::chrono::milliseconds(clients.for_ms));
    std::string why;
    if (expected > 0) {
      why = "a barrier to which " + std::to_string(arrived) + " of " + std::to_string(expected) +
            " have come";
    } else if (keys.size() == 1) {
      why = setter_of(keys.front());
    }
    const bool for_all = expected > 0 || (keys.size() == 1 && is_barrier_key(keys.front()));
    if (const auto absent = for_all ? absent_text(clients, waits.world_size) : "";
        !absent.empty()) {
      why += ", and " + absent;
    }
    text += line + (why.empty() ? "" : ": " + why) + "\n";
  }
  if (waits.left_out > 0) {
    text += "  and more, by " + plural(static_cast<long>(waits.left_out), "client") + "\n";
  }
  return text;
}

}  // namespace dlaunch::launcher
