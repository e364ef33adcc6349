// Gloo's collectives over TCP. Variables: RANK, WORLD_SIZE, STORE (a folder), INTERFACE.
//
// all_reduce has its newer ways (ring, bcube), its older ones (chunked, halving), and halving over
// pairs that poll busily instead of being woken, which lock up when two large writes meet.
#include "harness.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;
constexpr std::size_t busy_bytes_max = 1 << 20;

class Gloo final : public contest::Contestant {
 public:
  Gloo() : store_(contest::variable("STORE", "/nonexistent")) {
    rank = contest::variable("RANK", 0);
    size = contest::variable("WORLD_SIZE", 1);
    gloo::transport::tcp::attr address;
    address.iface = contest::variable("INTERFACE", "lo");
    device_ = gloo::transport::tcp::CreateDevice(address);
    context_ = connected("context");
    older_ = connected("older");
    busy_ = connected("busy");
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) busy_->getPair(peer)->setSync(true, true);
    }
  }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  void share(const double* mine, double* all, int count) override {
    gloo::AllgatherOptions options(context_);
    options.setInput(const_cast<double*>(mine), static_cast<std::size_t>(count));
    options.setOutput(all, static_cast<std::size_t>(count * size));
    gloo::allgather(options);
  }

  std::vector<std::string> ways(const std::string& op) override {
    if (op == "all_reduce") return {"ring", "bcube", "chunked", "halving", "busy"};
    if (op == "barrier") return {"", "busy"};
    return {""};
  }

  contest::Call call(const std::string& op, const std::string& way, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const std::size_t count = bytes / sizeof(float), part = count / static_cast<std::size_t>(size);
    float *in = buffers.in, *out = buffers.out;
    if (op == "barrier") return barrier_call(way);
    if (op == "all_reduce") return all_reduce_call(way, in, count);
    if (op == "broadcast") {
      std::vector<std::shared_ptr<gloo::BroadcastOptions>> turns;
      for (int root = 0; root < size; ++root) {
        turns.push_back(std::make_shared<gloo::BroadcastOptions>(context_));
        turns.back()->setOutput(in, count);
        turns.back()->setRoot(root);
      }
      return [turns](long turn) {
        gloo::broadcast(*turns[static_cast<std::size_t>(turn) % turns.size()]);
      };
    }
    if (op == "all_gather") {
      const auto options = std::make_shared<gloo::AllgatherOptions>(context_);
      options->setInput(in, part);
      options->setOutput(out, count);
      return [options](long) { gloo::allgather(*options); };
    }
    if (op == "reduce_scatter") {
      using Algorithm = gloo::ReduceScatterHalvingDoubling<float>;
      const auto algorithm = std::make_shared<Algorithm>(
          older_, std::vector<float*>{in}, static_cast<int>(count),
          std::vector<int>(static_cast<std::size_t>(size), static_cast<int>(part)));
      return [=](long) {  // It reduces in place.
        algorithm->run();
        std::memcpy(out, in, part * sizeof(float));
      };
    }
    if (op == "all_to_all") {
      const auto options = std::make_shared<gloo::AlltoallOptions>(context_);
      options->setInput(in, count);
      options->setOutput(out, count);
      return [options](long) { gloo::alltoall(*options); };
    }
    if (op == "ping_pong") return ping_pong_call(in, out, bytes);
    return {};
  }

 private:
  Context connected(const std::string& name) {
    gloo::rendezvous::PrefixStore store(name, store_);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device_);
    return context;
  }

  contest::Call barrier_call(const std::string& way) {
    if (way.empty()) return [this](long) { barrier(); };
    const auto algorithm = std::make_shared<gloo::BarrierAllToAll>(busy_);
    return [algorithm](long) { algorithm->run(); };
  }

  contest::Call all_reduce_call(const std::string& way, float* in, std::size_t count) {
    const std::vector<float*> pointers{in};
    const auto elements = static_cast<int>(count);
    if (way == "chunked") {
      const auto algorithm =
          std::make_shared<gloo::AllreduceRingChunked<float>>(older_, pointers, elements);
      return [algorithm](long) { algorithm->run(); };
    }
    if (way == "halving" || way == "busy") {
      if (way == "busy" && count * sizeof(float) > busy_bytes_max) return {};
      const auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
          way == "busy" ? busy_ : older_, pointers, elements);
      return [algorithm](long) { algorithm->run(); };
    }
    const auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    using Fold = void (*)(void*, const void*, const void*, std::size_t);
    options->setOutput(in, count);
    options->setReduceFunction(static_cast<Fold>(&gloo::sum<float>));
    options->setAlgorithm(way == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                        : gloo::AllreduceOptions::Algorithm::BCUBE);
    return [options](long) { gloo::allreduce(*options); };
  }

  contest::Call ping_pong_call(float* in, float* out, std::size_t bytes) {
    using Buffer = std::shared_ptr<gloo::transport::UnboundBuffer>;
    const Buffer outgoing = context_->createUnboundBuffer(in, bytes);
    const Buffer incoming = context_->createUnboundBuffer(out, bytes);
    return [outgoing, incoming, me = rank](long) {
      if (me > 1) return;
      if (me == 0) outgoing->send(1, 1);
      incoming->recv(1 - me, me == 0 ? 2 : 1);
      incoming->waitRecv();
      if (me == 1) outgoing->send(0, 2);
      outgoing->waitSend();
    };
  }

  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::transport::Device> device_;
  Context context_, older_, busy_;
};

}  // namespace

int main(int argc, char** argv) {
  Gloo gloo;
  return contest::run(gloo, argc, argv);
}
