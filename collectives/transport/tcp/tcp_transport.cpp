#include "collectives/transport/tcp/tcp_transport.hpp"

#include "collectives/transport/message/send_queue.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace dlaunch::transport {
namespace {

Address address_of(std::string_view text) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string_view::npos ||
      std::from_chars(text.data() + colon + 1, end, port).ptr != end) {
    throw Error(Errc::internal, "a rank published '" + std::string(text) +
                                    "' as its address; host:port was expected");
  }
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return resolve(host, port).front();
}

}  // namespace

TcpTransport::TcpTransport(Setting setting, const Surroundings& mesh)
    : of_(std::move(setting)),
      mesh_(mesh),
      acceptor_(mesh.poller, publish(), of_.hello, key(), [this](int from, unique_fd connected) {
        if (mesh_.sources.has(from)) return false;
        InboundConnection& connection =
            inbound_.emplace_back(mesh_, std::move(connected), from, unfinished_);
        mesh_.sources.add(from, connection);
        connection.pump(mesh_.inbox, mesh_.on_control);
        return true;
      }) {}

/// The agent's listener was made known by World::init. A listener of our own is made known here;
/// the first free key tells how many meshes this rank made from the world before.
unique_fd TcpTransport::publish() {
  of_.hello.mesh = of_.generation.value_or(0);
  of_.hello.proves = of_.key ? 1 : 0;
  if (of_.listener) return std::move(of_.listener);
  unique_fd listener = listen_tcp(resolve(own_host(), 0).front());
  const std::string address = local_address(listener.get()).to_string();
  if (of_.generation) {
    of_.store->set(own_key(), as_bytes(address));
    return listener;
  }
  while (!of_.store->compare_set(own_key(), std::nullopt, as_bytes(address))) {
    of_.hello.mesh = first_free_behind(of_.hello.mesh);
  }
  return listener;
}

/// The first number behind a taken one that is free. They are taken in order and never given back,
/// so doubling and halving finds it in few questions, however many meshes there were.
std::uint32_t TcpTransport::first_free_behind(std::uint32_t taken) {
  const auto is_taken = [this](std::uint32_t number) {
    of_.hello.mesh = number;
    return of_.store->get(own_key()).has_value();
  };
  std::uint32_t free = taken + 1;
  for (std::uint32_t step = 1; is_taken(free); step *= 2) {
    taken = free;
    free += step;
  }
  while (free - taken > 1) {
    const std::uint32_t middle = taken + (free - taken) / 2;
    (is_taken(middle) ? taken : free) = middle;
  }
  return free;
}

/// The host at which others reach this rank, from its first mesh or World::init.
std::string TcpTransport::own_host() {
  const auto first = of_.store->get("mesh/" + std::to_string(of_.hello.rank));
  return first ? address_of(as_text(*first)).host() : "127.0.0.1";
}

std::string TcpTransport::key_of(int rank) const {
  const std::string key = "mesh/" + std::to_string(rank);
  return generation() == 0 ? key : key + "/" + std::to_string(generation());
}

// ---- Sending. ----

std::unique_ptr<SendingEnd> TcpTransport::connect(SendQueue& queue) {
  auto connection =
      std::make_unique<OutboundConnection>(mesh_.poller, queue, of_.hello, key(), unaddressed_);
  look_up(*connection);
  return connection;
}

void TcpTransport::look_up(OutboundConnection& connection) {
  const auto address = of_.store->get(key_of(connection.queue().to()));
  if (address) connection.connect(address_of(as_text(*address)));
}

/// Asks the store for the addresses that are awaited.
bool TcpTransport::look_up_pending(Clock::time_point now) {
  std::vector<OutboundConnection*> awaited;
  std::copy_if(unaddressed_.begin(), unaddressed_.end(), std::back_inserter(awaited),
               [](const OutboundConnection* connection) { return connection->wants_address(); });
  if (awaited.empty()) lookups_.forget();
  if (awaited.empty() || !lookups_.are_over(now)) return false;
  bool moved = false;
  for (OutboundConnection* connection : awaited) {
    look_up(*connection);
    if (connection->wants_address()) continue;
    connection->queue().pump();  // If it cannot connect, it ends.
    moved = true;
  }
  return moved;
}

bool TcpTransport::progress() {
  const auto now = Clock::now();
  bool moved = look_up_pending(now);
  visited_.swap(unfinished_);
  for (InboundConnection* each : visited_) moved = each->go_on() || moved;
  visited_.clear();
  acceptor_.progress(now);
  return moved;
}

Clock::time_point TcpTransport::next_wake() const {
  const bool looks_up = std::any_of(unaddressed_.begin(), unaddressed_.end(),
                                    [](const auto* each) { return each->wants_address(); });
  return looks_up ? std::min(lookups_.next(), acceptor_.next_wake()) : acceptor_.next_wake();
}

}  // namespace dlaunch::transport
