// `dlaunch bench` as people run it: real launcher, real ranks.
#include "runtime/base/os/socket.hpp"
#include "tests/process/job.hpp"
#include "tests/process/processors.hpp"
#include "tests/support/temporary_folder.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;

namespace dlaunch::process_test {
namespace {

using Words = std::vector<std::string>;

Words bench(const Words& more) {
  Words words = {"bench", "--standalone"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Little work: the shape of what comes out counts here.
const Words quick = {"--nproc-per-node=2", "--sizes", "4,4K", "--iters", "2", "--repetitions", "2"};

Words quick_bench(const Words& more) {
  Words words = bench(quick);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> columns_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> columns;
  for (std::string column; in >> column;) columns.push_back(column);
  return columns;
}

}  // namespace

TEST_CASE("bench: one table, each operation and size once, nothing wrong") {
  Job job(quick_bench({"--check"}));
  CHECK(job.wait().code == 0);
  CAPTURE(job.out());
  CHECK(job.err().empty());
  std::istringstream lines(job.out());
  std::vector<std::string> head;
  std::map<std::string, int> seen;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) {
      head.push_back(line);
      continue;
    }
    const auto columns = columns_of(line);
    REQUIRE(columns.size() == 13);
    ++seen[columns[0]];
    CHECK(std::stod(columns[6]) > 0);  // time
    CHECK(columns[9] == "0");          // #wrong
    CHECK(std::stod(columns[12]) > 0);
  }
  REQUIRE(head.size() == 5);
  CHECK(head[0].find(": 2 ranks on 1 node, ") != std::string::npos);
  CHECK(columns_of(head[3]) == Words{"#", "size", "count", "type", "redop", "root", "time", "algbw",
                                     "busbw", "#wrong", "p50", "p99", "max"});
  CHECK(seen.size() == 18);
  for (const auto& entry : seen) {
    CHECK_MESSAGE(entry.second == (entry.first.starts_with("barrier") ? 1 : 2), entry.first);
  }
}

TEST_CASE("bench --json -: the results on stdout, the table on stderr") {
  Job job(quick_bench({"--ops", "all_reduce,barrier,broadcast", "--json", "-", "--dtype", "bf16",
                       "--redop", "mean", "--root", "1", "--tested"}));
  CHECK(job.wait().code == 0);
  CAPTURE(job.out());
  CHECK(job.err().starts_with("# dlaunch bench "));
  const auto all = nlohmann::json::parse(job.out());
  CHECK(all["ranks"] == 2);
  CHECK(all["nodes"] == 1);
  CHECK(all["hosts"].size() == 1);
  CHECK(all["dtype"] == "bf16");
  CHECK(all["redop"] == "mean");
  CHECK(all["started"] == true);
  CHECK(all["tested"] == true);
  REQUIRE(all["rows"].size() == 5);
  const auto& row = all["rows"][1];
  CHECK(row["op"] == "all_reduce");
  CHECK(row["size"] == 4096);
  CHECK(row["count"] == 2048);
  CHECK(row["iterations"] == 2);
  CHECK(row["repetitions"] == 2);
  CHECK(row["wrong"] == 0);
  CHECK(row["algbw_gb_s"] == row["busbw_gb_s"]);  // 2 (n - 1) / n is 1 for two ranks.
  for (const char* time :
       {"time_us", "time_least_us", "time_most_us", "p50_us", "p99_us", "max_us"})
    CHECK_MESSAGE(row[time] > 0, time);
  CHECK(all["rows"][3]["root"] == "1");
}

TEST_CASE("bench --json FILE") {
  const std::string path =
      (fs::temp_directory_path() / ("dlaunch_bench_" + unique_token())).string();
  Job job(quick_bench({"--ops=barrier", "--json=" + path}));
  CHECK(job.wait().code == 0);
  std::ifstream in(path);
  CHECK(nlohmann::json::parse(in)["rows"].size() == 1);
  fs::remove(path);
  Job refused(quick_bench({"--ops=barrier", "--json=/no/such/folder/file"}));
  CHECK(refused.wait().code == 64);
  CHECK(refused.err().find("dlaunch bench: --json /no/such/folder/file: cannot be written: ") == 0);
}

TEST_CASE("bench: more ranks than cores, rotating buffers") {
  Job job({"bench", "--standalone", "--nproc-per-node=5", "--ops=all_to_all,reduce", "--sizes=4K",
           "--iters=2", "--repetitions=2", "--buffers=rotating", "--in-place", "--check"});
  CHECK(job.wait().code == 0);
  CHECK(job.out().find("5 ranks on 1 node") != std::string::npos);
  CHECK(count(job.out(), "\nall_to_all ") == 1);
  CHECK(count(job.out(), "\nreduce ") == 1);
}

TEST_CASE("bench: registered buffers, in which calls work in place") {
  Job job({"bench", "--standalone", "--nproc-per-node=3", "--sizes=4,4K,1M", "--iters=2",
           "--repetitions=2", "--buffers=registered", "--check", "--json=-"});
  CHECK(job.wait().code == 0);
  CHECK(job.err().find("\n# registered buffers; ") != std::string::npos);
  const auto all = nlohmann::json::parse(job.out());
  CHECK(all["buffers"] == "registered");
  CHECK(all["buffers_shared"] == true);
  CHECK(all["rows"].size() == 50);
}

TEST_CASE("bench over two nodes of one host: they share memory, or do not") {
  for (const auto& each : {std::pair("host", "shared memory"), {"node", "TCP"}}) {
    const char* const sharing = each.first;
    const char* const transport = each.second;
    CAPTURE(sharing);
    const auto port = free_port();
    const Words line = {"bench",
                        "--nnodes=2",
                        "--nproc-per-node=1",
                        "--rdzv-endpoint=127.0.0.1:" + std::to_string(port),
                        std::string("--shared-memory=") + sharing,
                        "--ops=all_reduce",
                        "--sizes=4K",
                        "--iters=2",
                        "--check"};
    Job one(line), other(line);
    CHECK(one.wait().code == 0);
    CHECK(other.wait().code == 0);
    const std::string both = one.out() + other.out();
    CHECK(count(both, std::string("2 ranks on 2 nodes, ") + transport + ";") == 1);
  }
}

TEST_CASE("bench says that ranks share processors, those of other nodes of the host counted in") {
  const int only = own_processors().front();
  const auto quick = [](const Words& more) {
    Words line = {"bench", "--nproc-per-node=1", "--ops=barrier", "--iters=2", "--json=-"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  };
  const auto says_so = [](const std::string& out, const std::string& err) {
    const auto all = nlohmann::json::parse(out);
    CHECK(all["oversubscribed"] == (count(err, ": oversubscribed\n") == 1));
    return all["oversubscribed"].get<bool>();
  };
  const OnProcessor one(only);
  Job alone(quick({"--standalone"})), two(quick({"--standalone", "--nproc-per-node=2"}));
  CHECK(alone.wait().code == 0);
  CHECK(two.wait().code == 0);
  CHECK_FALSE(says_so(alone.out(), alone.err()));
  CHECK(says_so(two.out(), two.err()));
  // Each node has a processor for its rank.
  for (const std::string sharing : {"host", "node"}) {
    CAPTURE(sharing);
    const Words line =
        quick({"--nnodes=2", "--rdzv-endpoint=127.0.0.1:" + std::to_string(free_port()),
               "--shared-memory=" + sharing});
    Job first(line), second(line);
    CHECK(first.wait().code == 0);
    CHECK(second.wait().code == 0);
    CHECK(says_so(first.out() + second.out(), first.err() + second.err()));
  }
}

TEST_CASE("bench over two nodes: the same line on both, one table") {
  const auto port = free_port();
  const Words line = {"bench",
                      "--nnodes=2",
                      "--nproc-per-node=1",
                      "--rdzv-endpoint=127.0.0.1:" + std::to_string(port),
                      "--ops=all_reduce",
                      "--sizes=4K",
                      "--iters=2",
                      "--check"};
  Job one(line), other(line);
  CHECK(one.wait().code == 0);
  CHECK(other.wait().code == 0);
  const std::string both = one.out() + other.out();
  CHECK(count(both, "2 ranks on 2 nodes, ") == 1);
  CHECK(count(both, "\nall_reduce ") == 1);
}

TEST_CASE("bench --explain measures nothing") {
  Job job(bench({"--nproc-per-node=2", "--explain", "--ops=all_reduce,reduce", "--sizes=4,1M"}));
  CHECK(job.wait().code == 0);
  CHECK(count(job.out(), "\nall_reduce ") == 2);
  CHECK(count(job.out(), "\nreduce ") == 2);
  CHECK(count(job.out(), "#wrong") == 0);
}

TEST_CASE("bench refuses buffers that do not fit into memory") {
  // Two pieces of 16 GiB each for input and for output, on so many ranks.
  Job job({"bench", "--standalone", "--nproc-per-node=40", "--sizes=16G", "--buffers=rotating"});
  CHECK(job.wait().code == 64);
  CHECK(job.out().empty());
  CHECK(job.err().starts_with("dlaunch bench: --sizes: up to 16 GiB take 2560 GiB on "));
}

TEST_CASE("bench of one rank works, without messages to another") {
  Job job({"bench", "--standalone", "--nproc-per-node=1", "--sizes=4K", "--iters=2"});
  CHECK(job.wait().code == 0);
  CHECK(job.out().find("1 rank on 1 node") != std::string::npos);
  CHECK(count(job.out(), "\nall_reduce ") == 1);
  CHECK(count(job.out(), "\nping_pong ") == 0);
}

TEST_CASE("bench: help goes to stdout; a wrong option is one sentence, and nothing starts") {
  Job help({"bench", "--help"});
  CHECK(help.wait().code == 0);
  CHECK(help.out().starts_with("Usage: dlaunch bench [options]\n"));
  CHECK(help.err().empty());
  const std::vector<std::pair<Words, std::string>> rows = {
      {{"--sizes", "4x"},
       "dlaunch bench: --sizes 4x: '4x' is not a size such as 4, 64K, 1M or 2G, "
       "from 1 to 16 GiB\n"},
      {{"--nproc-per-node=2", "--root", "2"},
       "dlaunch bench: --root 2: with 2 ranks the last one is 1\n"},
      {{"--sizes"}, "dlaunch bench: --sizes needs a value: SIZES\n"},
      {{"--no-python"}, "dlaunch: --no-python: bench runs a program of its own, without Python\n"},
  };
  for (const auto& [words, sentence] : rows) {
    Job job(bench(words));
    CHECK(job.wait().code == 64);
    CHECK(job.out().empty());
    CHECK(job.err() == sentence);
  }
}

TEST_CASE("bench without its program beside the launcher says what is missing") {
  const fs::path folder = fs::temp_directory_path() / ("dlaunch_bench_" + unique_token());
  fs::create_directory(folder);
  fs::copy_file(dlaunch_path(), folder / "dlaunch");
  Job job({"bench"}, {}, (folder / "dlaunch").string());
  CHECK(job.wait().code == 127);
  CHECK(job.err() == "dlaunch: bench needs the program " + (folder / "dlaunch-bench").string() +
                         ", which is not there; it is built and installed together with dlaunch\n");
  fs::remove_all(folder);
}

TEST_CASE("bench --calibrate writes a table, which all ranks of a job then go by") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "table").string();
  Job job(bench({"--nproc-per-node=3", "--calibrate", path, "--iters", "1", "--repetitions", "1"}));
  CHECK(job.wait().code == 0);
  INFO(job.out() << job.err());
  std::ifstream file(path);
  std::string title;
  std::getline(file, title);
  CHECK(title == "dlaunch-table 1");
  const std::string name = "shared.all_reduce.one_shot = ";
  CHECK(job.out().find(name) != std::string::npos);
  CHECK_FALSE(fs::exists(path + ".part"));

