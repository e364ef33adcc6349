#pragma once

#include "collectives/transport/message/pauses.hpp"
#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/message/transport.hpp"
#include "collectives/transport/tcp/acceptor.hpp"
#include "collectives/transport/tcp/inbound_connection.hpp"
#include "collectives/transport/tcp/outbound_connection.hpp"
#include "collectives/transport/tcp/proof.hpp"

#include <dlaunch/store.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::transport {

/// The transport over TCP, which leads everywhere. There is a connection to each rank to which
/// something is sent, made at the first message, and one from each rank that sends. Ranks find each
/// other by the addresses in the store.
class TcpTransport final : public Transport {
 public:
  struct Setting {
    Hello hello;  ///< This rank's Hello; its mesh's number is found out here.
    std::shared_ptr<Store> store;
    std::optional<Key> key;  ///< The key that ranks prove to each other.
    unique_fd listener;      ///< A listener whose address the others already know; or none.
    /// The mesh's generation, if its ranks have agreed on one; else the next number is taken.
    std::optional<std::uint32_t> generation;
  };
  /// Makes its address known if nobody did.
  TcpTransport(Setting setting, const Surroundings& mesh);
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  /// Which of the meshes made from this world it belongs to.
  std::uint32_t generation() const { return of_.hello.mesh; }
  /// The key under which the others find this rank's address.
  std::string own_key() const { return key_of(of_.hello.rank); }
  std::uint64_t strangers() const { return acceptor_.strangers(); }
  const std::string& shortage() const { return acceptor_.shortage(); }

  Reach reach(int, const std::optional<Location>&) const override { return Reach::yes; }
  bool is_in_memory() const noexcept override { return false; }
  std::unique_ptr<SendingEnd> connect(SendQueue& queue) override;
  bool progress() override;
  void lie_down() override {}
  void get_up() override {}
  Clock::time_point next_wake() const override;

 private:
  unique_fd publish();
  std::uint32_t first_free_behind(std::uint32_t taken);
  std::string own_host();
  std::string key_of(int rank) const;
  void look_up(OutboundConnection& connection);
  bool look_up_pending(Clock::time_point now);
  const Key* key() const { return of_.key ? &*of_.key : nullptr; }

  Setting of_;
  const Surroundings mesh_;
  std::deque<InboundConnection> inbound_;
  InboundConnection::Unfinished unfinished_, visited_;
  std::vector<OutboundConnection*> unaddressed_;  ///< Their queues own them.
  Acceptor acceptor_;
  Pauses lookups_;
};

}  // namespace dlaunch::transport
