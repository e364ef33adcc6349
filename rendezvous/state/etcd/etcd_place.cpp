#include "rendezvous/state/etcd/etcd_place.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace dlaunch::rendezvous::etcd {
namespace {

using namespace std::chrono_literals;

constexpr auto read_time = 10s;
/// How often standbys look for the leader.
constexpr auto look_interval = 250ms;
constexpr std::size_t page_rows = 1000;

constexpr std::string_view leader_key = "leader", commits_key = "commits", rows_prefix = "rows/";
/// The key of the version of the rows. Without it the version is 1, which has no rows of drains.
constexpr std::string_view version_key = "version";
constexpr std::uint64_t rows_version = 2;
/// The transactions of a batch that takes several: written before the first, erased after the
/// last, and complete when the first of these two keys is there.
constexpr std::string_view log_key = "log", log_prefix = "log/";

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw Failure(Failure::Kind::refused, "a number that is none: " + name_in_quotes(text));
}

Json request_of(const std::string& prefix, const Operation& operation) {
  const std::string key = prefix + operation.key;
  if (operation.kind == Operation::Kind::put) return put_of(key, operation.value);
  return erase_of(key, operation.kind == Operation::Kind::erase_all);
}

/// A checksum, by which it is known that the transactions were read back complete.
std::string sealed(const std::string& log) {
  return std::to_string(log.size()) + " " + std::to_string(text_hash(log));
}

std::vector<Operation> end_of_log() {
  return {{Operation::Kind::erase, std::string(log_key), {}},
          {Operation::Kind::erase_all, std::string(log_prefix), {}}};
}

}  // namespace

EtcdPlace::EtcdPlace(const Servers& servers)
    : servers_(servers),
      name_(to_string(servers)),
      prefix_("/dlaunchd/" + servers.name + "/"),
      gateway_(servers.servers),
      lead_(gateway_, prefix_ + std::string(leader_key)),
      rows_(name_) {}

EtcdPlace::~EtcdPlace() { lead_.give_up(); }

// ---- The lead ----

std::unique_ptr<EtcdPlace> EtcdPlace::lead(const Servers& servers, const std::string& identity,
                                           const std::stop_token& stop, const Told& told) {
  std::unique_ptr<EtcdPlace> place(new EtcdPlace(servers));
  // The leader that was last reported; empty: etcd was out of reach.
  std::optional<std::string> leader;
  std::mutex mutex;
  std::condition_variable_any never;
  while (!stop.stop_requested()) {
    try {
      const std::string other = place->lead_.other();
      if (place->lead_.is_won() || (other.empty() && place->lead_.try_to_win(identity))) {
        place->begin_commits();
        return place;
      }
      if (!other.empty() && leader != other) {
        leader = other;
        told(Why::another_leads,
             "stands by: " + other + " leads, with its state in " + place->name_);
      }
    } catch (const Failure& failure) {
      if (failure.kind() == Failure::Kind::refused) {
        throw Error(Errc::refused, place->name_ + " refuses: " + failure.what());
      }
      // Each member may give another reason.
      if (leader != "") {
        leader = "";
        told(Why::out_of_reach,
             place->name_ + " cannot be reached, and is tried again: " + failure.what());
      }
    }
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, look_interval, [] { return false; });
  }
  return nullptr;
}

/// The very first transaction has no predecessor.
void EtcdPlace::begin_commits() {
  if (const auto value = value_of(std::string(commits_key))) {
    commits_ = number_of(*value);
    return;
  }
  const std::string key = prefix_ + std::string(commits_key);
  gateway_.ask(
      "/kv/txn",
      Json::object({{"compare", Json::array({condition(key, "CREATE", "create_revision", "0")})},
                    {"success", Json::array({put_of(key, "0")})}}),
      Clock::now() + write_time);
  commits_ = 0;
}

Clock::time_point EtcdPlace::tend() {
  try {
    keep_lead();
    if (!under_way_) obstacle_ = {};
  } catch (const Failure& failure) {
    if (failure.kind() == Failure::Kind::refused) refused(failure);
    lead_.try_again_soon();
    if (!is_ours()) unreachable(failure);
  }
  return lead_.due();
}

StatePlace::Obstacle EtcdPlace::obstacle() const { return obstacle_; }

std::optional<StateFigures::Lead> EtcdPlace::lead() const {
  return StateFigures::Lead{lead_.is_ours(), lead_.left(), gateway_.member()};
}

std::unique_ptr<Backup> EtcdPlace::back_up(const std::string&) {
  throw Error(Errc::refused, "a backup of " + name_ +
                                 " is etcd's own: 'etcdctl snapshot save FILE' makes one while "
                                 "dlaunchd runs");
}

/// The reason of the first failure is kept, since each member may give another.
void EtcdPlace::unreachable(const Failure& failure) {
  const std::string over = name_ + " is reached again";
  if (obstacle_.over == over) return;
  obstacle_ = {
      name_ + " cannot be reached (" + failure.what() + "): nothing is changed until it can", over};
}

void EtcdPlace::keep_lead() {
  if (!lead_.keep_if_due()) lost("its lease has ended");
}

