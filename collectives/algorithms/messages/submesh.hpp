#pragma once

#include "collectives/transport/message/mesh.hpp"

#include <cstddef>
#include <span>

namespace dlaunch::algorithms {

/// Some ranks of a mesh, numbered anew; borrows both. For those ranks.
class Submesh final : public Mesh {
 public:
  Submesh(Mesh& whole, std::span<const int> ranks, int rank)
      : whole_(whole), ranks_(ranks), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  BufferPool& buffer_pool() override { return whole_.buffer_pool(); }
  const Table& table() const override { return whole_.table(); }
  void send(int to, BytesView data) override { whole_.send(at(to), data); }
  void recv(int from, std::span<std::byte> data) override { whole_.recv(at(from), data); }
  void exchange(int to, BytesView out, int from, std::span<std::byte> in) override {
    whole_.exchange(at(to), out, at(from), in);
  }
  Ticket start_send(int to, BytesView data) override { return whole_.start_send(at(to), data); }
  Ticket start_recv(int from, std::span<std::byte> data) override {
    return whole_.start_recv(at(from), data);
  }
  void wait(Ticket ticket) override { whole_.wait(ticket); }
  void take_back(Ticket ticket) noexcept override { whole_.take_back(ticket); }

 private:
  int at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  Mesh& whole_;
  const std::span<const int> ranks_;
  const int rank_;
};

}  // namespace dlaunch::algorithms
