#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/world/member/info.hpp"
#include "runtime/world/member_link.hpp"

#include <dlaunch/world.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The ways into a world, one for each kind of init URL. Each returns a link to the store's host
/// and fills in what it has learned; `form_world` does the common rest.
namespace dlaunch {

/// A rank on its way in.
struct Joining {
  WorldPlace place;
  Clock::time_point deadline;
  InitOptions options;
  std::string mesh_host = "127.0.0.1";  ///< This rank's data plane listens there, if it must bind.
  /// Whether neither an agent nor a parent could hand out what ranks of a host share.
  bool by_hand = false;
  std::string table;  ///< As DLAUNCH_TABLE names it (table_file.hpp); empty: none.
  /// Rank 0 of file://: removes the meeting file when it is let go of.
  std::shared_ptr<const void> meeting;
};

/// dlaunch://: over the inherited control socket, else the agent's named one.
std::shared_ptr<MemberLink> join_agent(const Environment& environment, Joining& joining);
/// env:// and tcp://: rank 0 listens on place.info.master_addr and master_port, the others connect.
std::shared_ptr<MemberLink> join_by_address(Joining& joining);
/// file://: rank 0 listens on loopback and writes the file, the others read it.
std::shared_ptr<MemberLink> join_by_file(const std::string& path, Joining& joining);

/// Publishes where this rank is, waits until all have, and finds out which ranks share a node where
/// the environment did not say. Throws Error{timeout} listing who did not come and who did.
World form_world(const std::shared_ptr<MemberLink>& link, Joining joining);

/// A rank publishes this of itself, under "member/<rank>".
struct Presence {
  std::int64_t pid = 0;
  std::string host;  ///< host_id().
  std::string hostname;
};
std::string to_text(const Presence& presence);
std::optional<Presence> presence_from(std::string_view text);

/// Tells on stderr, after some seconds, that this rank, started by hand, waits for `whom`.
Notice waiting_notice(const Joining& joining, const std::string& whom);

/// HELLO of this process as that rank.
wire::Hello hello_of(const WorldInfo& info, const std::string& job);

/// Pure: the ranks that share a host, in order of rank, are a node's local ranks; nodes are
/// numbered by their lowest rank.
void place_by_hosts(std::span<const std::string> host_of_rank, WorldInfo& info);

}  // namespace dlaunch
