#pragma once

#include "collectives/transport/message/mesh.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch::algorithms {

/// Messages that are under way together. It is destroyed before the buffers; messages that have not
/// landed by then are taken back.
class Requests {
 public:
  explicit Requests(Mesh& mesh) : mesh_(mesh) {}
  Requests(Requests&&) = default;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    for (; landed_ < tickets_.size(); ++landed_) mesh_.take_back(tickets_[landed_]);
  }

  void send(int to, BytesView data) { tickets_.push_back(mesh_.start_send(to, data)); }
  void recv(int from, std::span<std::byte> data) {
    tickets_.push_back(mesh_.start_recv(from, data));
  }
  /// Waits for all of them.
  void land() {
    for (; landed_ < tickets_.size(); ++landed_) mesh_.wait(tickets_[landed_]);
    tickets_.clear();
    landed_ = 0;
  }

 private:
  Mesh& mesh_;
  std::vector<Mesh::Ticket> tickets_;
  std::size_t landed_ = 0;
};

}  // namespace dlaunch::algorithms
