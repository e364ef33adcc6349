#include "packaging/python-torch/extension/meeting.hpp"

#include "packaging/python-torch/extension/address.hpp"
#include "packaging/python-torch/extension/errors.hpp"

#include <dlaunch/port.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace dlaunch::torch_backend {
namespace {

constexpr const char* loopback = "127.0.0.1";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Names the run of a job of our launcher in which this process has that very place.
std::optional<std::string> run_of_launcher(const Place& place) {
  const bool is_worker =
      !variable("DLAUNCH_WORKER_CONTROL").empty() || !variable("DLAUNCH_WORKER_AGENT").empty();
  if (!place.is_whole_job || !is_worker || variable("RANK") != std::to_string(place.rank) ||
      variable("WORLD_SIZE") != std::to_string(place.size)) {
    return std::nullopt;
  }
  return "job " + variable("DLAUNCH_WORKER_JOB") + ", epoch " + variable("DLAUNCH_WORKER_EPOCH") +
         ", attempt " + variable("TORCHELASTIC_RESTART_COUNT");
}

/// The host at which a torch program reached its store, if the store tells it.
std::string host_of(c10d::Store& store) {
  c10d::Store* inner = &store;
  c10::intrusive_ptr<c10d::Store> held;
  while (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(inner)) {
    held = prefix->getUnderlyingStore();
    inner = held.get();
  }
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(inner);
  return tcp != nullptr ? tcp->getHost() : "";
}

/// The host by whose name all ranks know the store, or rank 0; empty if there is none.
std::string common_name(c10d::Store& store) {
  const std::string host = host_of(store);
  return host.empty() ? variable("MASTER_ADDR") : host;
}

bool means_loopback(const std::string& host) { return host == "localhost" || is_loopback(host); }

std::string url_at(const std::string& host) {
  const Listener listener(0, host);
  return "tcp://" + (host.find(':') != host.npos ? "[" + host + "]" : host) + ":" +
         std::to_string(listener.port());
}

/// What rank 0 and the others say to each other in the store before they have met.
struct Talk {
  c10d::Store& store;
  const Place& place;
  std::string key;