void EtcdPlace::lost(const std::string& why) {
  lead_.doubt();
  throw StateLost(Errc::internal, why +
                                      ": this dlaunchd does not lead any more, and stops; it has "
                                      "answered nothing that is not in " +
                                      name_);
}

void EtcdPlace::refused(const Failure& failure) {
  lead_.doubt();
  throw StateLost(Errc::internal, name_ + " cannot be written: " + failure.what() +
                                      "; dlaunchd stops, so that it promises nothing that is not "
                                      "there");
}

// ---- Reading ----

Error EtcdPlace::unreadable(const Failure& failure) const {
  const bool passes = failure.kind() == Failure::Kind::unreachable;
  return Error(passes ? Errc::unreachable : Errc::refused,
               name_ + " cannot be read: " + failure.what());
}

Json EtcdPlace::range(const std::string& key, const std::string& end, std::int64_t revision,
                      std::size_t limit) {
  Json asked = Json::object({{"key", to_base64(key)}, {"limit", std::to_string(limit)}});
  if (!end.empty()) asked["range_end"] = to_base64(end);
  if (revision != 0) asked["revision"] = std::to_string(revision);
  return gateway_.ask("/kv/range", asked, Clock::now() + read_time);
}

std::optional<std::string> EtcdPlace::value_of(const std::string& key) {
  const Json found = range(prefix_ + key, "", 0, 1);
  if (kvs_of(found).empty()) return std::nullopt;
  return bytes_in(kvs_of(found).front(), "value");
}

/// Page by page; as many rows a page as etcd's gateway hands out at once.
void EtcdPlace::each_below(std::string_view below, std::int64_t revision,
                           const std::function<void(std::string, std::string)>& take) {
  const std::string prefix = prefix_ + std::string(below);
  std::string next = prefix;
  std::size_t limit = page_rows;
  for (bool more = true; more;) {
    if (lead_.is_won()) keep_lead();
    Json page;
    try {
      page = range(next, end_of(prefix), revision, limit);
    } catch (const Failure& failure) {
      if (failure.kind() != Failure::Kind::refused || limit == 1) throw;
      limit = limit / 4 + 1;
      if (limit < 4) limit = 1;
      continue;
    }
    for (const Json& kv : kvs_of(page)) {
      next = bytes_in(kv, "key");
      if (!next.starts_with(prefix)) {
        throw Failure(Failure::Kind::refused, "an answer with a key that was not asked for");
      }
      take(next.substr(prefix.size()), bytes_in(kv, "value"));
    }
    next += '\0';
    more = is_true(page, "more") && !kvs_of(page).empty();
  }
}

void EtcdPlace::require_version(const std::string& version) const {
  if (number_of(version) <= rows_version) return;
  throw Error(Errc::refused, "the state in " + name_ + " has version " + version +
                                 ", and this dlaunchd knows " + std::to_string(rows_version) +
                                 ": use the dlaunchd that made it");
}

StateContents EtcdPlace::load() {
  try {
    const auto version = value_of(std::string(version_key)).value_or("1");
    require_version(version);
    finish_interrupted();
    if (number_of(version) < rows_version) {
      keep_lead();
      make({{Operation::Kind::put, std::string(version_key), std::to_string(rows_version)}});
    }
    each_below(rows_prefix, 0, [this](const std::string& key, const std::string& value) {
      rows_.found(key, value);
    });
    StateContents contents = rows_.contents();
    if (rows_.is_new()) {
      Batch batch;
      contents.memory = random_number();
      rows_.begin(contents.memory, batch);
      Plan plan = planned(batch);
      carry_out(plan);
    }
    return contents;
  } catch (const Failure& failure) {
    throw unreadable(failure);
  }
}

/// An earlier leader has ended in the middle of a batch of several transactions, of which it had
/// told nobody. If the batch's log is complete all of them are carried out now, otherwise none is.
void EtcdPlace::finish_interrupted() {
  const auto seal = value_of(std::string(log_key));
  std::string log;
  each_below(log_prefix, 0, [&](const std::string&, const std::string& value) { log += value; });
  if (!seal && log.empty()) return;
  Plan plan;
  if (seal) plan.transactions = transactions_of(log, *seal);
  plan.transactions.push_back(end_of_log());
  carry_out(plan);
}

std::vector<std::vector<Operation>> EtcdPlace::transactions_of(const std::string& log,
                                                               const std::string& seal) const {
  const auto read = from_bytes(log);
  if (!read || sealed(log) != seal) {
    throw Error(
        Errc::refused,
        "the state in " + name_ + " is damaged (the log of a batch); restore etcd from a snapshot");
  }
  return *read;
}

