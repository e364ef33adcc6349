#include "runtime/base/deadline.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/world/by_hand/meeting_file.hpp"
#include "runtime/world/join.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <thread>

namespace dlaunch {
namespace {

/// How long we ask a busy port who holds it.
constexpr auto ask_wait = std::chrono::seconds(2);
/// A listener at a file's address is no store of ours if it is silent for so long.
constexpr auto meeting_wait = std::chrono::seconds(10);
/// The wait after which a rank is told what it waits for.
constexpr auto notice_after = std::chrono::seconds(3);
constexpr auto look_pause_first = std::chrono::milliseconds(2);
constexpr auto look_pause_max = std::chrono::milliseconds(100);

/// Names rank 0 at an address where somebody listens already: "pid 12 on a"; nullopt if that is no
/// store of ours.
std::optional<std::string> rank_zero_at(const Address& address) {
  const auto deadline = deadline_after(ask_wait);
  try {
    store::Client::Options options;
    options.hello.session = random_number();
    options.timeout = ask_wait;
    store::Client client(
        connect_tcp(address, deadline), std::move(options),
        [](const wire::FrameHeader&, BytesView, std::vector<unique_fd>) {}, deadline);
    // That rank 0 may be just about to reach its own store.
    const auto presence = presence_from(as_text(client.wait("member/0", deadline)));
    if (!presence) return std::nullopt;
    return "pid " + std::to_string(presence->pid) + " on " + presence->hostname;
  } catch (const Error&) {
    return std::nullopt;  // It is no store, or a silent one: the port's owner has to be enough.
  }
}

/// Tells the other rank 0's host, which refuses us, so that its ranks learn of this second rank 0.
void claim_rank_zero(const Address& address, const WorldInfo& info, const std::string& job) {
  const auto deadline = deadline_after(ask_wait);
  try {
    store::Client::Options options;
    options.hello = hello_of(info, job);
    options.timeout = ask_wait;
    const store::Client client(
        connect_tcp(address, deadline), std::move(options),
        [](const wire::FrameHeader&, BytesView, std::vector<unique_fd>) {}, deadline);
  } catch (const Error&) {
    // It was refused, as expected.
  }
}

/// Rank 0 listens on every address that the name has here, never on a wildcard, so that the others
/// reach it whichever they try first.
std::vector<unique_fd> listen_on(const std::string& host, int port, const WorldInfo& info) {
  std::vector<unique_fd> listeners;
  std::set<std::string> seen;
  std::string why;
  for (const Address& address : resolve(host, static_cast<std::uint16_t>(port))) {
    if (!seen.insert(address.to_string()).second) continue;
    try {
      listeners.push_back(listen_tcp(address));
    } catch (const Error& error) {
      if (error.errc() == Errc::refused) {
        const auto first = rank_zero_at(address);
        if (!first)
          throw Error(Errc::refused, std::string("rank 0 hosts the store: ") + error.what());
        claim_rank_zero(address, info, "");
        throw Error(Errc::refused, "rank 0 is taken by " + *first + ", which listens on " +
                                       address.to_string() + ", and pid " +
                                       std::to_string(::getpid()) + " on " + own_hostname() +
                                       " claims it, too: every process needs a rank of its own");
      }
      why = error.what();
    }
  }
  if (listeners.empty()) {
    throw Error(Errc::unreachable, "rank 0 hosts the store and must run on the host that " +
                                       in_quotes(host) + " names: " + why);
  }
  return listeners;
}

std::shared_ptr<MemberLink> host_store(Joining& joining, std::vector<unique_fd> listeners,
                                       const std::string& job) {
  const WorldInfo& info = joining.place.info;
  RankHost::Options host_options;
  host_options.world_size = info.size;
  host_options.job = job;
  host_options.listeners = std::move(listeners);
  auto host = std::make_unique<RankHost>(std::move(host_options));
  MemberLink::Options options;
  options.hello = hello_of(info, job);
  options.peer_name = "the store in this process";
  options.linger = joining.options.linger;
  unique_fd connected = host->connect();
  return std::make_shared<MemberLink>(std::move(connected), std::move(options), std::move(host),
                                      joining.deadline);
}

std::shared_ptr<MemberLink> reach_store(Joining& joining, unique_fd connected,
                                        const std::string& where, const std::string& job,
                                        Clock::time_point deadline) {
  MemberLink::Options options;
  options.hello = hello_of(joining.place.info, job);
  options.peer_name = "rank 0's store at " + where;
  options.notice = waiting_notice(joining, options.peer_name);
  auto link =
      std::make_shared<MemberLink>(std::move(connected), std::move(options), nullptr, deadline);
  if (const auto host = link->local_host()) joining.mesh_host = *host;
  return link;
}

/// Why a rank waits for the file, as far as it knows.
struct Search {
  std::string path;
  std::string why;  ///< Empty: no file was seen.

