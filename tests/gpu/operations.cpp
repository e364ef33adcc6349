#include "tests/gpu/scenarios.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

/// Both sides of a call begin with the same bytes, and end with the same.
namespace dlaunch::gpu_test {
namespace {

constexpr std::array small_counts = {std::size_t{0}, std::size_t{1}};
constexpr std::array large_counts = {std::size_t{17}, std::size_t{4096 + 3}};
constexpr std::array all_types = {DType::u8,  DType::i8,  DType::i16,     DType::u16, DType::i32,
                                  DType::u32, DType::i64, DType::u64,     DType::f16, DType::bf16,
                                  DType::f32, DType::f64, DType::boolean, DType::c64, DType::c128};
constexpr std::array numbers_of_nccl = {DType::u8,  DType::i8,  DType::i32, DType::u32,
                                        DType::i64, DType::u64, DType::f16, DType::bf16,
                                        DType::f32, DType::f64};

/// The arguments of a call beside its buffers.
struct Given {
  std::size_t count = 0;     ///< Elements of a part.
  std::uint64_t choice = 0;  ///< Random, the same on all ranks.
  int root = 0;
  Reduction reduction;
  Options options;
  std::vector<std::size_t> counts;      ///< By rank, where parts differ.
  std::vector<std::size_t> in_counts;   ///< For each rank from this one.
  std::vector<std::size_t> out_counts;  ///< The other way.
};

/// The elements of a buffer, for one rank.
using Elements = std::size_t (*)(const Communicator&, const Given&);
using Call = void (*)(Communicator&, ConstTensorView in, TensorView out, const Given&);

struct Operation {
  const char* name;
  bool reduces;
  Elements in;
  Elements out;
  Call call;
  int ranks_min = 1;
};

std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t none(const Communicator&, const Given&) { return 0; }
std::size_t one_part(const Communicator&, const Given& given) { return given.count; }
std::size_t all_parts(const Communicator& comm, const Given& given) {
  return static_cast<std::size_t>(comm.size()) * given.count;
}
std::size_t own_of_counts(const Communicator& comm, const Given& given) {
  return given.counts[static_cast<std::size_t>(comm.rank())];
}
std::size_t all_of_counts(const Communicator&, const Given& given) { return sum_of(given.counts); }
std::size_t all_sent(const Communicator&, const Given& given) { return sum_of(given.in_counts); }
std::size_t all_received(const Communicator&, const Given& given) {
  return sum_of(given.out_counts);
}

void exchange_in_ring(Communicator& comm, ConstTensorView in, TensorView out, const Given& given) {
  const int size = comm.size();
  const std::array both = {Transfer::send(in, (comm.rank() + 1) % size),
                           Transfer::recv(out, (comm.rank() + size - 1) % size)};
  comm.batch(both, given.options);
}

void send_to_the_last(Communicator& comm, ConstTensorView in, TensorView out, const Given& given) {
  const int last = comm.size() - 1;
  if (comm.rank() == 0) comm.send(in, last, given.options);
  if (comm.rank() == last) comm.recv(out, 0, given.options);
}

constexpr std::array operations = {
    Operation{"all_reduce", true, none, one_part,
              [](Communicator& comm, ConstTensorView, TensorView out, const Given& g) {
                comm.all_reduce(out, g.reduction, g.options);
              }},
    Operation{"reduce", true, one_part, one_part,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.reduce(in, out, g.root, g.reduction, g.options);
              }},
    Operation{"reduce_scatter", true, all_parts, one_part,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.reduce_scatter(in, out, g.reduction, g.options);
              }},
    Operation{"reduce_scatter_v", true, all_of_counts, own_of_counts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.reduce_scatter_v(in, out, g.counts, g.reduction, g.options);
              }},
    Operation{"broadcast", false, none, one_part,
              [](Communicator& comm, ConstTensorView, TensorView out, const Given& g) {
                comm.broadcast(out, g.root, g.options);
              }},
    Operation{"all_gather", false, one_part, all_parts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.all_gather(in, out, g.options);
              }},
    Operation{"all_gather_v", false, own_of_counts, all_of_counts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.all_gather_v(in, out, g.counts, g.options);
              }},
    Operation{"gather", false, one_part, all_parts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.gather(in, out, g.root, g.options);
              }},
    Operation{"gather_v", false, own_of_counts, all_of_counts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.gather_v(in, out, g.counts, g.root, g.options);
              }},
    Operation{"scatter", false, all_parts, one_part,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.scatter(in, out, g.root, g.options);
              }},
    Operation{"scatter_v", false, all_of_counts, own_of_counts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.scatter_v(in, out, g.counts, g.root, g.options);
              }},
    Operation{"all_to_all", false, all_parts, all_parts,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.all_to_all(in, out, g.options);
              }},
    Operation{"all_to_all_v", false, all_sent, all_received,
              [](Communicator& comm, ConstTensorView in, TensorView out, const Given& g) {
                comm.all_to_all_v(in, g.in_counts, out, g.out_counts, g.options);
              }},
    Operation{"batch", false, one_part, one_part, exchange_in_ring, 2},
    Operation{"send and recv", false, one_part, one_part, send_to_the_last, 2},
};