  static constexpr const char* question = "from where?";
  static constexpr const char* refusal = "none: ";
  /// A rank that has asked hears the answer at once, if it lives.
  static constexpr std::chrono::milliseconds patience{10'000};

  void say(const std::string& what, const std::string& text) {
    store.set(what, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  std::string hear(const std::string& what) {
    store.wait({what}, place.timeout);
    return store.get_to_str(what);
  }
  std::string from(int rank) const { return key + "/from/" + std::to_string(rank); }
  std::string verdict() const { return key + "/verdict"; }

  std::string heard_by(int rank) const { return key + "/heard/" + std::to_string(rank); }

  void forget() {
    store.deleteKey(key);
    if (!has_asked) return;
    store.deleteKey(verdict());
    for (int rank = 1; rank < place.size; ++rank) store.deleteKey(from(rank));
  }

  /// A store that outlives the ranks, as a file does, would refuse the next ones as well. If a rank
  /// dies meanwhile, or the store, the refusal stays: it tells more than an error of this.
  void forget_refusal() {
    try {
      for (int rank = 1; rank < place.size; ++rank) {
        store.wait({heard_by(rank)}, std::min(place.timeout, patience));
      }
      forget();
      for (int rank = 1; rank < place.size; ++rank) store.deleteKey(heard_by(rank));
    } catch (const c10::Error&) {
    }
  }

  bool has_asked = false;
};

/// Rank 0's host calls itself by a loopback address, as Debian's installer writes it to /etc/hosts:
/// the others tell by which address they know it.
std::string url_as_others_see_it(Talk& talk, const std::string& doubt) {
  talk.has_asked = true;
  talk.say(talk.key, Talk::question);
  std::string seen, stranger;
  for (int rank = 1; rank < talk.place.size; ++rank) {
    std::istringstream answer(talk.hear(talk.from(rank)));
    std::string host, identity, address;
    std::getline(answer, host);
    std::getline(answer, identity);
    while (std::getline(answer, address)) {
      if (seen.empty() && !is_loopback(address) && is_own(address)) seen = address;
    }
    if (identity == own_identity() || !stranger.empty()) continue;
    stranger = "rank " + std::to_string(rank) + " on " +
               (host == own_name() ? "another host of the name " : "") + host;
  }
  if (seen.empty() && !stranger.empty()) {
    const std::string why = stranger + " cannot reach rank 0 on " + own_name() + ", where " +
                            doubt + "; set MASTER_ADDR to an address of that host, or let its " +
                            "/etc/hosts have the address that leads there";
    talk.say(talk.verdict(), Talk::refusal + why);
    talk.forget_refusal();
    fail(why);
  }
  const std::string url = url_at(seen.empty() ? loopback : seen);
  talk.say(talk.verdict(), url);
  return url;
}

/// The URL at which the others reach rank 0, which they may have been told.
std::string address_for_others(Talk& talk) {
  const std::string common = common_name(talk.store);
  if (means_loopback(common)) return url_at(common);
  std::string doubt = "nobody knows that name";
  for (const std::string& name : {common, own_name()}) {
    if (name.empty()) continue;
    const auto addresses = addresses_of(name);
    std::vector<std::string> own;
    std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(own), is_own);
    const auto outer = std::find_if_not(own.begin(), own.end(), is_loopback);
    if (outer != own.end()) {
      const bool is_plain = own == addresses && std::none_of(own.begin(), own.end(), is_loopback);
      return url_at(is_plain ? name : *outer);
    }
    if (!own.empty()) {
      doubt = "'" + name + "' is " + own.front();
      break;
    }
    // The name is another host's, from which the way back leads to this address.
    const std::string from = own_address_toward(name);
    if (!from.empty()) return url_at(from);
  }
  return url_as_others_see_it(talk, doubt);
}

/// The place of rank 0, or the run of our launcher that it belongs to.
std::string told_by_rank_zero(Talk& talk) {
  const std::string told = talk.hear(talk.key);
  if (told != Talk::question) return told;
  std::string answer = own_name() + "\n" + own_identity() + "\n";
  for (const std::string& address : addresses_of(common_name(talk.store))) answer += address + "\n";
  talk.say(talk.from(talk.place.rank), answer);
  std::string verdict = talk.hear(talk.verdict());
  if (!verdict.starts_with(Talk::refusal)) return verdict;
  talk.say(talk.heard_by(talk.place.rank), "");
  fail(verdict.substr(std::strlen(Talk::refusal)));
}

/// The job's world, and its run; not destroyed behind main, where threads may still be in it.
struct JobWorld {
  std::mutex mutex;
  std::string run;
  std::shared_ptr<const World> world;
};
JobWorld& job_world() {
  static JobWorld& kept = *new JobWorld;
  return kept;
}

std::shared_ptr<const World> world_of(const std::string& run) {
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  return kept.run == run ? kept.world : nullptr;
}

std::shared_ptr<const World> join_job(const std::string& run, const Place& place) {
  auto world = std::make_shared<const World>(World::init("dlaunch://", {.timeout = place.timeout}));
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  kept.run = run;
  kept.world = world;
  return world;
}

std::shared_ptr<const World> join(const std::string& url, const Place& place) {
  InitOptions options;
  options.timeout = place.timeout;
  options.rank = place.rank;
  options.world_size = place.size;
  return std::make_shared<const World>(World::init(url, options));
}

/// Another one for each default group that this process makes: a rank may come to the next before
/// rank 0 has taken the key of the last away.
std::string next_key(const Place& place) {
  static std::atomic<int> groups = 0;
  return "dlaunch/world/" + std::to_string(place.is_whole_job ? ++groups : 0);
}

}  // namespace

std::shared_ptr<const World> meet(c10d::Store& store, const Place& place) {
  const auto own_run = run_of_launcher(place);
  // The others have it, too: all ranks were in the group for which it was joined.
  if (own_run) {
    if (auto world = world_of(*own_run)) return world;
  }
  Talk talk{store, place, next_key(place)};
  if (place.size == 1 && !own_run) {
    return join(std::string("tcp://") + loopback + ":1", place);
  }
  if (place.rank != 0) {
    const std::string told = told_by_rank_zero(talk);
    if (told.starts_with("tcp://")) return join(told, place);
    if (own_run != told) {
      fail("rank 0 was started by dlaunch (" + told + "), and rank " + std::to_string(place.rank) +
           " was not, or not as that rank of it" + (own_run ? " (" + *own_run + ")" : "") +
           ": the ranks of a process group are started in one way");
    }
    return join_job(told, place);
  }
  const std::string way = own_run ? *own_run : address_for_others(talk);
  if (!talk.has_asked) talk.say(talk.key, way);
  auto world = own_run ? join_job(way, place) : join(way, place);
  // All have read it. The next group in this store finds none of it.
  talk.forget();
  return world;
}

bool is_job(const std::shared_ptr<const World>& world) {
  JobWorld& kept = job_world();
  const std::lock_guard lock(kept.mutex);
  return kept.world == world;
}

void leave_job() {
  std::shared_ptr<const World> world;
  JobWorld& kept = job_world();
  {
    const std::lock_guard lock(kept.mutex);
    world = std::move(kept.world);
    kept.world = nullptr;
  }
}

}  // namespace dlaunch::torch_backend
