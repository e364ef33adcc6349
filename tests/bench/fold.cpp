// What a reduction costs, beside memcpy: build/bench/fold [--benchmark_filter=sum.f32]
//
// GB/s count every byte loaded and stored once. Small sizes stay in the caches, the largest do not.
#include "collectives/reduce/reduce.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

namespace {

using namespace dlaunch;

using Memory = std::vector<std::vector<std::byte>>;

Memory memory(std::size_t buffers, std::size_t bytes) {
  return Memory(buffers, std::vector<std::byte>(bytes + 64, std::byte{0x3c}));
}

void set_moved(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  auto buffers = memory(2, bytes);
  for (auto _ : state) {
    std::memcpy(buffers[1].data(), buffers[0].data(), bytes);
    benchmark::ClobberMemory();
  }
  set_moved(state, 2 * bytes);
}
BENCHMARK(copy)->Range(4, 64 << 20);

void fold(benchmark::State& state, ReduceOp op, DType dtype, Instructions instructions,
          Stores stores) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto ranks = static_cast<std::size_t>(state.range(1));
  auto buffers = memory(ranks + 1, bytes);
  std::vector<const std::byte*> inputs;
  for (std::size_t rank = 0; rank < ranks; ++rank) inputs.push_back(buffers[rank].data());
  const Reduction reduction(op);
  const std::size_t count = bytes / size_of(dtype);
  for (auto _ : state) {
    const Reducer reducer(reduction, dtype, false, instructions);
    reducer(inputs, buffers.back().data(), nullptr, count, stores);
    benchmark::ClobberMemory();
  }
  set_moved(state, (ranks + 1) * bytes);
}

void sizes(benchmark::internal::Benchmark* each) {
  for (const std::int64_t ranks : {2, 4, 8}) {
    for (const std::int64_t bytes : {4, 56, 256, 4 << 10, 256 << 10, 64 << 20}) {
      each->Args({bytes, ranks});
    }
  }
}

const char* name_of(Instructions instructions) {
  switch (instructions) {
    case Instructions::baseline:
      return "baseline";
    case Instructions::avx2:
      return "avx2";
    case Instructions::avx512:
      return "avx512";
  }
  return "";
}

void add(ReduceOp op, DType dtype, Instructions instructions, Stores stores) {
  if (instructions > best_instructions()) return;
  const std::string name = std::string(to_string(op)) + "." + to_string(dtype) + "/" +
                           name_of(instructions) + (stores == Stores::streamed ? "/streamed" : "");
  benchmark::RegisterBenchmark(name.c_str(), fold, op, dtype, instructions, stores)->Apply(sizes);
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto set : {Instructions::baseline, Instructions::avx2, Instructions::avx512}) {
    add(ReduceOp::sum, DType::f32, set, Stores::cached);
    add(ReduceOp::sum, DType::bf16, set, Stores::cached);
    add(ReduceOp::sum, DType::f16, set, Stores::cached);
  }
  add(ReduceOp::sum, DType::f32, best_instructions(), Stores::streamed);
  add(ReduceOp::max, DType::f32, best_instructions(), Stores::cached);
  add(ReduceOp::mean, DType::f32, best_instructions(), Stores::cached);
  add(ReduceOp::sum, DType::u8, best_instructions(), Stores::cached);
  add(ReduceOp::product, DType::i64, best_instructions(), Stores::cached);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::RunSpecifiedBenchmarks();
}
