#include "collectives/bench/calls.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace dlaunch::bench {

namespace {

constexpr std::size_t page_bytes = 4096;
/// The memory of one rank's rotation: twice the last-level cache, divided by the node's ranks,
/// which share it.
constexpr std::size_t rotation_bytes = std::size_t{64} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + page_bytes - 1) / page_bytes) * page_bytes;
}

/// The same on all ranks; it does not look regular to them.
int pairing_at(long turn, int ranks) {
  auto mixed = static_cast<std::uint64_t>(turn) * 0x9e37'79b9'7f4a'7c15U;
  mixed = (mixed ^ (mixed >> 29)) * 0xbf58'476d'1ce4'e5b9U;
  return static_cast<int>((mixed >> 33) % static_cast<std::uint64_t>(pairings(ranks)));
}

}  // namespace

void Arena::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

std::size_t Arena::bytes_for(std::size_t piece_bytes_max, Buffers kind) {
  const std::size_t piece = whole_pages(piece_bytes_max);
  // At least two pieces of the largest size.
  return kind == Buffers::rotating ? std::max(rotation_bytes, 2 * piece) : piece;
}

Arena::Arena(Communicator& communicator, std::size_t piece_bytes_max, Buffers kind,
             CudaDevice* device)
    : bytes_(bytes_for(piece_bytes_max, kind)), kind_(kind), device_(device) {
  if (device != nullptr) {
    if (kind == Buffers::registered) {
      known_on_device_ = communicator.allocate_device(bytes_, device->number());
      memory_ = static_cast<std::byte*>(known_on_device_.data());
    } else {
      on_device_ = {static_cast<std::byte*>(device->allocate(bytes_)), FreeOnDevice{device}};
      memory_ = on_device_.get();
    }
    Shown(device, {memory_, bytes_, DType::u8}).clear();
    return;
  }
  if (kind == Buffers::registered) {
    registered_ = communicator.allocate(bytes_);
    memory_ = registered_.data();
  } else {
    ordinary_.reset(static_cast<std::byte*>(std::aligned_alloc(page_bytes, bytes_)));
    memory_ = ordinary_.get();
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::memset(memory_, 0, bytes_);
}

std::span<std::byte> Arena::piece(std::size_t bytes, long turn) {
  const std::size_t pieces = kind_ == Buffers::rotating ? bytes_ / whole_pages(bytes) : 1;
  const std::size_t which = static_cast<std::size_t>(turn) % pieces;
  return {memory_ + which * whole_pages(bytes), bytes};
}

Calls::Calls(Communicator& communicator, const Settings& settings, const Operation& operation,
             const Amount& amount, Arena& in, Arena& out)
    : communicator_(communicator),
      settings_(settings),
      operation_(operation),
      amount_(amount),
      in_(in),
      out_(out) {
  if (in.device() != nullptr) options_.cuda_stream = in.device()->stream();
  barrier_options_ = options_;
  barrier_options_.ordered_output = operation.op == Op::barrier_ordered;
  reduce_options_ = options_;
  reduce_options_.truncate_mean = true;
}

Case Calls::case_of(long turn) const {
  const int ranks = communicator_.size();
  const int root = operation_.partners == Partners::random
                       ? pairing_at(turn, ranks)
                       : settings_.root.value_or(static_cast<int>(turn % ranks));
  return {operation_.op, communicator_.rank(), ranks,          root,
          amount_.count, settings_.dtype,      settings_.redop};
}

Calls::Views Calls::views(long turn) const {
  const Case call = case_of(turn);
  const std::size_t width = size_of(settings_.dtype);
  Views views;
  views.root = call.root;
  // Pieces of one size whoever is the root, so that every turn of a rank has memory of its own.
  const std::size_t piece = std::max(amount_.bytes, amount_.count * width);
  const Place place{in_.device() != nullptr ? in_.device()->number() : -1};
  views.in = {in_.piece(piece, turn).data(), in_elements(call), settings_.dtype, place};
  views.out = {out_.piece(piece, turn).data(), out_elements(call), settings_.dtype, place};
  if (settings_.in_place && call.op == Op::reduce) views.in.data = views.out.data;
  return views;
}

void Calls::operator()(long turn) {
  auto& comm = communicator_;
  const Views now = views(turn);
  const Reduction redop = reduction_of(settings_);
  // Runs the measured form: `run`, or `start` and then a wait or tests.
  const auto call = [&](auto run, auto start, const auto&... arguments) {
    if (!settings_.started) return static_cast<void>((comm.*run)(arguments...));
    end((comm.*start)(arguments...));
  };
  using C = Communicator;
  switch (operation_.op) {
    case Op::barrier:
    case Op::barrier_ordered:
      return call(&C::barrier, &C::start_barrier, barrier_options_);
    case Op::broadcast:
      return call(&C::broadcast, &C::start_broadcast, now.out, now.root, options_);
    case Op::reduce:
      return call(&C::reduce, &C::start_reduce, now.in, now.out, now.root, redop, reduce_options_);
    case Op::all_reduce:
      return call(&C::all_reduce, &C::start_all_reduce, now.out, redop, reduce_options_);
    case Op::all_gather:
      return call(&C::all_gather, &C::start_all_gather, now.in, now.out, options_);
    case Op::gather:
      return call(&C::gather, &C::start_gather, now.in, now.out, now.root, options_);
    case Op::scatter:
      return call(&C::scatter, &C::start_scatter, now.in, now.out, now.root, options_);
    case Op::reduce_scatter:
      return call(&C::reduce_scatter, &C::start_reduce_scatter, now.in, now.out, redop,
                  reduce_options_);
    case Op::all_to_all:
      return call(&C::all_to_all, &C::start_all_to_all, now.in, now.out, options_);
    case Op::scan:
      return call(&C::scan, &C::start_scan, now.in, now.out, redop, reduce_options_);
    case Op::exscan:
      return call(&C::exscan, &C::start_exscan, now.in, now.out, redop, reduce_options_);
    case Op::ping_pong: {
      const int me = comm.rank();
      if (me > 1) return;
      if (me == 0) call(&C::send, &C::isend, now.in, 1, options_);
      call(&C::recv, &C::irecv, now.out, 1 - me, options_);
      if (me == 1) call(&C::send, &C::isend, now.in, 0, options_);
      return;
    }
    case Op::bidirectional:
      if (communicator_.rank() < 2) exchange(now, 1 - communicator_.rank());
      return;
    case Op::window:
      return window(now);
    case Op::halo:
      return halo(now);
    case Op::random_pairs:
      if (const auto with = partner_of(comm.rank(), comm.size(), now.root)) exchange(now, *with);
      return;
    case Op::fan_in:
      return fan_in(now, turn);
  }
}

std::uint64_t Calls::verify(long turn, Depth depth) {
  const Case call = case_of(turn);
  const Views now = views(turn);
  Shown in(in_.device(), now.in), out(in_.device(), now.out);
  if (now.in.data == now.out.data && now.in.count > 0) {
    fill(call, in.bytes(), {});
  } else {
    fill(call, in.bytes(), out.bytes());
    out.put_back();
  }
  in.put_back();
  (*this)(turn);
  finish();
  out.fetch();
  if (operation_.op == Op::fan_in) put_in_order(call, out.bytes());
  const std::uint64_t wrong = count_wrong(call, out.bytes(), depth);
  // In-place sums of the timed calls stay what they are.
  in.clear();
  out.clear();
  return wrong;
}

TensorView Calls::part(const TensorView& whole, int which) const {
  const std::size_t bytes = amount_.count * size_of(settings_.dtype);
  return {static_cast<std::byte*>(whole.data) + static_cast<std::size_t>(which) * bytes,
          amount_.count, whole.dtype};
}

void Calls::exchange(const Views& views, int with) {
  const std::array transfers = {Transfer::send(views.in, with), Transfer::recv(views.out, with)};
  if (!settings_.started) return communicator_.batch(transfers, options_);
  if (in_.device() != nullptr) {
    // One by one on a stream, each rank would wait for the other.
    for (Work& work : communicator_.start_batch(transfers, options_)) work.wait();
    return;
  }
  Work sent = communicator_.isend(views.in, with, options_);
  Work received = communicator_.irecv(views.out, with, options_);
  end(std::move(received));
  end(std::move(sent));
}

void Calls::end(Work work) const {
  while (settings_.tested && !work.test()) continue;
  work.wait();
}

/// Many messages there, then many back, which also says that the others have come.
void Calls::window(const Views& views) {
  const int me = communicator_.rank();
  if (me > 1) return;
  std::array<Work, window_messages> works;
  for (const int sender : {0, 1}) {
    for (Work& work : works) {
      work = me == sender ? communicator_.isend(views.in, 1 - me, options_)
                          : communicator_.irecv(views.out, 1 - me, options_);
    }
    wait_all(works);
  }
}

/// The exchange of an iterative solver between two steps.
void Calls::halo(const Views& views) {
  const int me = communicator_.rank(), ranks = communicator_.size();
  const int left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
  // The tag says which way it goes: two ranks are each other's neighbours on both sides.
  MessageOptions leftwards = options_, rightwards = options_;
  leftwards.tag = 1;
  std::array<Work, 4> works = {communicator_.irecv(part(views.out, 0), left, rightwards),
                               communicator_.irecv(part(views.out, 1), right, leftwards),
                               communicator_.isend(part(views.in, 0), left, leftwards),
                               communicator_.isend(part(views.in, 1), right, rightwards)};
  wait_all(works);
}

/// All others send to the root, which receives from anybody: a server, and its clients. The tag
/// keeps a rank that is a call ahead out of this one.
void Calls::fan_in(const Views& views, long turn) {
  constexpr long tags = 1 << 15;
  MessageOptions options = options_;
  options.tag = static_cast<int>(turn % tags);
  const int me = communicator_.rank();
  if (me != views.root) {
    if (!settings_.started) return communicator_.send(views.in, views.root, options);
    return end(communicator_.isend(views.in, views.root, options));
  }
  const TensorView own = part(views.out, me);
  if (own.count > 0) std::memcpy(own.data, views.in.data, own.bytes());
  arrived_.assign(static_cast<std::size_t>(communicator_.size()), me);
  for (int which = 0; which < communicator_.size(); ++which) {
    if (which == me) continue;
    int& source = arrived_[static_cast<std::size_t>(which)];
    if (!settings_.started) {
      source = communicator_.recv(part(views.out, which), any_source, options).source;
      continue;
    }
    Work work = communicator_.irecv(part(views.out, which), any_source, options);
    while (settings_.tested && !work.test()) continue;
    work.wait();
    source = work.received()->source;
  }
}

/// Moves the parts of fan_in, which lie there as they came, to the places of their sources.
void Calls::put_in_order(const Case& call, std::span<std::byte> parts) const {
  if (call.rank != call.root) return;
  const std::vector<std::byte> came(parts.begin(), parts.end());
  const std::size_t bytes = came.size() / arrived_.size();
  for (std::size_t which = 0; which < arrived_.size(); ++which) {
    const auto source = static_cast<std::size_t>(arrived_[which]);
    std::memcpy(parts.data() + source * bytes, came.data() + which * bytes, bytes);
  }
}

}  // namespace dlaunch::bench
