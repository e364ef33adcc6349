#include "collectives/call/core/call_context.hpp"

#include "collectives/call/core/traffic.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <string_view>

namespace dlaunch {
namespace {

/// The most ranks of which all are asked and told directly.
constexpr int direct_ranks_max = 64;

/// A rank of a communicator, and the same one in the world.
std::string rank_name(int here, int world_rank) {
  std::string name = "rank " + std::to_string(here >= 0 ? here : world_rank);
  if (here != world_rank) name += " (rank " + std::to_string(world_rank) + " of the world)";
  return name;
}

/// Adds a call's peer and communicator to its text.
std::string labelled(std::string text, const std::string& group, transport::Op op, int peer,
                     int tag) {
  if (transport::is_message(op)) {
    text += op == transport::Op::send ? " to " : " from ";
    text += peer == any_source ? "any rank" : "rank " + std::to_string(peer);
    text += tag == any_tag ? " (any tag)" : " (tag " + std::to_string(tag) + ")";
  }
  if (group != "world") text += " of '" + group + "'";
  return text;
}

}  // namespace

int Group::rank_of(int world_rank) const {
  // In a list of the whole world each rank is at its own place.
  const auto place = static_cast<std::size_t>(world_rank);
  if (place < world_ranks.size() && world_ranks[place] == world_rank) return world_rank;
  const auto found = std::find(world_ranks.begin(), world_ranks.end(), world_rank);
  return found == world_ranks.end() ? -1 : static_cast<int>(found - world_ranks.begin());
}

std::vector<int> Group::others() const {
  std::vector<int> ranks;
  if (size() <= direct_ranks_max) {
    for (const int world_rank : world_ranks) {
      if (world_rank != own_world_rank()) ranks.push_back(world_rank);
    }
    return ranks;
  }
  for (int distance = 1; distance < size(); distance *= 2) {
    ranks.push_back(world_rank((rank + distance) % size()));
    ranks.push_back(world_rank((rank - distance + size()) % size()));
  }
  return ranks;
}

std::string Group::name_of(int world_rank) const {
  return rank_name(rank_of(world_rank), world_rank);
}

std::string short_text(const transport::Fingerprint& call) {
  std::string text = owner_text(Traffic::unpack(call.traffic));
  text += transport::to_string(call.op);
  // Point-to-point calls of two ranks are not counted together, so they have no number.
  if (!transport::is_message(call.op)) text += " #" + std::to_string(call.sequence);
  return text;
}

std::string to_string(const transport::Fingerprint& call) {
  std::string details;
  const auto add = [&](const std::string& detail) {
    details += (details.empty() ? "" : ", ") + detail;
  };
  if (call.traffic != 0) {
    const std::string purpose = purpose_text(Traffic::unpack(call.traffic));
    if (!purpose.empty()) add(purpose);
  }
  if (call.reduce != ReduceOp{}) add(to_string(call.reduce));
  if (call.dtype != DType{}) {
    add(to_string(call.dtype));
    add(call.count == transport::counts_vary ? "counts vary"
        : call.count == 1                    ? "1 element"
                                             : std::to_string(call.count) + " elements");
  }
  if (transport::is_rooted(call.op)) add("root " + std::to_string(call.root));
  if (call.on_device()) add("CUDA");
  return short_text(call) + (details.empty() ? "" : " (" + details + ")");
}

std::string CallContext::label() const {
  return labelled(name != nullptr ? name : short_text(fingerprint), group.name, fingerprint.op,
                  peer, tag);
}

std::string CallContext::full_label() const {
  if (is_message()) return label();
  return labelled(to_string(fingerprint), group.name, fingerprint.op, peer, tag);
}

std::string CallContext::where() const { return place_text(site); }

transport::Doing CallContext::doing(int whom) const {
  return {.communicator = group.id,
          .group = group.name,
          .call = fingerprint,
          .peer = peer,
          .tag = tag,
          .waits_for = whom < 0 ? -1 : group.rank_of(whom),
          .waits_for_world = whom};
}

std::string to_string(const transport::Doing& doing) {
  if (doing.on_stream) return short_text(doing.call) + ", which is on its stream";
  std::string text =
      labelled(short_text(doing.call), doing.group, doing.call.op, doing.peer, doing.tag);
  if (doing.waits_for_world >= 0) {
    text += ", waiting for " + rank_name(doing.waits_for, doing.waits_for_world);
  }
  return text;
}

std::string aborted_text(int rank, const CallSite& site) {
  return "rank " + std::to_string(rank) + " aborted the communicator" + place_text(site);
}

std::string place_text(const std::string& place) { return place.empty() ? "" : " [" + place + "]"; }

std::string place_text(const CallSite& site) { return place_text(place_of(site)); }

std::string place_of(const CallSite& site) { return site_text(site.file, site.line); }

}  // namespace dlaunch
