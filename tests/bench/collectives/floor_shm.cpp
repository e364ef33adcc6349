// The floor within a node: the same operations written by hand over shared memory, for nothing but
// speed. No checks, no faults, no waiting but spinning (sched_yield where cores are short).
//
//   flat     everyone publishes all, everyone folds all: the fewest synchronisations
//   slices   reduce-scatter and all-gather through staged chunks: the fewest bytes
//   staged   the others' operations from ordinary buffers, through staged chunks
//   mapped   the program's buffers lie in shared memory themselves: nothing is staged
//
// Variables: RANK, WORLD_SIZE, SEGMENT (a file on a tmpfs), YIELD=1 where cores are short.
#include "tests/bench/collectives/harness.hpp"

#include <atomic>
#include <cstdint>

#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>

namespace {

constexpr int ranks_max = 8;
constexpr std::size_t chunk_bytes = 256 << 10;  ///< One rank's; two of them stay in its L2.
constexpr std::size_t chunk = chunk_bytes / sizeof(float);
constexpr std::size_t inline_max = 12;  ///< Floats beside a sequence number in one cache line.
constexpr std::size_t heap_bytes = std::size_t{160} << 20;
constexpr int shared_max = 64;  ///< Numbers that a rank can share at once.

struct alignas(64) Line {
  std::atomic<std::uint64_t> arrived;
  float data[inline_max];
};
static_assert(sizeof(Line) == 64);

struct Segment {
  Line arrived[ranks_max];
  Line sent[2];   ///< By sender, in chunks.
  Line taken[2];  ///< By sender.
  Line offered[2];
  Line small[2][ranks_max];
  double shared[ranks_max][shared_max];
  alignas(4096) float stage[2][ranks_max][chunk];
  alignas(4096) float folded[2][ranks_max][chunk];
  alignas(4096) char heap[ranks_max][heap_bytes];
};

void add(float* into, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

void copy(float* into, const float* from, std::size_t count) {
  std::memcpy(into, from, count * sizeof(float));
}

class Floor final : public contest::Contestant {
 public:
  Floor() {
    rank = contest::variable("RANK", 0);
    size = contest::variable("WORLD_SIZE", 1);
    yield_ = contest::variable("YIELD", 0) != 0;
    const int file = ::open(contest::variable("SEGMENT", "/dev/shm/floor").c_str(),
                            O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (size > ranks_max || file < 0 || ::ftruncate(file, sizeof(Segment)) != 0) std::abort();
    void* memory = ::mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::abort();
    ::close(file);
    shm_ = static_cast<Segment*>(memory);
    barrier();
  }

  void barrier() override { meet(); }

  void share(const double* mine, double* all, int count) override {
    if (count > shared_max) std::abort();
    const auto each = static_cast<std::size_t>(count);
    std::memcpy(shm_->shared[rank], mine, each * sizeof(double));
    meet();
    for (int r = 0; r < size; ++r) std::memcpy(all + each * at(r), shm_->shared[r], each * 8);
    meet();
  }

  /// Everyone's lies at the same place of his heap.
  float* allocate(std::size_t bytes) override {
    if (used_ + bytes > heap_bytes) std::abort();
    auto* memory = reinterpret_cast<float*>(shm_->heap[rank] + used_);
    used_ += bytes;
    return memory;
  }

  std::vector<std::string> ways(const std::string& op) override {
    if (op == "barrier") return {""};
    if (op == "all_reduce") return {"flat", "slices", "mapped"};
    return {"staged", "mapped"};
  }

  contest::Call call(const std::string& op, const std::string& way, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const std::size_t count = bytes / sizeof(float), part = count / at(size);
    float *in = buffers.in, *out = buffers.out;
    const bool mapped = way == "mapped";
    if (op == "barrier") return [this](long) { meet(); };
    if (op == "all_reduce" && way == "flat") {
      if (count <= inline_max) return [=, this](long) { all_reduce_inline(in, count); };
      return [=, this](long) { all_reduce_flat(in, count); };
    }
    if (op == "all_reduce" && way == "slices") {
      if (count < 512) return {};
      return [=, this](long) { all_reduce_slices(in, count); };
    }
    if (op == "all_reduce") return [=, this](long) { all_reduce_mapped(in, count); };
    if (op == "broadcast") {
      return [=, this](long turn) {
        const int root = static_cast<int>(turn % size);
        mapped ? broadcast_mapped(in, count, root) : broadcast_staged(in, count, root);
      };
    }
    if (op == "ping_pong") {
      return [=, this](long) {
        for (const int sender : {0, 1}) {
          if (rank > 1) continue;
          mapped ? message_mapped(in, out, count, sender) : message_staged(in, out, count, sender);
        }
      };
    }
    const Exchange exchange{op == "all_gather", op == "reduce_scatter"};
    if (op != "all_to_all" && !exchange.same_to_all && !exchange.fold) return {};
    return [=, this](long) {
      mapped ? exchange_mapped(in, out, part, exchange) : exchange_staged(in, out, part, exchange);
    };
  }

 private:
  /// all_gather, reduce_scatter and all_to_all: everyone has something for everyone.
  struct Exchange {
    bool same_to_all;  ///< There is one part, for all.
    bool fold;         ///< Arriving data is added up.
  };

  static std::size_t at(int r) { return static_cast<std::size_t>(r); }

  void wait(const std::atomic<std::uint64_t>& flag, std::uint64_t wanted) const {
    for (int spins = 0; flag.load(std::memory_order_acquire) < wanted; ++spins) {
      if (yield_ && spins > 50) {
        ::sched_yield();
      } else {
        _mm_pause();
      }
    }
  }

  /// Everyone has come so far.
  void meet() {
    ++step_;
    shm_->arrived[rank].arrived.store(step_, std::memory_order_release);
    for (int r = 0; r < size; ++r) wait(shm_->arrived[r].arrived, step_);
  }

  /// Another rank's memory at the place of this one's.
  float* theirs(float* mine, int r) const {
    auto* bytes = reinterpret_cast<char*>(mine);
    return reinterpret_cast<float*>(bytes + (r - rank) * static_cast<std::ptrdiff_t>(heap_bytes));
  }

  void all_reduce_inline(float* in, std::size_t count) {
    ++small_;
    Line* row = shm_->small[small_ & 1];
    std::memcpy(row[rank].data, in, count * sizeof(float));
    row[rank].arrived.store(small_, std::memory_order_release);
    float sum[inline_max] = {};
    for (int r = 0; r < size; ++r) {
      wait(row[r].arrived, small_);
      add(sum, row[r].data, count);
    }
    std::memcpy(in, sum, count * sizeof(float));
  }

  /// Two stages in turn: who comes to a stage again has met everyone since, so all have left it.
  void all_reduce_flat(float* in, std::size_t count) {
    for (std::size_t from = 0; from < count; from += chunk, ++turn_) {
      const std::size_t n = std::min(chunk, count - from);
      auto& stage = shm_->stage[turn_ & 1];
      copy(stage[rank], in + from, n);
      meet();
      for (int r = 0; r < size; ++r) {
        if (r != rank) add(in + from, stage[r], n);
      }
    }
  }

  void all_reduce_slices(float* in, std::size_t count) {
    for (std::size_t from = 0; from < count; from += chunk, ++turn_) {
      const std::size_t n = std::min(chunk, count - from), slice = (n + at(size) - 1) / at(size);
      const auto begin = [&](int r) { return std::min(n, slice * at(r)); };
      const auto length = [&](int r) { return begin(r + 1) - begin(r); };
      auto& stage = shm_->stage[turn_ & 1];
      auto& folded = shm_->folded[turn_ & 1];
      for (int r = 0; r < size; ++r) {
        if (r != rank) copy(stage[rank] + begin(r), in + from + begin(r), length(r));
      }
      meet();
      float* own = in + from + begin(rank);
      for (int r = 0; r < size; ++r) {
        if (r != rank) add(own, stage[r] + begin(rank), length(rank));
      }
      copy(folded[rank], own, length(rank));
      meet();
      for (int r = 0; r < size; ++r) {
        if (r != rank) copy(in + from + begin(r), folded[r], length(r));
      }
    }
  }

  void all_reduce_mapped(float* in, std::size_t count) {
    const std::size_t slice = (count + at(size) - 1) / at(size);
    const std::size_t begin = std::min(count, slice * at(rank));
    const std::size_t n = std::min(count, begin + slice) - begin;
    float* mine = in + begin;
    meet();
    if (size == 2) {
      float* other = theirs(mine, 1 - rank);
      for (std::size_t i = 0; i < n; ++i) mine[i] = other[i] = mine[i] + other[i];
    } else {
      for (int r = 0; r < size; ++r) {
        if (r != rank) add(mine, theirs(mine, r), n);
      }
      for (int r = 0; r < size; ++r) {
        if (r != rank) copy(theirs(mine, r), mine, n);
      }
    }
    meet();
  }

  void broadcast_staged(float* in, std::size_t count, int root) {
    for (std::size_t from = 0; from < count; from += chunk, ++turn_) {
      const std::size_t n = std::min(chunk, count - from);
      float* stage = shm_->stage[turn_ & 1][0];
      if (rank == root) copy(stage, in + from, n);
      meet();
      if (rank != root) copy(in + from, stage, n);
    }
  }

  void broadcast_mapped(float* in, std::size_t count, int root) {
    meet();
    if (rank != root) copy(in, theirs(in, root), count);
    meet();
  }

  void exchange_staged(float* in, float* out, std::size_t part, Exchange how) {
    const std::size_t piece = how.same_to_all ? chunk : chunk / at(size);
    for (std::size_t from = 0; from < part; from += piece, ++turn_) {
      const std::size_t n = std::min(piece, part - from);
      auto& stage = shm_->stage[turn_ & 1];
      const auto source = [&](int r) { return in + (how.same_to_all ? 0 : at(r) * part) + from; };
      const auto slot = [&](int r) { return how.same_to_all ? 0 : at(r) * piece; };
      const auto target = [&](int r) { return out + (how.fold ? 0 : at(r) * part) + from; };
      for (int r = 0; r < (how.same_to_all ? 1 : size); ++r) {
        if (how.same_to_all || r != rank) copy(stage[rank] + slot(r), source(r), n);
      }
      copy(target(rank), source(rank), n);
      meet();
      for (int r = 0; r < size; ++r) {
        if (r == rank) continue;
        const float* staged = stage[r] + slot(rank);
        how.fold ? add(target(r), staged, n) : copy(target(r), staged, n);
      }
    }
  }

  void exchange_mapped(float* in, float* out, std::size_t part, Exchange how) {
    meet();
    float* source = in + (how.same_to_all ? 0 : at(rank) * part);
    copy(out + (how.fold ? 0 : at(rank) * part), source, part);
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      how.fold ? add(out, theirs(source, r), part)
               : copy(out + at(r) * part, theirs(source, r), part);
    }
    meet();
  }

  /// The sender's line counts chunks, the receiver's acknowledges them; two may be under way.
  void message_staged(float* in, float* out, std::size_t count, int sender) {
    auto& sent = shm_->sent[sender].arrived;
    auto& taken = shm_->taken[sender].arrived;
    std::uint64_t& number = messages_[sender];
    for (std::size_t from = 0; from < count; from += chunk) {
      const std::size_t n = std::min(chunk, count - from);
      float* stage = shm_->stage[number & 1][sender];
      ++number;
      if (rank == sender) {
        if (number > 2) wait(taken, number - 2);
        copy(stage, in + from, n);
        sent.store(number, std::memory_order_release);
      } else {
        wait(sent, number);
        copy(out + from, stage, n);
        taken.store(number, std::memory_order_release);
      }
    }
  }

  void message_mapped(float* in, float* out, std::size_t count, int sender) {
    auto& offered = shm_->offered[sender].arrived;
    const std::uint64_t number = ++mapped_messages_[sender];
    if (rank == sender) {
      offered.store(number, std::memory_order_release);
    } else {
      wait(offered, number);
      copy(out, theirs(in, sender), count);
    }
  }

  Segment* shm_ = nullptr;
  bool yield_ = false;
  std::size_t used_ = 0;
  std::uint64_t step_ = 0, small_ = 0, turn_ = 0;
  std::uint64_t messages_[2] = {0, 0}, mapped_messages_[2] = {0, 0};
};

}  // namespace

int main(int argc, char** argv) {
  Floor floor;
  return contest::run(floor, argc, argv);
}
