#pragma once

#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/algorithms/select/select.hpp"
#include "collectives/transport/message/mesh.hpp"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace dlaunch::testing {

/// When a message is copied from its sender's buffer to its receiver's. A program that keeps to
/// what Mesh says gets the same bytes either way; one that touches a borrowed buffer does not, and
/// ThreadSanitizer sees the race.
enum class Copying {
  at_once,  ///< As soon as both sides have begun.
  late,     ///< When the receiver waits.
};

/// The messages between ranks that are threads.
class MemoryWire {
 public:
  MemoryWire(int size, Copying copying, algorithms::Table table = {})
      : size_(size),
        copying_(copying),
        table_(std::move(table)),
        changed_(static_cast<std::size_t>(size)),
        pairs_(static_cast<std::size_t>(size * size)) {}

  struct Message {
    BytesView from;
    bool done = false;
  };
  struct Wanted {
    std::span<std::byte> into;
    bool done = false;
  };

  std::shared_ptr<Message> send(int from, int to, BytesView data) {
    const std::lock_guard lock(mutex_);
    auto message = std::make_shared<Message>(Message{data});
    pair(from, to).sent.push_back(message);
    if (copying_ == Copying::at_once) match(from, to);
    changed(to).notify_one();
    return message;
  }
  std::shared_ptr<Wanted> receive(int from, int to, std::span<std::byte> into) {
    const std::lock_guard lock(mutex_);
    auto wanted = std::make_shared<Wanted>(Wanted{into});
    pair(from, to).wanted.push_back(wanted);
    if (copying_ == Copying::at_once) match(from, to);
    return wanted;
  }
  /// Waits until `ready()`; what `rank` wants is copied meanwhile.
  void wait(int rank, const std::function<bool()>& ready) {
    std::unique_lock lock(mutex_);
    const auto settled = [&] {
      for (int from = 0; from < size_; ++from) match(from, rank);
      return failed_ || ready();
    };
    if (!changed(rank).wait_for(lock, std::chrono::seconds(60), settled)) {
      fail_locked();
      throw std::runtime_error("rank " + std::to_string(rank) + " waits in vain");
    }
    if (failed_) throw std::runtime_error("rank " + std::to_string(rank) + ": another failed");
  }
  void take_back(int from, int to, const Message* message, const Wanted* wanted) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pair(from, to).sent, [&](const auto& each) { return each.get() == message; });
    std::erase_if(pair(from, to).wanted, [&](const auto& each) { return each.get() == wanted; });
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fail_locked();
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    for (const Pair& each : pairs_) {
      if (!each.sent.empty() || !each.wanted.empty()) return false;
    }
    return true;
  }
  int size() const { return size_; }
  const algorithms::Table& table() const { return table_; }

 private:
  struct Pair {
    std::deque<std::shared_ptr<Message>> sent;
    std::deque<std::shared_ptr<Wanted>> wanted;
  };
  Pair& pair(int from, int to) { return pairs_[static_cast<std::size_t>(from * size_ + to)]; }
  std::condition_variable& changed(int rank) { return changed_[static_cast<std::size_t>(rank)]; }

  void fail_locked() {
    failed_ = true;
    for (auto& each : changed_) each.notify_one();
  }
  void match(int from, int to) {
    Pair& each = pair(from, to);
    while (!failed_ && !each.sent.empty() && !each.wanted.empty()) {
      Message& message = *each.sent.front();
      Wanted& wanted = *each.wanted.front();
      if (message.from.size() != wanted.into.size()) return fail_locked();
      if (!message.from.empty()) {
        std::memcpy(wanted.into.data(), message.from.data(), message.from.size());
      }
      message.done = wanted.done = true;
      each.sent.pop_front();
      each.wanted.pop_front();
      changed(from).notify_one();
      changed(to).notify_one();
    }
  }

  const int size_;
  const Copying copying_;
  const algorithms::Table table_;
  std::mutex mutex_;
  /// One for each rank: with one for all, each message would wake every rank.
  std::vector<std::condition_variable> changed_;
  std::vector<Pair> pairs_;
  bool failed_ = false;
};

class MemoryMesh final : public Mesh {
 public:
  MemoryMesh(MemoryWire& wire, int rank) : wire_(wire), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return wire_.size(); }
  BufferPool& buffer_pool() override { return buffer_pool_; }
  const algorithms::Table& table() const override { return wire_.table(); }
  void send(int to, BytesView data) override {
    algorithms::Requests requests(*this);
    requests.send(to, data);
    requests.land();
  }
  void recv(int from, std::span<std::byte> data) override {
    algorithms::Requests requests(*this);
    requests.recv(from, data);
    requests.land();
  }
  void exchange(int to, BytesView out, int from, std::span<std::byte> in) override {
    algorithms::Requests requests(*this);
    requests.recv(from, in);
    requests.send(to, out);
    requests.land();
  }
  Ticket start_send(int to, BytesView data) override {
    const auto message = wire_.send(rank_, to, data);
    return add({[message] { return message->done; },
                [this, to, message] { wire_.take_back(rank_, to, message.get(), nullptr); }});
  }
  Ticket start_recv(int from, std::span<std::byte> data) override {
    const auto wanted = wire_.receive(from, rank_, data);
    return add({[wanted] { return wanted->done; },
                [this, from, wanted] { wire_.take_back(from, rank_, nullptr, wanted.get()); }});
  }
  void wait(Ticket ticket) override {
    wire_.wait(rank_, under_way_.at(ticket).done);
    under_way_.erase(ticket);
  }
  void take_back(Ticket ticket) noexcept override {
    under_way_.at(ticket).take_back();
    under_way_.erase(ticket);
  }
  /// Every ticket was waited for, or taken back.
  bool is_settled() const { return under_way_.empty(); }

 private:
  struct Message {
    std::function<bool()> done;
    std::function<void()> take_back;
  };
  Ticket add(Message message) {
    under_way_.emplace(next_, std::move(message));
    return next_++;
  }

  MemoryWire& wire_;
  BufferPool buffer_pool_;
  const int rank_;
  Ticket next_ = 0;
  std::map<Ticket, Message> under_way_;
};

/// Runs `body` as ranks that are threads; the first error, empty if there was none.
inline std::string run_meshes(int size, Copying copying, const std::function<void(Mesh&)>& body,
                              algorithms::Table table = {}) {
  MemoryWire wire(size, copying, std::move(table));
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        MemoryMesh mesh(wire, rank);
        auto& error = errors[static_cast<std::size_t>(rank)];
        try {
          body(mesh);
        } catch (const std::exception& failure) {
          error = failure.what();
        }
        if (!mesh.is_settled()) error = "a message was started and not waited for";
        if (!error.empty()) wire.fail();
      });
    }
  }
  for (const auto& error : errors) {
    if (!error.empty()) return error;
  }
  return wire.is_empty() ? "" : "messages are left over";
}

}  // namespace dlaunch::testing