  std::string sentence(int rank, Clock::duration timeout) const {
    return "rank " + std::to_string(rank) + " did not find rank 0 within " +
           duration_text(timeout) + ": " + reason();
  }
  std::string reason() const {
    const std::string file = "the meeting file " + in_quotes(path);
    if (why.empty()) {
      return "rank 0 has not written " + file + "; is it started, and does it see this file?";
    }
    return file + " is stale: " + why + ", and no rank 0 has replaced it";
  }
};

/// One look at the file: a link to its writer's store, or `search.why` says why not.
std::shared_ptr<MemberLink> try_meeting(Search& search, Joining& joining) {
  const auto meeting = read_meeting(search.path);
  if (!meeting) return nullptr;
  const std::string writer = "pid " + std::to_string(meeting->pid) + " on " + meeting->hostname;
  if (is_known_gone(*meeting)) {
    search.why = "it was written by " + writer + ", which is gone";
    return nullptr;
  }
  const std::string where = host_port(meeting->host, meeting->port);
  try {
    const Address address = resolve(meeting->host, static_cast<std::uint16_t>(meeting->port)).at(0);
    const auto deadline = std::min(joining.deadline, deadline_after(meeting_wait));
    auto link =
        reach_store(joining, connect_tcp(address, deadline), where, meeting->nonce, deadline);
    joining.place.info.master_addr = meeting->host;
    joining.place.info.master_port = std::to_string(meeting->port);
    return link;
  } catch (const Error& error) {
    const Errc code = error.errc();
    if (code == Errc::refused || code == Errc::internal) throw;
    search.why = "it was written by " + writer + ", which is not to be found at " + where + " (" +
                 error.what() + ")";
    return nullptr;
  }
}

}  // namespace

Notice waiting_notice(const Joining& joining, const std::string& whom) {
  const std::string text = "dlaunch: rank " + std::to_string(joining.place.info.rank) +
                           " waits for " + whom + ", for up to " +
                           duration_text(joining.options.timeout) + ": ";
  return {deadline_after(notice_after),
          [text](const std::string& why) { std::fprintf(stderr, "%s\n", (text + why).c_str()); }};
}

std::shared_ptr<MemberLink> join_by_address(Joining& joining) {
  const WorldInfo& info = joining.place.info;
  const int port = parse_port("MASTER_PORT", info.master_port);
  if (info.rank == 0) {
    auto listeners = listen_on(info.master_addr, port, info);
    // A host may call itself 127.0.1.1 beside its real address: at that only its own ranks come.
    const auto outer = std::find_if(listeners.begin(), listeners.end(), [](const unique_fd& each) {
      return !local_address(each.get()).is_loopback();
    });
    const unique_fd& reached = outer != listeners.end() ? *outer : listeners.front();
    joining.mesh_host = local_address(reached.get()).host();
    return host_store(joining, std::move(listeners), "");
  }
  const std::string where = host_port(info.master_addr, port);
  unique_fd connected;
  try {
    connected = connect_until(info.master_addr, static_cast<std::uint16_t>(port), joining.deadline,
                              waiting_notice(joining, "rank 0's store at " + where));
  } catch (const Error& error) {
    throw Error(error.errc(), "rank " + std::to_string(info.rank) +
                                  " cannot reach rank 0's store at " + where + " within " +
                                  duration_text(joining.options.timeout) + ": " + error.what());
  }
  return reach_store(joining, std::move(connected), where, "", joining.deadline);
}

std::shared_ptr<MemberLink> join_by_file(const std::string& path, Joining& joining) {
  WorldInfo& info = joining.place.info;
  if (info.rank == 0) {
    std::vector<unique_fd> listeners;
    listeners.push_back(listen_tcp(resolve("127.0.0.1", 0).at(0)));
    MeetingRecord meeting = meeting_of_this_process();
    meeting.host = "127.0.0.1";
    meeting.port = local_address(listeners.front().get()).port();
    info.master_addr = meeting.host;
    info.master_port = std::to_string(meeting.port);
    auto link = host_store(joining, std::move(listeners), meeting.nonce);
    try {
      write_meeting(path, meeting);
    } catch (const Error& error) {
      const auto first = error.errc() == Errc::refused ? read_meeting(path) : std::nullopt;
      if (first) {
        const auto at = resolve(first->host, static_cast<std::uint16_t>(first->port)).at(0);
        if (rank_zero_at(at)) claim_rank_zero(at, info, first->nonce);
      }
      throw;
    }
    // Once the world has formed, or cannot, nobody needs the file any more.
    joining.meeting = std::shared_ptr<const void>(
        nullptr, [path, meeting](const void*) { remove_meeting(path, meeting); });
    return link;
  }
  Search search{path, {}};
  Notice notice = waiting_notice(joining, "rank 0");
  auto pause = std::chrono::duration_cast<Clock::duration>(look_pause_first);
  for (;;) {
    if (auto link = try_meeting(search, joining)) return link;
    notice.tell(search.reason());
    if (Clock::now() + pause >= joining.deadline) {
      throw Error(Errc::timeout, search.sentence(info.rank, joining.options.timeout));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Clock::duration>(pause * 2, look_pause_max);
  }
}

}  // namespace dlaunch
