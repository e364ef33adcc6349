// MPI's collectives: compiled once by Open MPI's compiler and once by MPICH's.
#include "harness.hpp"

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
    return {};
  }
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