  const auto explain = [&](const Job::Environment& environment, int ranks) {
    return std::make_unique<Job>(bench({"--nproc-per-node=" + std::to_string(ranks), "--explain",
                                        "--ops", "all_reduce", "--sizes", "2K,64K"}),
                                 environment);
  };
  const auto built_in = explain({}, 3);
  CHECK(built_in->wait().code == 0);
  CHECK(built_in->out().find("# table: built in (") != std::string::npos);
  CHECK(built_in->out().find("2048 B  one shot") != std::string::npos);
  std::ofstream(path) << title << "\nshared.all_reduce.one_shot = 0\n";
  const auto other = explain({{"DLAUNCH_TABLE", path}}, 3);
  CHECK(other->wait().code == 0);
  CHECK(other->out().find("# table: '" + path + "' of rank 0 (") != std::string::npos);
  CHECK(other->out().find("2048 B  two shots") != std::string::npos);

  std::ofstream(path) << title << "\nno_such_line = 0\n";
  const auto wrong = explain({{"DLAUNCH_TABLE", path}}, 3);
  CHECK(wrong->wait().code == 1);
  CHECK(wrong->err().find("line 2: 'no_such_line' names no line of this version's table") !=
        std::string::npos);
}

TEST_CASE("bench --calibrate to where nothing can be written says so before it measures") {
  Job job(bench({"--nproc-per-node=2", "--calibrate", "/nowhere/table"}));
  CHECK(job.wait().code == 64);
  CHECK(count(job.err(), "bench: --calibrate /nowhere/table: cannot be written: No such file") >=
        1);
}

}  // namespace dlaunch::process_test
