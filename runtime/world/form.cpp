#include "runtime/base/deadline.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/world/by_hand/neighbours.hpp"
#include "runtime/world/by_hand/roster.hpp"
#include "runtime/world/join.hpp"
#include "runtime/world/member_link.hpp"
#include "runtime/world/table_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace dlaunch {
namespace {

/// How long ranks of a host wait for each other, after all have passed a barrier.
constexpr auto meeting_wait = std::chrono::seconds(5);

std::string member_key(int rank) { return "member/" + std::to_string(rank); }

Bytes bytes_of(std::string_view text) {
  const BytesView view = as_bytes(text);
  return Bytes(view.begin(), view.end());
}

/// The key to which every rank on a host's processors appends its line; where /proc does not
/// identify the kernel, the key has the host's name.
std::string kernel_key(const std::string& hostname) {
  const std::string kernel = kernel_id();
  return "host/" + (kernel.empty() ? hostname : kernel);
}

/// A rank's place: its host's id and name together, since two hosts may share either of them.
std::string place_name(const std::string& host, const std::string& hostname) {
  return host + "/" + hostname;
}

std::optional<Member> member_from(int rank, int size, const std::optional<Bytes>& value) {
  if (!value) return std::nullopt;
  const auto presence = presence_from(as_text(*value));
  if (!presence) return std::nullopt;
  return Member{rank, size, presence->pid, presence->hostname};
}

std::vector<std::optional<Bytes>> read_members(JobStore& store, int size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(member_key(rank));
  return store.multi_get(keys);
}

/// The ranks that came, by what each has published.
Roster roster_of(JobStore& store, int size) {
  Roster roster(size);
  const auto values = read_members(store, size);
  for (int rank = 0; rank < size; ++rank) {
    if (const auto member = member_from(rank, size, values[static_cast<std::size_t>(rank)])) {
      roster.admit(*member);
    }
  }
  return roster;
}

void publish(JobStore& store, MemberLink& link, const Joining& joining) {
  const WorldInfo& info = joining.place.info;
  unique_fd listener = link.take_listener();
  if (!listener) listener = listen_tcp(resolve(joining.mesh_host, 0).at(0));
  const std::string mesh = local_address(listener.get()).to_string();
  link.keep_listener(std::move(listener));
  const std::vector<std::string> keys{"mesh/" + std::to_string(info.rank), member_key(info.rank)};
  const Presence self{::getpid(), host_id(), info.hostname};
  const std::vector<Bytes> values{bytes_of(mesh), bytes_of(to_text(self))};
  store.multi_set(keys, values);
}

/// Waits for the members' keys before the barrier, during which nothing can be said: rank 0 says
/// once which ranks have not come.
void await_members(JobStore& store, const Joining& joining) {
  const int size = joining.place.info.size;
  const Notice notice = waiting_notice(joining, "all ranks");
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(member_key(rank));
  if (notice.at >= joining.deadline) return;
  try {
    store.wait_all(keys, notice.at);
  } catch (const Error& error) {
    if (error.errc() != Errc::timeout) throw;
    notice.say(roster_of(store, size).attendance());
  }
}

/// Derives it from the keys that all have published.
void find_place(JobStore& store, WorldInfo& info) {
  std::vector<std::string> hosts;
  for (const auto& value : read_members(store, info.size)) {
    const auto presence = value ? presence_from(as_text(*value)) : std::nullopt;
    hosts.push_back(presence ? place_name(presence->host, presence->hostname) : "");
  }
  place_by_hosts(hosts, info);
}

/// The error to throw if forming failed with `error`; the store's host may know a better one.
Error forming_error(MemberLink& link, JobStore& store, const Joining& joining, const Error& error) {
  // The host's last words may still wait behind a connection that broke while we were sending.
  if (error.errc() == Errc::peer_lost) link.read_last_words();
  if (auto said = link.aborted()) return *said;
  if (const auto loss = link.first_loss(); loss && error.errc() == Errc::peer_lost) {
    Error told(Errc::peer_lost, "init: rank " + std::to_string(loss->rank) + " on " + loss->host +
                                    " was lost while the world was forming: " + loss->cause);
    link.report(told, {.fault = Fault::lost, .ranks = {loss->rank}});
    return told;
  }
  if (error.errc() != Errc::timeout) return error;
  const std::string sentence =
      "init: not all ranks came within " + duration_text(joining.options.timeout);
  if (!link.is_agent()) return link.give_up(Errc::timeout, sentence);
  const Roster came = roster_of(store, joining.place.info.size);
  Error told(Errc::timeout, sentence + ": " + came.attendance());
  link.report(told, {.fault = Fault::absent, .ranks = came.absent(Claim::ranks_max)});
  return told;
}

}  // namespace