/// Calls with(T{}) for the C++ type of one that NCCL has arithmetic for.
template <class With>
void with_type(DType dtype, const With& with) {
  switch (dtype) {
    case DType::u8:
      return with(std::uint8_t{});
    case DType::i8:
      return with(std::int8_t{});
    case DType::i32:
      return with(std::int32_t{});
    case DType::u32:
      return with(std::uint32_t{});
    case DType::i64:
      return with(std::int64_t{});
    case DType::u64:
      return with(std::uint64_t{});
    case DType::f16:
      return with(float16{});
    case DType::bf16:
      return with(bfloat16{});
    case DType::f32:
      return with(float{});
    case DType::f64:
      return with(double{});
    case DType::i16:
    case DType::u16:
    case DType::boolean:
    case DType::c64:
    case DType::c128:
      expect(false, std::string("NCCL has arithmetic for ") + to_string(dtype));
  }
}

bool is_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}
bool is_unsigned(DType dtype) {
  return dtype == DType::u8 || dtype == DType::u32 || dtype == DType::u64;
}

/// The same on every machine (SplitMix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Anything, for what is only moved.
Bytes any_bytes(std::size_t count, DType dtype, Random& random) {
  Bytes bytes(count * size_of(dtype));
  for (std::byte& byte : bytes) {
    const std::uint64_t some = random.next();
    byte = static_cast<std::byte>(dtype == DType::boolean ? some % 2 : some);
  }
  return bytes;
}

/// Small whole numbers, whose sums and products every type holds exactly, in whatever order.
Bytes numbers(std::size_t count, DType dtype, Random& random) {
  Bytes bytes(count * size_of(dtype));
  const int least = is_unsigned(dtype) ? 0 : -3;
  with_type(dtype, [&](auto zero) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<decltype(zero)>(
          static_cast<float>(least + static_cast<int>(random.next() % 8)));
      std::memcpy(bytes.data() + i * sizeof zero, &value, sizeof zero);
    }
  });
  return bytes;
}

std::vector<double> values_of(const Bytes& bytes, DType dtype) {
  std::vector<double> values;
  with_type(dtype, [&](auto element) {
    for (std::size_t i = 0; i + sizeof element <= bytes.size(); i += sizeof element) {
      std::memcpy(&element, bytes.data() + i, sizeof element);
      if constexpr (std::is_arithmetic_v<decltype(element)>) {
        values.push_back(static_cast<double>(element));
      } else {
        values.push_back(static_cast<float>(element));
      }
    }
  });
  return values;
}

/// NCCL's mean of floats is a sum of elements times the rounded reciprocal of the number of ranks.
double tolerance_of(DType dtype, ReduceOp op) {
  if (op != ReduceOp::mean || !is_float(dtype)) return 0;
  if (dtype == DType::bf16) return 0x1p-4;
  if (dtype == DType::f16) return 0x1p-7;
  return dtype == DType::f32 ? 0x1p-20 : 0x1p-48;
}

/// Memory of the device: one buffer that NCCL knows, and one that it does not.
class Memory {
 public:
  Memory(const Rank& rank, std::size_t bytes)
      : rank_(rank), half_(bytes / 2), registered_(rank.comm.allocate_device(bytes, rank.device)) {
    expect(rank.driver.allocate(&plain_, bytes) == 0, "memory of the driver");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { rank_.driver.free(plain_); }

  TensorView in(bool registered, DType dtype, std::size_t count) const {
    return view(registered, 0, dtype, count);
  }
  TensorView out(bool registered, DType dtype, std::size_t count) const {
    return view(registered, half_, dtype, count);
  }

 private:
  TensorView view(bool registered, std::size_t at, DType dtype, std::size_t count) const {
    expect(count * size_of(dtype) <= half_, "a buffer that is large enough");
    void* const begin = registered ? registered_.data() : reinterpret_cast<void*>(plain_);
    return {static_cast<std::byte*>(begin) + at, count, dtype, Place{rank_.device}};
  }

  const Rank& rank_;
  const std::size_t half_;
  DeviceBuffer registered_;
  unsigned long long plain_ = 0;
};

class Comparison {
 public:
  explicit Comparison(const Rank& rank)
      : rank_(rank),
        // For four times as many parts as ranks, of the largest elements.
        memory_(rank, 8 * static_cast<std::size_t>(rank.comm.size()) * large_counts.back() * 16),
        stream_(make_stream(rank)) {}

