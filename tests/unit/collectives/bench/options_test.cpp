#include "collectives/bench/options.hpp"

#include "collectives/algorithms/select/select.hpp"
#include "collectives/bench/explain.hpp"
#include "collectives/bench/measure.hpp"
#include "collectives/bench/memory.hpp"

#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::bench;

namespace {

using Words = std::vector<std::string>;

Settings parsed(const Words& words) {
  auto read = parse_options(words);
  const auto* ending = std::get_if<EarlyExit>(&read);
  REQUIRE_MESSAGE(ending == nullptr, ending->text);
  return std::get<Settings>(read);
}

std::string refusal(const Words& words) {
  const auto read = parse_options(words);
  const auto* ending = std::get_if<EarlyExit>(&read);
  if (ending == nullptr) return "";
  CHECK(ending->code == 64);
  return ending->text;
}

}  // namespace

TEST_CASE(
    "on a device there are no barriers, scans and patterns of messages, and nothing to explain") {
  CHECK(parsed({}).device == Device::host);
  const Settings settings = parsed({"--device", "cuda"});
  CHECK(settings.device == Device::cuda);
  CHECK(settings.ops.size() == operations().size() - 8);
  CHECK(refusal({"--device", "cuda", "--ops", "barrier"}).find("barriers move no buffers") !=
        std::string::npos);
  CHECK(refusal({"--device", "cuda", "--ops", "scan"}).find("NCCL has no scan") !=
        std::string::npos);
  CHECK(refusal({"--device", "cuda", "--explain"}).find("NCCL_DEBUG=INFO") != std::string::npos);
  CHECK(refusal({"--device", "cuda", "--calibrate", "table"}).find("is of host buffers") !=
        std::string::npos);
  CHECK(refusal({"--device", "gpu"}).find("'gpu' is none of host, cuda") != std::string::npos);
}

TEST_CASE("without options everything is measured, from 4 bytes to 64 MiB") {
  const Settings settings = parsed({});
  CHECK(settings.ops.size() == operations().size());
  CHECK(settings.sizes.front() == 4);
  CHECK(settings.sizes.back() == 64 << 20);
  CHECK(settings.sizes.size() == 13);
  CHECK(settings.dtype == DType::f32);
  CHECK(settings.redop == ReduceOp::sum);
  CHECK_FALSE(settings.root);
  CHECK_FALSE(settings.iterations);
  CHECK(settings.repetition_time == std::chrono::milliseconds(30));
}

TEST_CASE("every option") {
  const Settings settings = parsed({"--ops",
                                    "barrier,all_reduce,barrier",
                                    "--sizes=4,8",
                                    "--dtype",
                                    "i16",
                                    "--redop=bor",
                                    "--root",
                                    "1",
                                    "--buffers",
                                    "rotating",
                                    "--in_place",
                                    "--started",
                                    "--check",
                                    "--warmup",
                                    "0",
                                    "--iters",
                                    "7",
                                    "--repetitions",
                                    "3",
                                    "--repetition_time",
                                    "1",
                                    "--json",
                                    "-",
                                    "--options-only",
                                    "2"});
  CHECK(settings.ops == std::vector{Op::barrier, Op::all_reduce});
  CHECK(settings.sizes == std::vector<std::size_t>{4, 8});
  CHECK(settings.dtype == DType::i16);
  CHECK(settings.redop == ReduceOp::bor);
  CHECK(settings.root == 1);
  CHECK(settings.buffers == Buffers::rotating);
  CHECK(parsed({"--buffers", "registered"}).buffers == Buffers::registered);
  CHECK(settings.in_place);
  CHECK(settings.started);
  CHECK_FALSE(settings.tested);
  CHECK(parsed({"--tested"}).tested);
  CHECK(parsed({"--tested"}).started);
  CHECK(settings.check);
  CHECK(settings.warmup == 0);
  CHECK(settings.iterations == 7);
  CHECK(settings.repetitions == 3);
  CHECK(settings.repetition_time == std::chrono::seconds(1));
  CHECK(settings.json == "-");
  CHECK(settings.options_only == 2);
}

