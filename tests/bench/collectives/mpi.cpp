// MPI's collectives: compiled once by Open MPI's compiler and once by MPICH's.
#include "harness.hpp"

#include <array>

#include <mpi.h>

namespace {

class Mpi final : public contest::Contestant {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  void share(const double* mine, double* all, int count) override {
    MPI_Allgather(mine, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
  }

  contest::Call call(const std::string& op, const std::string&, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const int count = static_cast<int>(bytes / sizeof(float)), part = count / size;
    float *in = buffers.in, *out = buffers.out;
    const MPI_Comm world = MPI_COMM_WORLD;
    const int ranks = size, me = rank;
    if (op == "barrier") return [=](long) { MPI_Barrier(world); };
    if (op == "all_reduce") {
      return [=](long) { MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world); };
    }
    if (op == "broadcast") {
      return [=](long turn) {
        MPI_Bcast(in, count, MPI_FLOAT, static_cast<int>(turn % ranks), world);
      };
    }
    if (op == "all_gather") {
      return [=](long) { MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world); };
    }
    if (op == "reduce_scatter") {
      return [=](long) { MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, world); };
    }
    if (op == "all_to_all") {
      return [=](long) { MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world); };
    }
    if (op == "ping_pong") {
      return [=](long) {
        if (me > 1) return;
        if (me == 0) MPI_Send(in, count, MPI_FLOAT, 1, 0, world);
        MPI_Recv(out, count, MPI_FLOAT, 1 - me, 0, world, MPI_STATUS_IGNORE);
        if (me == 1) MPI_Send(in, count, MPI_FLOAT, 0, 0, world);
      };
    }
    // MPI_Iallreduce moves nothing while nobody is in a call; that is what is compared.
    if (op == "started") {
      return [=](long) {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      };
    }
    if (op == "started_test") {
      return [=](long) {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world, &request);
        for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      };
    }
    if (op == "started_window" && count <= contest::window_elements) {
      while (others_.size() < contest::window_communicators) {
        others_.emplace_back();
        MPI_Comm_dup(world, &others_.back());
      }
      return [=](long) {
        MPI_Request requests[contest::started_window];
        for (int i = 0; i < contest::started_window; ++i) {
          MPI_Iallreduce(MPI_IN_PLACE, windows_ + i * contest::window_elements, count, MPI_FLOAT,
                         MPI_SUM, others_[static_cast<std::size_t>(i) % others_.size()],
                         &requests[i]);
        }
        MPI_Waitall(contest::started_window, requests, MPI_STATUSES_IGNORE);
      };
    }
    if (op == "started_then_blocking") {
      return [=](long) {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 1; i < contest::started_window; ++i) {
          MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world);
        }
      };
    }
    if (op == "started_computing") {
      return [=](long) {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, world, &request);
        contest::compute();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      };
    }
    if (op == "window") {
      return [=](long) {
        if (me > 1) return;
        std::array<MPI_Request, contest::window> all;
        for (int sender = 0; sender < 2; ++sender) {
          for (MPI_Request& one : all) {
            if (me == sender) MPI_Isend(in, count, MPI_FLOAT, 1 - me, 0, world, &one);
            if (me != sender) MPI_Irecv(out, count, MPI_FLOAT, 1 - me, 0, world, &one);
          }
          MPI_Waitall(contest::window, all.data(), MPI_STATUSES_IGNORE);
        }
      };
    }
    if (op == "halo") {
      const int half = count / 2, left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
      return [=](long) {
        std::array<MPI_Request, 4> all;
        MPI_Irecv(out, half, MPI_FLOAT, left, 0, world, &all[0]);
        MPI_Irecv(out + half, half, MPI_FLOAT, right, 1, world, &all[1]);
        MPI_Isend(in, half, MPI_FLOAT, left, 1, world, &all[2]);
        MPI_Isend(in + half, half, MPI_FLOAT, right, 0, world, &all[3]);
        MPI_Waitall(4, all.data(), MPI_STATUSES_IGNORE);
      };
    }
    if (op == "random_pairs") {
      return [=](long turn) {
        const int with = contest::partner(me, ranks, turn);
        if (with < 0) return;
        MPI_Sendrecv(in, count, MPI_FLOAT, with, 0, out, count, MPI_FLOAT, with, 0, world,
                     MPI_STATUS_IGNORE);
      };
    }
    if (op == "fan_in") {
      return [=](long turn) {
        const int root = static_cast<int>(turn % ranks), tag = contest::fan_in_tag(turn);
        if (me != root) {
          MPI_Send(in, part, MPI_FLOAT, root, tag, world);
          return;
        }
        for (int i = 0; i + 1 < ranks; ++i) {
          MPI_Recv(out + i * part, part, MPI_FLOAT, MPI_ANY_SOURCE, tag, world, MPI_STATUS_IGNORE);
        }
      };
    }
    return {};
  }

 private:
  std::vector<MPI_Comm> others_;
  alignas(64) float windows_[contest::window * contest::window_elements] = {};
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 1;
  {
    Mpi mpi;
    code = contest::run(mpi, argc, argv);
  }
  MPI_Finalize();
  return code;
}
