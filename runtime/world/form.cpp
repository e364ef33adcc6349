#include "runtime/base/deadline.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/socket.hpp"
#include "runtime/world/guarded_store.hpp"
#include "runtime/world/identity.hpp"
#include "runtime/world/join.hpp"
#include "runtime/world/roster.hpp"

#include <cstdlib>
#include <map>

namespace dlaunch {
namespace {

std::string member_key(int rank) { return "member/" + std::to_string(rank); }

Bytes bytes_of(std::string_view text) {
  const BytesView view = as_bytes(text);
  return Bytes(view.begin(), view.end());
}

std::string member_text(const WorldInfo& info) {
  return std::to_string(::getpid()) + " " + info.hostname;
}

std::optional<Member> member_from(int rank, int size, const std::optional<Bytes>& value) {
  if (!value) return std::nullopt;
  const std::string text(as_text(*value));
  const auto space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  Member member{rank, size, 0, text.substr(space + 1)};
  member.pid = std::strtoll(text.c_str(), nullptr, 10);
  return member;
}

std::vector<std::optional<Bytes>> read_members(Store& store, int size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(member_key(rank));
  return store.multi_get(keys);
}

/// Who came, by what each has published.
std::string attendance_of(Store& store, int size) {
  Roster roster(size);
  const auto values = read_members(store, size);
  for (int rank = 0; rank < size; ++rank) {
    if (const auto member = member_from(rank, size, values[static_cast<std::size_t>(rank)])) {
      roster.admit(*member);
    }
  }
  return roster.attendance();
}

void publish(Store& store, MemberLink& link, const Joining& joining) {
  const WorldInfo& info = joining.place.info;
  unique_fd listener = link.take_listener();
  if (!listener) listener = listen_tcp(resolve(joining.mesh_host, 0).at(0));
  const std::string mesh = local_address(listener.get()).to_string();
  link.keep_listener(std::move(listener));
  const std::vector<std::string> keys{"mesh/" + std::to_string(info.rank), member_key(info.rank)};
  const std::vector<Bytes> values{bytes_of(mesh), bytes_of(member_text(info))};
  store.multi_set(keys, values);
}

/// The error to throw where forming failed with `error`: whoever hosts the store knows more.
Error forming_error(MemberLink& link, Store& store, const Joining& joining, const Error& error) {
  // The host's last words may still wait behind a connection that broke while we were sending.
  if (error.errc() == Errc::peer_lost) link.read_last_words();
  if (auto said = link.aborted()) return *said;
  if (const auto loss = link.first_loss(); loss && error.errc() == Errc::peer_lost) {
    Error told(Errc::peer_lost, "World::init: rank " + std::to_string(loss->rank) + " on " +
                                    loss->host +
                                    " was lost while the world was forming: " + loss->cause);
    link.report(told, loss->rank);
    return told;
  }
  if (error.errc() != Errc::timeout) return error;
  const std::string sentence =
      "World::init: not all ranks came within " + duration_text(joining.options.timeout);
  if (!link.is_agent()) return link.give_up(Errc::timeout, sentence);
  Error told(Errc::timeout, sentence + ": " + attendance_of(store, joining.place.info.size));
  link.report(told, -1);
  return told;
}

}  // namespace

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
  const auto store = std::make_shared<GuardedStore>(link);
  try {
    publish(*store, *link, joining);
    store->barrier("init", info.rank, info.size, joining.deadline);
    if (!joining.place.on_node) {
      std::vector<std::string> hosts;
      for (const auto& value : read_members(*store, info.size)) {
        const auto member = member_from(0, info.size, value);
        hosts.push_back(member ? member->hostname : "");
      }
      place_by_hosts(hosts, info);
    }
  } catch (const Error& error) {
    throw forming_error(*link, *store, joining, error);
  }
  link->tell_ready();
  return World(info, store, link);
}

}  // namespace dlaunch