TEST_CASE("what cannot be is one sentence") {
  CHECK(refusal({"--size", "4"}) ==
        "dlaunch bench: unknown option --size; did you mean --sizes?\n");
  CHECK(refusal({"--colour"}) ==
        "dlaunch bench: unknown option --colour; dlaunch bench --help lists the options\n");
  CHECK(refusal({"train.py"}) ==
        "dlaunch bench: unexpected argument train.py; dlaunch bench --help lists the options\n");
  CHECK(refusal({"--sizes"}) == "dlaunch bench: --sizes needs a value: SIZES\n");
  CHECK(refusal({"--check=1x"}) ==
        "dlaunch bench: --check: '1x' is neither 1 (true, yes, on) nor 0 (false, no, off)\n");
  CHECK(refusal({"--sizes", "4x"}).starts_with("dlaunch bench: --sizes 4x: '4x' is not a size"));
  CHECK(refusal({"--ops", "sum"}).starts_with("dlaunch bench: --ops sum: 'sum' is none of all, "));
  CHECK(refusal({"--dtype", "half"}).starts_with("dlaunch bench: --dtype half: 'half' is none of"));
  CHECK(refusal({"--redop", "band"}).starts_with("dlaunch bench: band of f32 elements makes no"));
  CHECK(refusal({"--redop", "band", "--ops", "all_gather"}).empty());  // Reduces nothing.
  CHECK(refusal({"--root", "-1"}) == "dlaunch bench: --root -1: at least 0 is needed\n");
  CHECK(refusal({"--iters", "0"}) == "dlaunch bench: --iters 0: at least 1 is needed\n");
  CHECK(refusal({"--repetition-time", "1h"}).find("is not a duration") != std::string::npos);
  CHECK(refusal({"--buffers", "mapped"}) ==
        "dlaunch bench: --buffers mapped: 'mapped' is none of warm, rotating, registered\n");
  CHECK(refusal({"--json", ""}) == "dlaunch bench: --json '': the value is empty\n");
}

TEST_CASE("what does not fit the number of ranks") {
  CHECK_FALSE(objection(parsed({"--root", "3"}), 4));
  CHECK(objection(parsed({"--root", "4"}), 4)->text ==
        "dlaunch bench: --root 4: with 4 ranks the last one is 3\n");
  CHECK_FALSE(objection(parsed({"--ops", "ping_pong"}), 2));
  CHECK_FALSE(objection(parsed({}), 1));
  CHECK(objection(parsed({"--ops", "ping_pong,bidirectional"}), 1)->code == 64);
}

TEST_CASE("--help fits 80 columns and names every operation") {
  const auto read = parse_options(Words{"--help", "--sizes"});
  const auto& help = std::get<EarlyExit>(read);
  CHECK(help.code == 0);
  std::istringstream lines(help.text);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
  for (const auto& entry : operations()) {
    CHECK_MESSAGE(help.text.find(entry.name) != std::string::npos, entry.name);
  }
}

