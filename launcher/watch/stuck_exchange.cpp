#include "launcher/watch/stuck_exchange.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::json;

constexpr std::chrono::microseconds waited_max = std::chrono::hours(24 * 365);
/// A node tells of so many calls that wait: those in which most ranks do.
constexpr std::size_t calls_max = 16;
/// A node tells what so many of its absent ranks do; the reports tell no more of all.
constexpr std::size_t described_max = 16;

std::string dumped(const json& what) {
  return what.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_json(const CallWait& wait) {
  using Microseconds = std::chrono::duration<std::int64_t, std::micro>;
  return {{"communicator", wait.communicator},
          {"sequence", wait.sequence},
          {"rank", wait.rank},
          {"turn", wait.turn},
          {"whom", wait.whom},
          {"group_size", wait.group_size},
          {"terms", wait.terms},
          {"call", wait.call},
          {"waited_us", std::chrono::duration_cast<Microseconds>(wait.waited).count()},
          {"waiting", wait.waiting},
          {"is_over", wait.is_over}};
}

CallWait from_json(const json& told) {
  CallWait wait;
  told.at("communicator").get_to(wait.communicator);
  told.at("sequence").get_to(wait.sequence);
  told.at("rank").get_to(wait.rank);
  told.at("turn").get_to(wait.turn);
  told.at("whom").get_to(wait.whom);
  told.at("group_size").get_to(wait.group_size);
  told.at("terms").get_to(wait.terms);
  told.at("call").get_to(wait.call);
  const auto waited = told.at("waited_us").get<std::int64_t>();
  wait.waited = std::chrono::microseconds(std::clamp<std::int64_t>(waited, 0, waited_max.count()));
  told.at("waiting").get_to(wait.waiting);
  told.at("is_over").get_to(wait.is_over);
  return wait;
}

}  // namespace

std::string waits_text(std::vector<CallWait> waits) {
  std::stable_sort(waits.begin(), waits.end(),
                   [](const auto& a, const auto& b) { return a.waiting > b.waiting; });
  json told = json::array();
  for (std::size_t i = 0; i < std::min(waits.size(), calls_max); ++i) {
    told.push_back(to_json(waits[i]));
  }
  return dumped(told);
}

std::vector<CallWait> read_waits(std::string_view text) try {
  std::vector<CallWait> waits;
  for (const auto& told : json::parse(text)) waits.push_back(from_json(told));
  return waits;
} catch (const json::exception&) {
  return {};
}

std::string wait_text(const CallWait& wait) { return dumped(to_json(wait)); }

std::optional<CallWait> read_wait(std::string_view text) try {
  return from_json(json::parse(text));
} catch (const json::exception&) {
  return std::nullopt;
}

std::string doing_document(const wire::Doing& doing) {
  json told = json::array();
  for (std::size_t i = 0; i < doing.ranks.size(); ++i) {
    told.push_back({doing.ranks[i], doing.texts[i]});
  }
  return dumped(told);
}

void add_doing(wire::Doing& doing, std::string_view text) try {
  const auto told = json::parse(text).get<std::vector<std::pair<std::int32_t, std::string>>>();
  for (const auto& [rank, what] : told) {
    if (doing.ranks.size() == wire::inquired_ranks_max) return;
    doing.ranks.push_back(rank);
    doing.texts.push_back(what);
  }
} catch (const json::exception&) {
  // An unreadable text is no answer.
}

std::string part_text(const StuckCall& part) {
  json absent = json::array();
  for (std::size_t i = 0; i < part.absent.size(); ++i) {
    const auto& [rank, doing] = part.absent[i];
    absent.push_back({rank, i < described_max ? doing : ""});
  }
  return dumped({{"waiting", part.waiting}, {"absent", absent}, {"known", part.known}});
}

bool add_part(StuckCall& stuck, std::string_view text) try {
  const json told = json::parse(text);
  const auto waiting = told.at("waiting").get<std::vector<int>>();
  const auto absent = told.at("absent").get<std::vector<std::pair<int, std::string>>>();
  stuck.known += told.at("known").get<int>();
  stuck.waiting.insert(stuck.waiting.end(), waiting.begin(), waiting.end());
  stuck.absent.insert(stuck.absent.end(), absent.begin(), absent.end());
  std::sort(stuck.absent.begin(), stuck.absent.end());
  return true;
} catch (const json::exception&) {
  return false;
}

}  // namespace dlaunch::launcher