  void run() {
    for (const Operation& operation : operations) {
      if (rank_.comm.size() < operation.ranks_min) continue;
      rank_.comm.barrier();
      if (!operation.reduces) {
        for (const DType dtype : all_types) try_counts(operation, dtype, {});
        continue;
      }
      for (const DType dtype : numbers_of_nccl) {
        for (const ReduceOp op :
             {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::mean}) {
          // NCCL has no mean of integers.
          if (op == ReduceOp::mean && !is_float(dtype)) continue;
          try_counts(operation, dtype, op);
        }
        if (is_float(dtype)) try_counts(operation, dtype, Reduction::premul_sum(0.5));
      }
    }
  }

 private:
  /// One small and one large count, the others the next time: on a GPU that ranks share each call
  /// takes milliseconds.
  void try_counts(const Operation& operation, DType dtype, const Reduction& reduction) {
    const std::size_t turn = turns_++ % 2;
    compare(operation, dtype, given(small_counts[turn], reduction));
    compare(operation, dtype, given(large_counts[turn], reduction));
  }

  /// Parts of v-forms differ, and some are empty.
  Given given(std::size_t count, const Reduction& reduction) {
    Given made;
    made.count = count;
    made.choice = Random(++made_).next() >> 8;
    made.root = static_cast<int>(made.choice % 1024) % rank_.comm.size();
    made.reduction = reduction;
    const auto me = static_cast<std::size_t>(rank_.comm.rank());
    const auto ranks = static_cast<std::size_t>(rank_.comm.size());
    for (std::size_t other = 0; other < ranks; ++other) {
      made.counts.push_back(count * ((other + made.choice) % 3));
      made.in_counts.push_back(count * ((me + 2 * other) % 3));
      made.out_counts.push_back(count * ((other + 2 * me) % 3));
    }
    return made;
  }

  void compare(const Operation& operation, DType dtype, const Given& given) {
    Communicator& comm = rank_.comm;
    Random random((made_ << 32) + static_cast<std::uint64_t>(comm.rank()));
    const auto bytes = [&](std::size_t count) {
      return operation.reduces ? numbers(count, dtype, random) : any_bytes(count, dtype, random);
    };
    const std::size_t in_count = operation.in(comm, given), out_count = operation.out(comm, given);
    const Bytes in = bytes(in_count), before = bytes(out_count);
    Bytes host = before, device = before;
    operation.call(comm, {in.data(), in_count, dtype}, {host.data(), out_count, dtype}, given);

    const bool is_registered = given.choice % 2 == 0;
    Given on_device = given;
    // One that waits on the host takes longer, and goes the way of those on streams.
    if (given.choice / 2 % 8 != 0) on_device.options.cuda_stream = stream_;
    const TensorView in_view = memory_.in(is_registered, dtype, in_count);
    const TensorView out_view = memory_.out(is_registered, dtype, out_count);
    to_device(rank_, in_view.data, in);
    to_device(rank_, out_view.data, before);
    operation.call(comm, in_view, out_view, on_device);
    expect(rank_.driver.synchronize(on_device.options.cuda_stream) == 0, "a stream ends");
    from_device(rank_, device, out_view.data);
    check_equal(operation, dtype, given, device, host);
  }

  void check_equal(const Operation& operation, DType dtype, const Given& given, const Bytes& device,
                   const Bytes& host) const {
    const std::string what = std::string(operation.name) + " of " + std::to_string(given.count) +
                             " elements of " + to_string(dtype) + ", " +
                             (operation.reduces ? given.reduction.name() + ", " : "") + "root " +
                             std::to_string(given.root);
    if (!operation.reduces) {
      expect(device == host, what + ": as on the host");
      return;
    }
    const double tolerance = tolerance_of(dtype, given.reduction.op());
    const auto on_device = values_of(device, dtype), on_host = values_of(host, dtype);
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      if (std::abs(on_device[i] - on_host[i]) <= tolerance * std::max(1.0, std::abs(on_host[i]))) {
        continue;
      }
      expect(false, what + ": element " + std::to_string(i) + " is " +
                        std::to_string(on_device[i]) + ", and on the host " +
                        std::to_string(on_host[i]));
    }
  }

  const Rank& rank_;
  Memory memory_;
  void* const stream_;
  std::uint64_t made_ = 0;
  std::size_t turns_ = 0;
};

}  // namespace

void compare_with_host(const Rank& rank) { Comparison(rank).run(); }

}  // namespace dlaunch::gpu_test