TEST_CASE("amounts and bandwidths are those of nccl-tests") {
  CHECK(amount_for(operation(Op::all_reduce), 4096, 4, 4) == Amount{1024, 4096});
  CHECK(amount_for(operation(Op::all_gather), 4096, 4, 4) == Amount{256, 4096});
  CHECK(amount_for(operation(Op::all_to_all), 4100, 4, 3) == Amount{341, 4092});
  CHECK(amount_for(operation(Op::reduce_scatter), 4, 8, 4) == Amount{1, 32});
  CHECK(amount_for(operation(Op::scan), 4096, 4, 4) == Amount{1024, 4096});
  CHECK(amount_for(operation(Op::barrier), 4096, 4, 4) == Amount{});
  Row row;
  row.op = Op::all_reduce;
  row.amount = {250'000, 1'000'000};
  row.time_us = 1000;
  CHECK(algorithm_bandwidth(row) == doctest::Approx(1.0));
  CHECK(bus_bandwidth(row, 4) == doctest::Approx(1.5));
  row.op = Op::all_gather;
  CHECK(bus_bandwidth(row, 4) == doctest::Approx(0.75));
  row.op = Op::broadcast;
  CHECK(bus_bandwidth(row, 4) == doctest::Approx(1.0));
  row.op = Op::exscan;
  CHECK(bus_bandwidth(row, 4) == doctest::Approx(1.0));
}

TEST_CASE("what the buffers take, and what is free") {
  Settings settings = parsed({"--sizes", "4,1M"});
  CHECK(buffer_bytes(settings, 2) == 2 << 20);
  settings.buffers = Buffers::rotating;
  CHECK(buffer_bytes(settings, 2) >= 4 << 20);
  CHECK(buffer_bytes(parsed({"--sizes", "4"}), 1024) == 8192);  // An element for each rank.
  CHECK(available_in("MemFree: 1 kB\nMemAvailable:   22020096 kB\n") == std::size_t{21} << 30);
  CHECK_FALSE(available_in(""));
  CHECK_FALSE(available_in("MemAvailable: much"));
}

TEST_CASE("--explain: a line for each row, by the table or by the memory that is shared") {
  const Settings settings =
      parsed({"--explain", "--ops", "barrier,all_reduce,all_gather,ping_pong", "--sizes", "4,64M"});
  CHECK(settings.explain);
  const std::string over_tcp = explain_text(settings, {.ranks = 4}, algorithms::built_in_table());
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const auto choice =
      algorithms::built_in_table().select(transport::Op::all_reduce, 64 << 20, {.ranks = 4});
  CHECK(has(over_tcp, std::string("all_reduce          67108864 B  ") +
                          algorithms::to_string(choice.algorithm) + ": " + std::string(choice.why) +
                          "\n"));
  // The size that one rank gives decides, not that of all.
  const auto part =
      algorithms::built_in_table().select(transport::Op::all_gather, 16 << 20, {.ranks = 4});
  CHECK(has(over_tcp, std::string("all_gather          67108864 B  ") +
                          algorithms::to_string(part.algorithm) + ": " + std::string(part.why) +
                          "\n"));
  CHECK(std::count(over_tcp.begin(), over_tcp.end(), '\n') == 8);
  CHECK(has(explain_text(settings, {.ranks = 4, .shared = true}, algorithms::built_in_table()),
            "all_reduce                 4 B  flag line: "));
  CHECK(has(explain_text(settings, {.ranks = 4, .shared = true}, algorithms::built_in_table()),
            "all_reduce          67108864 B  two shots: "));
  const Settings registered = parsed({"--buffers=registered", "--ops=all_reduce", "--sizes=1M"});
  CHECK(has(explain_text(registered, {.ranks = 4, .shared = true}, algorithms::built_in_table()),
            "1048576 B  in place: "));
  CHECK(has(explain_text(registered, {.ranks = 4}, algorithms::built_in_table()),
            "1048576 B  in parts: "));
  CHECK_FALSE(has(explain_text(settings, {}, algorithms::built_in_table()), "ping_pong"));
  const algorithms::Topology nodes{.ranks = 4, .nodes = 3, .in_order = true};
  CHECK(has(explain_text(settings, nodes, algorithms::built_in_table()),
            "all_reduce          67108864 B  chain: "));
  const Settings any = parsed({"--any-order", "--ops=all_reduce", "--sizes=64M"});
  CHECK(has(explain_text(any, nodes, algorithms::built_in_table()), "67108864 B  slices: "));
  const Settings scans = parsed({"--ops=scan,exscan", "--sizes=64,64M"});
  const std::string scanned = explain_text(scans, {.ranks = 4}, algorithms::built_in_table());
  CHECK(has(scanned, "scan                      64 B  gathered: "));
  CHECK(has(scanned, "exscan              67108864 B  chain: "));
}

TEST_CASE("quantiles by nearest rank") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({5}, 0.99) == 5);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  CHECK(quantile(hundred, 0.99) == 99);
  CHECK(quantile(hundred, 1) == 100);
}
