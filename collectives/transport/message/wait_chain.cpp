#include "collectives/transport/message/wait_chain.hpp"

#include "runtime/base/bytes.hpp"

#include <algorithm>

namespace dlaunch::transport {
namespace {

constexpr std::size_t links_max = 128;
constexpr std::size_t call_bytes_max = 200;
constexpr std::size_t ranks_named_max = 4;

}  // namespace

std::size_t WaitChain::place_of(int rank) const {
  const auto found = std::find_if(links.begin(), links.end(),
                                  [rank](const WaitLink& link) { return link.rank == rank; });
  return static_cast<std::size_t>(found - links.begin());
}

bool WaitChain::is_one_call() const {
  return std::all_of(links.begin(), links.end(),
                     [this](const WaitLink& link) { return link.in_call_of(links.front()); });
}

/// A link has a call's text only if it differs from the previous link's.
std::optional<Bytes> encode(const WaitChain& chain) {
  if (chain.links.size() > links_max) return std::nullopt;
  Bytes out;
  ByteWriter writer(out);
  writer.integer(static_cast<std::uint16_t>(chain.stage));
  writer.integer(static_cast<std::uint16_t>(chain.links.size()));
  const WaitLink* before = nullptr;
  for (const WaitLink& link : chain.links) {
    writer.integer(static_cast<std::int32_t>(link.rank));
    writer.integer(link.turn);
    writer.integer(link.communicator);
    writer.integer(link.sequence);
    const bool same = before != nullptr && link.call == before->call;
    writer.text(same ? std::string_view() : std::string_view(link.call).substr(0, call_bytes_max));
    before = &link;
  }
  if (out.size() > control_bytes_max) return std::nullopt;
  return out;
}

std::optional<WaitChain> decode_chain(BytesView payload) {
  ByteReader reader(payload);
  WaitChain chain;
  const auto stage = reader.integer<std::uint16_t>();
  if (stage < 1 || stage > 3) return std::nullopt;
  chain.stage = static_cast<WaitChain::Stage>(stage);
  const std::size_t count = reader.integer<std::uint16_t>();
  if (count == 0 || count > links_max) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    WaitLink link;
    link.rank = reader.integer<std::int32_t>();
    link.turn = reader.integer<std::uint64_t>();
    link.communicator = reader.integer<std::uint64_t>();
    link.sequence = reader.integer<std::uint64_t>();
    link.call = reader.text(call_bytes_max);
    if (link.call.empty() && i > 0) link.call = chain.links.back().call;
    chain.links.push_back(std::move(link));
  }
  if (!reader.complete()) return std::nullopt;
  return chain;
}

std::string to_string(const WaitChain& ring) {
  const auto& links = ring.links;
  const auto at = [&](std::size_t i) -> const WaitLink& { return links[i % links.size()]; };
  // Begins where another call begins.
  std::size_t first = 0;
  while (first < links.size() && at(first).in_call_of(at(first + links.size() - 1))) ++first;
  std::string text = "the ranks wait for each other: ";
  for (std::size_t i = first; i < first + links.size();) {
    std::size_t end = i + 1;
    while (end < first + links.size() && at(end).in_call_of(at(i))) ++end;
    const bool is_one = end == i + 1;
    text += (i == first ? "" : "; ") + std::string(is_one ? "rank " : "ranks ");
    for (std::size_t named = i; named < std::min(end, i + ranks_named_max); ++named) {
      text += (named == i ? "" : ", ") + std::to_string(at(named).rank);
    }
    if (end > i + ranks_named_max) {
      text += " and " + std::to_string(end - i - ranks_named_max) + " more";
    }
    text += (is_one ? " is in " : " are in ") + at(i).call +
            (is_one ? " and waits for rank " : " and wait for rank ") +
            std::to_string(at(end).rank);
    i = end;
  }
  return text;
}

}  // namespace dlaunch::transport