std::string to_text(const Presence& presence) {
  return std::to_string(presence.pid) + " " + presence.host + " " + presence.hostname;
}

std::optional<Presence> presence_from(std::string_view text) {
  const auto first = text.find(' ');
  const auto second = first == text.npos ? first : text.find(' ', first + 1);
  if (second == text.npos) return std::nullopt;
  Presence presence;
  presence.pid = std::strtoll(std::string(text.substr(0, first)).c_str(), nullptr, 10);
  presence.host = text.substr(first + 1, second - first - 1);
  presence.hostname = text.substr(second + 1);
  return presence;
}

wire::Hello hello_of(const WorldInfo& info, const std::string& job) {
  wire::Hello hello;
  hello.session = random_number();
  hello.job = job;
  hello.member = Member{info.rank, info.size, ::getpid(), info.hostname};
  return hello;
}

void place_by_hosts(std::span<const std::string> host_of_rank, WorldInfo& info) {
  std::map<std::string, int> node_of_host;
  const std::string& own = host_of_rank[static_cast<std::size_t>(info.rank)];
  info.local_rank = 0;
  info.local_size = 0;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const std::string& host = host_of_rank[rank];
    node_of_host.emplace(host, static_cast<int>(node_of_host.size()));
    if (host != own) continue;
    if (static_cast<int>(rank) < info.rank) ++info.local_rank;
    ++info.local_size;
  }
  info.node_rank = node_of_host.at(own);
  info.node_count = static_cast<int>(node_of_host.size());
}

World form_world(const std::shared_ptr<MemberLink>& link, Joining joining) {
  WorldInfo& info = joining.place.info;
  const std::shared_ptr<JobStore> store(link, &link->client());  // As long as the link.
  try {
    publish(*store, *link, joining);
    if (info.rank == 0 && !joining.table.empty()) publish_table(*store, joining.table);
    std::optional<SegmentMeeting> meeting;
    if (joining.by_hand) {
      meeting.emplace();
      const Neighbour self{info.rank, ::geteuid(), meeting->socket_name(), read_processors(),
                           place_name(host_id(), info.hostname)};
      store->append(kernel_key(info.hostname), as_bytes(to_text(self)));
    }
    if (joining.by_hand && info.rank == 0) await_members(*store, joining);
    store->barrier("init", info.rank, info.size, joining.deadline);
    if (info.rank != 0 && !joining.table.empty()) {
      compare_table(*store, info.rank, joining.table);
    }
    if (!joining.place.on_node) find_place(*store, info);
    if (joining.by_hand) {
      const auto told = store->get(kernel_key(info.hostname));
      const auto neighbours = neighbours_from(told ? as_text(*told) : "");
      const auto until = std::min(joining.deadline, deadline_after(meeting_wait));
      link->keep_segment(meeting->share(neighbours, info, *link, until));
    }
  } catch (const Error& error) {
    throw forming_error(*link, *store, joining, error);
  }
  link->tell_ready();
  return World(info, store, link);
}

}  // namespace dlaunch
