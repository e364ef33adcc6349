#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"

#include <dlaunch/world.hpp>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include <sys/socket.h>

namespace dlaunch::testing {

/// The socket at which a rank of this process is reached, once it has made its first mesh.
inline Address address_of(Store& store, int rank) {
  const auto published = store.get("mesh/" + std::to_string(rank));
  if (!published) throw std::runtime_error("the rank has published no address");
  const std::string address(as_text(*published));
  const auto port = std::stoi(address.substr(address.rfind(':') + 1));
  return resolve("127.0.0.1", static_cast<std::uint16_t>(port)).front();
}

/// A rank that is nothing but a connection to another rank of its world.
class RawRank {
 public:
  RawRank(const Address& there, const WorldInfo& itself)
      : socket_(connect_tcp(there, Clock::now() + std::chrono::seconds(60))) {
    transport::Hello hello;
    hello.job = text_hash(itself.job);
    hello.epoch = itself.epoch;
    hello.rank = itself.rank;
    hello.size = itself.size;
    say({reinterpret_cast<const std::byte*>(&hello), sizeof hello});
  }
  void say(BytesView bytes) const {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(bytes.size())) throw std::runtime_error("send: too little");
  }
  void hang_up() { socket_.reset(); }

 private:
  unique_fd socket_;
};

/// The message of so many bytes of this value, with tag 0, to a world's root communicator, as it
/// goes over a connection: its header, then its payload.
inline Bytes raw_message(std::size_t bytes, int value) {
  constexpr std::uint64_t root = 1;
  transport::Fingerprint call;
  call.op = transport::Op::send;
  call.dtype = DType::u8;
  call.count = bytes;
  const auto header = transport::make_header(transport::Kind::message, root, call, bytes, 0);
  Bytes message(sizeof header + bytes, static_cast<std::byte>(value));
  std::memcpy(message.data(), &header, sizeof header);
  return message;
}

}  // namespace dlaunch::testing
