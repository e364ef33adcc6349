// dlaunch's C API, whose cost over the C++ interface shows beside it: messages, started calls, and
// one blocking collective.
#include "tests/bench/collectives/harness.hpp"

#include <dlaunch/dlaunch.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

/// A call that fails ends the rank.
void check(dl_status status) {
  if (status == DL_OK) return;
  std::fprintf(stderr, "ours in C: %s\n", dl_last_message(nullptr));
  std::exit(1);
}

/// DL_OPTIONS(.tag = tag), which a program in C makes for each call, too.
dl_options tagged(std::int32_t tag, std::int32_t line = __builtin_LINE(),
                  const char* function = __builtin_FUNCTION()) {
  dl_options options = dl_make_options(__FILE__, line, function);
  options.tag = tag;
  return options;
}

dl_view floats(float* data, std::size_t count) { return dl_make_view(data, count, DL_F32); }
dl_const_view const_floats(const float* data, std::size_t count) {
  return dl_make_const_view(data, count, DL_F32);
}

template <std::size_t count>
void finish(std::array<dl_work*, count>& works) {
  check(dl_work_wait_all(works.data(), works.size()));
  for (dl_work* const work : works) dl_work_free(work);
}

class OursInC final : public contest::Contestant {
 public:
  OursInC() {
    check(dl_world_from_env(nullptr, &world_));
    check(dl_comm_create(world_, "contest", &comm_));
    rank = dl_comm_rank(comm_);
    size = dl_comm_size(comm_);
  }
  ~OursInC() override {
    dl_comm_free(comm_);
    dl_world_free(world_);
  }

  void barrier() override {
    const dl_options here = tagged(0);
    check(dl_barrier(comm_, &here));
  }

  void share(const double* mine, double* all, int count) override {
    const auto each = static_cast<std::size_t>(count);
    const dl_options here = tagged(0);
    check(dl_all_gather(comm_, dl_make_const_view(mine, each, DL_F64),
                        dl_make_view(all, each * static_cast<std::size_t>(size), DL_F64), &here));
  }

  contest::Call call(const std::string& op, const std::string&, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const std::size_t count = bytes / sizeof(float), part = count / static_cast<std::size_t>(size);
    float *in = buffers.in, *out = buffers.out;
    if (op == "all_reduce") {
      return [=, this](long) {
        const dl_options here = tagged(0);
        check(dl_all_reduce(comm_, floats(in, count), dl_op(DL_SUM), &here));
      };
    }
    if (op == "ping_pong") return [=, this](long) { ping_pong(in, out, count); };
    if (op == "window") return [=, this](long) { window(in, out, count); };
    if (op == "halo") return [=, this](long) { halo(in, out, count / 2); };
    if (op == "random_pairs") {
      return [=, this](long turn) { exchange(in, out, count, turn); };
    }
    if (op == "fan_in") return [=, this](long turn) { fan_in(in, out, part, turn); };
    if (op == "started") {
      return [=, this](long) {
        dl_work* const work = start(in, count);
        check(dl_work_wait(work));
        dl_work_free(work);
      };
    }
    if (op == "started_test") {
      return [=, this](long) {
        dl_work* const work = start(in, count);
        for (int done = 0; done == 0;) check(dl_work_test(work, &done));
        dl_work_free(work);
      };
    }
    return {};
  }

 private:
  dl_work* start(float* data, std::size_t count) {
    dl_work* work = nullptr;
    const dl_options here = tagged(0);
    check(dl_start_all_reduce(comm_, floats(data, count), dl_op(DL_SUM), &work, &here));
    return work;
  }

  void send(const float* data, std::size_t count, int to, int tag = 0) {
    const dl_options here = tagged(tag);
    check(dl_send(comm_, const_floats(data, count), to, &here));
  }
  void recv(float* data, std::size_t count, int from, int tag = 0) {
    const dl_options here = tagged(tag);
    check(dl_recv(comm_, floats(data, count), from, nullptr, &here));
  }
  dl_work* isend(const float* data, std::size_t count, int to, int tag = 0) {
    dl_work* work = nullptr;
    const dl_options here = tagged(tag);
    check(dl_isend(comm_, const_floats(data, count), to, &work, &here));
    return work;
  }
  dl_work* irecv(float* data, std::size_t count, int from, int tag = 0) {
    dl_work* work = nullptr;
    const dl_options here = tagged(tag);
    check(dl_irecv(comm_, floats(data, count), from, &work, &here));
    return work;
  }

  void ping_pong(const float* in, float* out, std::size_t count) {
    if (rank > 1) return;
    if (rank == 0) send(in, count, 1);
    recv(out, count, 1 - rank);
    if (rank == 1) send(in, count, 0);
  }

  void window(const float* in, float* out, std::size_t count) {
    if (rank > 1) return;
    std::array<dl_work*, contest::window> all;
    for (const int sender : {0, 1}) {
      for (dl_work*& one : all) {
        one = rank == sender ? isend(in, count, 1 - rank) : irecv(out, count, 1 - rank);
      }
      finish(all);
    }
  }

  void halo(const float* in, float* out, std::size_t half) {
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    constexpr int rightwards = 0, leftwards = 1;
    std::array<dl_work*, 4> all = {
        irecv(out, half, left, rightwards), irecv(out + half, half, right, leftwards),
        isend(in, half, left, leftwards), isend(in + half, half, right, rightwards)};
    finish(all);
  }

  void exchange(const float* in, float* out, std::size_t count, long turn) {
    const int with = contest::partner(rank, size, turn);
    if (with < 0) return;
    const std::array<dl_transfer, 2> both = {dl_make_recv(floats(out, count), with, 0),
                                             dl_make_send(const_floats(in, count), with, 0)};
    const dl_options here = tagged(0);
    check(dl_batch(comm_, both.data(), both.size(), &here));
  }

  /// The root's are the first parts of `out`, as they come.
  void fan_in(const float* in, float* out, std::size_t part, long turn) {
    const int root = static_cast<int>(turn % size), tag = contest::fan_in_tag(turn);
    if (rank != root) return send(in, part, root, tag);
    for (int i = 1; i < size; ++i, out += part) recv(out, part, DL_ANY_SOURCE, tag);
  }

  dl_world* world_ = nullptr;
  dl_comm* comm_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  OursInC ours;
  return contest::run(ours, argc, argv);
}
