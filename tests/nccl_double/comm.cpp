#include "tests/nccl_double/comm.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dlaunch::nccl_double {
namespace {

using nccl::NcclResult;

bool is_message(const Operation& operation) {
  return operation.what == What::send || operation.what == What::recv;
}

std::uint64_t count(Comm& comm, const Operation& operation) {
  if (operation.what == What::send) return comm.sends[operation.peer]++;
  if (operation.what == What::recv) return comm.receives[operation.peer]++;
  return comm.collectives++;
}

/// If both have come, and agree on how much it is.
void deliver(Ranks& ranks, const std::tuple<int, int, std::uint64_t>& key) {
  const auto out = ranks.sent.find(key);
  const auto in = ranks.received.find(key);
  if (out == ranks.sent.end() || in == ranks.received.end()) return;
  if (out->second.operation.count != in->second.operation.count) return;
  const auto& data = out->second.data;
  if (!data.empty()) std::memcpy(in->second.operation.out, data.data(), data.size());
  in->second.done = true;
  ranks.sent.erase(out);
}

void come(Ranks& ranks, int me, const Operation& operation, std::uint64_t number) {
  if (operation.what == What::send) {
    const std::tuple key(me, operation.peer, number);
    const auto* const from = static_cast<const char*>(operation.in);
    const std::size_t bytes = operation.count * bytes_of(operation.dtype);
    ranks.sent[key] = {operation, {from, from + bytes}, true};
    return deliver(ranks, key);
  }
  if (operation.what == What::recv) {
    const std::tuple key(operation.peer, me, number);
    ranks.received[key] = {operation, {}, false};
    return deliver(ranks, key);
  }
  Meeting& meeting = ranks.meetings[number];
  meeting.come.emplace_back(me, operation);
  if (static_cast<int>(meeting.come.size()) != ranks.size) return;
  const bool agreed = std::all_of(meeting.come.begin(), meeting.come.end(), [&](auto& one) {
    return one.second.fits(meeting.come.front().second);
  });
  if (agreed) finish(meeting);
}

bool is_done(Ranks& ranks, int me, const Operation& operation, std::uint64_t number) {
  if (operation.what == What::send) return true;
  if (operation.what == What::recv) return ranks.received[{operation.peer, me, number}].done;
  return ranks.meetings[number].done;
}

void leave(Ranks& ranks, const Operation& operation, std::uint64_t number) {
  if (is_message(operation)) return;
  const auto meeting = ranks.meetings.find(number);
  if (++meeting->second.left == ranks.size) ranks.meetings.erase(meeting);
}

/// Nobody reads or writes its buffers from now on. What was sent was copied.
void withdraw(Ranks& ranks, int me, const Operation& operation, std::uint64_t number) {
  if (operation.what == What::send) return;
  if (operation.what == What::recv) {
    ranks.received.erase({operation.peer, me, number});
    return;
  }
  const auto meeting = ranks.meetings.find(number);
  if (meeting == ranks.meetings.end()) return;
  std::erase_if(meeting->second.come, [&](const auto& one) { return one.first == me; });
}

}  // namespace

void Comm::begin(std::function<NcclResult()> work) {
  join();
  job_done = cancelled = false;
  job = std::thread([this, work = std::move(work)] {
    state = work();
    job_done = true;
  });
}

bool Comm::connect() {
  if (connected) return true;
  std::unique_lock lock(ranks->mutex);
  ++ranks->connecting;
  ranks->changed.notify_all();
  ranks->changed.wait(lock, [&] { return has_ended() || ranks->connecting >= ranks->size; });
  connected = !has_ended();
  return connected;
}

void Comm::drain() {
  std::unique_lock lock(ranks->mutex);
  ranks->changed.wait(lock, [&] { return graphs == 0; });
  const auto is_mine = [&](const auto& one) { return std::get<0>(one.first) == rank; };
  ranks->changed.wait(lock, [&] {
    return aborted || std::none_of(ranks->sent.begin(), ranks->sent.end(), is_mine);
  });
  std::erase_if(ranks->sent, is_mine);
}

void Comm::settle() {
  std::unique_lock lock(ranks->mutex);
  ranks->changed.wait(lock, [&] { return launches == 0; });
}

void Launch::operator()() const {
  Ranks& ranks = *comm->ranks;
  std::unique_lock lock(ranks.mutex);
  if (comm->has_ended()) return;
  ++comm->launches;
  std::vector<std::pair<Operation, std::uint64_t>> steps;
  for (const Operation& operation : operations) {
    steps.emplace_back(operation, count(*comm, operation));
  }
  for (const auto& [operation, number] : steps) come(ranks, comm->rank, operation, number);
  ranks.changed.notify_all();
  for (const auto& [operation, number] : steps) {
    ranks.changed.wait(lock, [&, what = operation, which = number] {
      return comm->has_ended() || is_done(ranks, comm->rank, what, which);
    });
    if (comm->has_ended()) {
      withdraw(ranks, comm->rank, operation, number);
    } else {
      leave(ranks, operation, number);
    }
  }
  --comm->launches;
  ranks.changed.notify_all();
}

}  // namespace dlaunch::nccl_double