StateContents EtcdPlace::read(const Servers& servers) {
  EtcdPlace place(servers);
  try {
    const Json now = place.range(place.prefix_, "", 0, 1);
    const auto header = now.find("header");
    const std::int64_t revision = header == now.end() ? 0 : number_in(*header, "revision");
    std::map<std::string, std::string> all;
    place.each_below("", revision, [&](std::string key, std::string value) {
      all.insert_or_assign(std::move(key), std::move(value));
    });
    if (const auto version = all.find(std::string(version_key)); version != all.end()) {
      place.require_version(version->second);
    }
    std::string log;
    for (auto at = all.lower_bound(std::string(log_prefix));
         at != all.end() && at->first.starts_with(log_prefix); ++at) {
      log += at->second;
    }
    if (const auto seal = all.find(std::string(log_key)); seal != all.end()) {
      for (const auto& operations : place.transactions_of(log, seal->second)) {
        carry_out(operations, all);
      }
    }
    for (auto at = all.lower_bound(std::string(rows_prefix));
         at != all.end() && at->first.starts_with(rows_prefix); ++at) {
      place.rows_.found(std::string_view(at->first).substr(rows_prefix.size()), at->second);
    }
    StateContents contents = place.rows_.contents();
    if (place.rows_.is_new()) {
      throw Error(Errc::refused, "there is no state in " + place.name_);
    }
    return contents;
  } catch (const Failure& failure) {
    throw place.unreadable(failure);
  }
}

// ---- Writing ----

StatePlace::Wrote EtcdPlace::write(std::span<const Change> changes) {
  // After not_now it is the same batch, which the rows have already taken in.
  if (!under_way_) {
    Batch batch;
    for (const Change& each : changes) rows_.apply(each, batch);
    under_way_ = planned(batch);
  }
  try {
    carry_out(*under_way_);
    under_way_.reset();
    obstacle_ = {};
    return Wrote::all;
  } catch (const Failure& failure) {
    if (failure.kind() == Failure::Kind::no_space) {
      obstacle_ = {"no space left in " + name_ + ": nothing is changed until there is room",
                   "there is room again in " + name_, true};
    } else if (failure.kind() == Failure::Kind::unreachable) {
      unreachable(failure);
    } else {
      refused(failure);
    }
    return Wrote::not_now;
  }
}

EtcdPlace::Plan EtcdPlace::planned(const Batch& batch) {
  auto transactions = batch.transactions();
  for (auto& operations : transactions) {
    for (auto& each : operations) each.key.insert(0, rows_prefix);
  }
  if (transactions.size() <= 1) return {std::move(transactions)};
  Plan plan;
  const std::string log = to_bytes(transactions);
  Batch pieces;
  for (std::size_t at = 0; at < log.size(); at += piece_bytes) {
    std::string number = std::to_string(at / piece_bytes);
    number.insert(0, 8 - std::min<std::size_t>(number.size(), 8), '0');
    pieces.put(std::string(log_prefix) + number, log.substr(at, piece_bytes));
  }
  plan.transactions = pieces.transactions();
  // A batch of one transaction is complete at once.
  if (plan.transactions.size() > 1) plan.transactions.emplace_back();
  plan.transactions.back().push_back({Operation::Kind::put, std::string(log_key), sealed(log)});
  std::ranges::move(transactions, std::back_inserter(plan.transactions));
  std::ranges::move(end_of_log(), std::back_inserter(plan.transactions.back()));
  return plan;
}

void EtcdPlace::carry_out(Plan& plan) {
  for (; plan.made < plan.transactions.size(); ++plan.made) {
    keep_lead();
    make(plan.transactions[plan.made]);
  }
}

void EtcdPlace::carry_out(const std::vector<Operation>& operations,
                          std::map<std::string, std::string>& all) {
  for (const Operation& each : operations) {
    switch (each.kind) {
      case Operation::Kind::put:
        all.insert_or_assign(each.key, each.value);
        break;
      case Operation::Kind::erase:
        all.erase(each.key);
        break;
      case Operation::Kind::erase_all:
        all.erase(all.lower_bound(each.key), all.lower_bound(end_of(each.key)));
        break;
    }
  }
}

/// A transaction that was already made by a request whose answer was lost is recognised.
void EtcdPlace::make(const std::vector<Operation>& operations) {
  const std::string commits = prefix_ + std::string(commits_key);
  const std::string next = std::to_string(commits_ + 1);
  Json success = Json::array({put_of(commits, next)});
  for (const auto& each : operations) success.push_back(request_of(prefix_, each));
  const Json made = gateway_.ask(
      "/kv/txn",
      Json::object({{"compare", Json::array({condition(lead_.key(), "CREATE", "create_revision",
                                                       std::to_string(lead_.term())),
                                             condition(commits, "VALUE", "value",
                                                       to_base64(std::to_string(commits_)))})},
                    {"success", std::move(success)},
                    {"failure", Json::array({range_of(lead_.key()), range_of(commits)})}}),
      Clock::now() + write_time);
  if (is_true(made, "succeeded")) {
    ++commits_;
    return;
  }
  const Json leads = kvs_of_response(made, 0), last = kvs_of_response(made, 1);
  if (leads.empty()) lost("its lease has ended");
  if (number_in(leads.front(), "create_revision") != lead_.term()) {
    lost(bytes_in(leads.front(), "value") + " leads now");
  }
  if (last.empty() || bytes_in(last.front(), "value") != next) {
    lost("something else has written there");
  }
  ++commits_;
}

}  // namespace dlaunch::rendezvous::etcd
