// What is told of a job that hangs: stacks together, keys that are awaited, dumps.
#include "launcher/hang/awaited_keys.hpp"
#include "launcher/hang/hang_report.hpp"
#include "launcher/hang/open_call.hpp"
#include "launcher/hang/stack_groups.hpp"
#include "launcher/hang/timeout_words.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch::launcher;

namespace {

const std::string torch = "/venv/lib/python3.11/site-packages/torch/distributed/";
const std::string waiting_stack =
    "Thread 4116 (idle): \"MainThread\"\n"
    "    all_reduce (" +
    torch +
    "distributed_c10d.py:3252)\n"
    "    _exception_logger.<locals>.wrapper (" +
    torch +
    "c10d_logger.py:83)\n"
    "    main (/home/u/train.py:18)\n"
    "    <module> (/home/u/train.py:21)\n";
const std::string sleeping_stack =
    "Thread 4117 (idle): \"MainThread\"\n"
    "    load (/home/u/train.py:8)\n"
    "    main (/home/u/train.py:17)\n"
    "    <module> (/home/u/train.py:21)\n"
    "\n"
    "Thread 4119 (idle): \"other\"\n"
    "    wait (/usr/lib/python3.11/threading.py:320)\n";

RankStack rank(int number, const std::string& stack, std::string source = {}) {
  return {.rank = number,
          .pid = 4115 + number,
          .program = "python3.11",
          .by = "py-spy",
          .frames = frames_of(stack),
          .source = std::move(source)};
}

std::string head(const std::vector<RankStack>& stacks) { return headline(grouped(stacks)); }

}  // namespace

TEST_CASE("ranks with one stack stand together, the one that does not wait first") {
  const auto groups =
      grouped({rank(0, waiting_stack), rank(1, waiting_stack),
               rank(2, sleeping_stack, "time.sleep(1000)"), rank(3, waiting_stack)});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].ranks == std::vector{2});
  CHECK_FALSE(groups[0].waits);
  CHECK(groups[1].ranks == std::vector{0, 1, 3});
  CHECK(groups[1].waits);
  CHECK(headline(groups) ==
        "rank 2 is in load, train.py:8: time.sleep(1000); ranks 0-1,3 wait in all_reduce, "
        "train.py:18");
}

TEST_CASE("a rank that waits for its GPU may wait for a rank, and comes last") {
  const std::string synchronizes =
      "Thread 1:\n    synchronize (/site-packages/torch/cuda/__init__.py:1162)\n"
      "    wait (/home/me/train.py:75)\n";
  CHECK(
      head({rank(0, synchronizes), rank(1, sleeping_stack, "time.sleep(1000)")}) ==
      "rank 1 is in load, train.py:8: time.sleep(1000); rank 0 waits in synchronize, train.py:75");
  CHECK(head({rank(0,
                   "Thread 1:\n#0  0x01 in poll () from /lib/libc.so\n#1  0x02 in "
                   "cuStreamSynchronize () from /lib/libcuda.so.1\n")}) ==
        "rank 0 waits in cuStreamSynchronize");
}

TEST_CASE("places are told without the folders of libraries, and of the program") {
  const auto groups = grouped({rank(0, waiting_stack)});
  REQUIRE(groups.size() == 1);
  const std::vector<StackFrame> wanted = {
      {"all_reduce", "torch/distributed/distributed_c10d.py:3252"},
      {"_exception_logger.<locals>.wrapper", "torch/distributed/c10d_logger.py:83"},
      {"main", "train.py:18"},
      {"<module>", "train.py:21"}};
  CHECK(groups[0].frames == wanted);
  const auto others = grouped({rank(0,
                                    "Thread 1:\n"
                                    "    wait (/usr/lib/python3.11/threading.py:320)\n"
                                    "    f (/opt/other/module.py:7)\n"
                                    "    <module> (/home/u/train.py:21)\n")});
  CHECK(others[0].frames[0].place == "threading.py:320");
  CHECK(others[0].frames[1].place == "/opt/other/module.py:7");
}

TEST_CASE("one rank that waits for all the others comes last, too") {
  CHECK(head({rank(0, waiting_stack), rank(1, sleeping_stack), rank(2, sleeping_stack)}) ==
        "ranks 1-2 are in load, train.py:8; rank 0 waits in all_reduce, train.py:18");
}

TEST_CASE("a rank that has ended is told as such, and many groups are cut") {
  std::vector<RankStack> stacks = {{.rank = 0, .pid = 7, .program = "", .by = ""}};
  CHECK(head(stacks) == "rank 0 has ended");
  for (int i = 1; i < 8; ++i) {
    stacks.push_back(rank(i, "Thread 1:\n    f (/x/a.py:" + std::to_string(i) + ")\n"));
  }
  CHECK(head(stacks) ==
        "rank 0 has ended; rank 1 is in f, a.py:1; rank 2 is in f, a.py:2; rank 3 is in f, "
        "a.py:3; and 4 more groups");
}

TEST_CASE("a call into a library is told by the program's own line") {
  CHECK(head({rank(0,
                   "Thread 1:\n"
                   "    wait (/usr/lib/python3.11/threading.py:320)\n"
                   "    get (/usr/lib/python3.11/queue.py:171)\n"
                   "    next_batch (/home/u/data/loader.py:90)\n"
                   "    <module> (/home/u/train.py:3)\n")}) ==
        "rank 0 is in get, data/loader.py:90");
  // PyTorch's code for the exchange of objects waits as well.
  CHECK(
      head({rank(0,
                 "Thread 1:\n"
                 "    wait (/usr/lib/python3/dist-packages/torch/distributed/c.py:1)\n"
                 "    all_gather_object (/usr/lib/python3/dist-packages/torch/distributed/c.py:2)\n"
                 "    main (/home/u/train.py:3)\n"
                 "    run_code (<frozen runpy>:88)\n")}) ==
      "rank 0 waits in all_gather_object, train.py:3");
  CHECK(head({rank(0,
                   "Thread 1:\n"
                   "    find_spec (<frozen importlib._bootstrap_external>:1616)\n"
                   "    <module> (/usr/lib/python3/dist-packages/torch/x.py:1)\n"
                   "    _find_and_load (<frozen importlib._bootstrap>:1176)\n"
                   "    <module> (/home/u/train.py:3)\n",
                   "import torch")}) == "rank 0 is at train.py:3: import torch");
}

TEST_CASE("what gdb prints is told by the function that waits, or the innermost one") {
  const std::string waits =
      "Thread 1 (Thread 0x7f93d4639b80 (LWP 3332) \"python\"):\n"
      "#0  __futex_abstimed_wait_common64 (private=0, futex_word=0x564) at "
      "./nptl/futex-internal.c:57\n"
      "#5  0x00007f93bcca741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () "
      "from /lib/x86_64-linux-gnu/libstdc++.so.6\n"
      "#6  0x00007f93c376984b in c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, "
      "1000l> >) () from /lib/libtorch_cpu.so\n"
      "#7  0x0000000000547b96 in ?? ()\n";
  const std::string sleeps =
      "Thread 1 (Thread 0x7f02022952c0 (LWP 3502) \"python3\"):\n"
      "#0  0x00007f0202365545 in __GI___clock_nanosleep (clock_id=1, rem=0x0) at "
      "../sysdeps/unix/sysv/linux/clock_nanosleep.c:48\n"
      "#1  0x00000000005d64b4 in ?? ()\n"
      "\n"
      "Thread 2:\n"
      "#0  0x00007f in gloo::transport::tcp::Loop::run() () from /lib/libgloo.so.0\n";
  const auto frames = frames_of(waits);
  REQUIRE(frames.size() == 4);
  CHECK(frames[0] == StackFrame{"__futex_abstimed_wait_common64", "futex-internal.c:57"});
  CHECK(frames[1] == StackFrame{"std::condition_variable::wait", "libstdc++.so.6"});
  CHECK(frames[2] == StackFrame{"c10d::Work::wait", "libtorch_cpu.so"});
  CHECK(frames[3] == StackFrame{"??", ""});
  CHECK(frames_of("Thread 1:\n#0  0x1 in gloo::(anonymous namespace)::ring(int) () from x\n") ==
        std::vector{StackFrame{"gloo::(anonymous namespace)::ring", "x"}});
  CHECK(head({rank(0, waits), rank(1, waits), rank(2, sleeps)}) ==
        "rank 2 is in clock_nanosleep; ranks 0-1 wait in c10d::Work::wait");
}

TEST_CASE("what the kernel tells is told as it is") {
  CHECK(head({rank(0,
                   "Thread 12 (train), state S, in futex_wait_queue, system call 202\n"
                   "[<0>] futex_wait_queue+0x60/0x90\n"),
              rank(1, "Thread 13 (train), state R\n")}) ==
        "rank 0 is in futex_wait_queue, system call 202; rank 1 is in state R");
  CHECK(frames_of("").empty());
}

TEST_CASE("the rank whose turn it is to set a key of PyTorch's own") {
  CHECK(setter_of("default_pg/0//cpu//0/2") == "rank 2 sets it when it joins (gloo)");
  CHECK(setter_of("default_pg/0//1//cpu//0/0") == "rank 0 of group 1 sets it when it joins (gloo)");
  CHECK(setter_of("/default_pg/0//cpu//0/2") == "rank 2 sets it when it joins (gloo)");
  CHECK(setter_of("default_pg/0//cuda//0") == "rank 0 sets it when it joins (NCCL)");
  CHECK(setter_of("default_pg/0//store_based_barrier_key:1:last_worker") ==
        "the last rank to come to the barrier sets it");
  CHECK(setter_of("//worker/attempt_0/default_pg/0/0/2") == "rank 2 sets it when it joins (gloo)");
  CHECK(setter_of("//worker/attempt_0/default_pg/0/0/rank_2") ==
        "rank 2 sets it when it joins (gloo)");
  CHECK(setter_of("default_pg/0//cuda//x").empty());
  CHECK(setter_of("default_pg/0/0").empty());
  CHECK(setter_of("never").empty());
  CHECK(setter_of("default_pg/0//never").empty());
  CHECK(setter_of("").empty());
}

TEST_CASE("those who wait for the same key stand together") {
  JobStoreWaits waits{.world_size = 4};
  for (const int number : {0, 1, 3}) {
    waits.waits.push_back({.rank = number,
                           .client = "rank",
                           .keys = {"default_pg/0//cpu//0/2"},
                           .for_ms = 12'000 + static_cast<unsigned>(number)});
  }
  waits.waits.push_back({.rank = 2, .client = "rank 2", .keys = {"never"}, .for_ms = 40'000});
  waits.waits.push_back(
      {.client = "one of the ranks 4 to 7 on node b", .keys = {"never"}, .for_ms = 1});
  CHECK(awaited_text(waits) ==
        "  'default_pg/0//cpu//0/2', by ranks 0-1,3 for 12 s: rank 2 sets it when it joins "
        "(gloo)\n"
        "  'never', by rank 2 and one of the ranks 4 to 7 on node b for 40 s\n");
  CHECK(awaited_text({}).empty());
  waits.waits = {{.rank = 0, .client = "", .keys = {std::string(200, 'a') + "\n/b"}, .for_ms = 1}};
  CHECK(awaited_text(waits) == "  '..." + std::string(157, 'a') + "?/b', by rank 0 for 1 ms\n");
}

TEST_CASE("a barrier tells how many have come, and who does not wait for it") {
  JobStoreWaits waits{.world_size = 4};
  for (const int number : {0, 3, 1}) {
    waits.waits.push_back({.rank = number,
                           .client = "rank",
                           .keys = {"epoch"},
                           .for_ms = 500,
                           .arrived = 3,
                           .expected = 4});
  }
  CHECK(awaited_text(waits) ==
        "  'epoch', by ranks 0-1,3 for 0.5 s: a barrier to which 3 of 4 have come, and rank 2 "
        "does not wait for it\n");
}

TEST_CASE("of a flight recorder's JSON the last open call is told") {
  const std::string entry = R"({"collective_seq_id":12,"process_group":["0","default_pg"],)"
                            R"("profiling_name":"gloo:all_reduce","retired":)";
  const std::string done = entry + R"(true,"state":"scheduled"})";
  const std::string open = entry + R"(false,"state":"started"})";
  CHECK(last_open_call("{\"entries\":[" + done + "," + open + "]}") ==
        "all_reduce #12 of default_pg, started");
  CHECK(last_open_call("{\"entries\":[" + open + "," + done + "]}") ==
        "all_reduce #12 of default_pg, started");
  CHECK(last_open_call("{\"entries\":[" + done + "]}") == "");
  CHECK_FALSE(last_open_call("{\"entries\":7}"));
  CHECK_FALSE(last_open_call("\x80\x02}q"));
  CHECK_FALSE(last_open_call("{\"entries\":[7]}"));
}

TEST_CASE("the report: the headline, each group, the keys, the dumps, RAS") {
  HangReport report;
  report.groups = grouped({rank(0, waiting_stack), rank(1, sleeping_stack, "time.sleep(1000)")});
  report.store = JobStoreWaits{};
  report.store->waits.push_back({.rank = 0, .client = "rank 0", .keys = {"never"}, .for_ms = 2000});
  report.dumps.push_back({0, "/tmp/trace_0", std::chrono::seconds(2), ""});
  report.ras["localhost:28028"] = {.text = "NCCL version 2.28.3\n\nJob summary\n",
                                   .problem = "it did not end in time"};
  CHECK(to_text(report, true) ==
        "rank 1 is in load, train.py:8: time.sleep(1000); rank 0 waits in all_reduce, train.py:18\n"
        "\n"
        "rank 1 (pid 4116, python3.11), by py-spy:\n"
        "    load (train.py:8)\n"
        "    main (train.py:17)\n"
        "    <module> (train.py:21)\n"
        "\n"
        "rank 0 (pid 4115, python3.11), by py-spy:\n"
        "    all_reduce (torch/distributed/distributed_c10d.py:3252)\n"
        "    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n"
        "    main (train.py:18)\n"
        "    <module> (train.py:21)\n"
        "\n"
        "keys that are awaited in PyTorch's store:\n"
        "  'never', by rank 0 for 2.0 s\n"
        "\n"
        "PyTorch's flight recorder was dumped (torchfrtrace reads it):\n"
        "  rank 0: /tmp/trace_0, 2.0 s ago\n"
        "\n"
        "NCCL's RAS at localhost:28028 says:\n"
        "  NCCL version 2.28.3\n"
        "  Job summary\n"
        "  (it did not end in time)\n");
  CHECK_FALSE(to_text(report, false).find("    load (") != std::string::npos);
}

TEST_CASE("a node that does not have PyTorch's store says where it is, for a Python") {
  HangReport report;
  report.groups = grouped({rank(4, waiting_stack)});
  report.store = JobStoreWaits{.elsewhere = true, .world_size = 8};
  CHECK(to_text(report, false) ==
        "rank 4 waits in all_reduce, train.py:18\n"
        "\n"
        "PyTorch's store is at node rank 0; dlaunch stack there tells which keys are awaited\n");
  report.groups.front().program = "train";
  CHECK(to_text(report, false) == "rank 4 waits in all_reduce, train.py:18\n");
}

TEST_CASE("a deep stack is told by its innermost frames") {
  std::string stack = "Thread 1:\n";
  for (int i = 0; i < 20; ++i) stack += "#" + std::to_string(i) + "  f ()\n";
  HangReport report;
  report.groups = grouped({rank(0, stack)});
  CHECK(to_text(report, true).ends_with("    f\n    ... 12 more frames\n"));
}

TEST_CASE("the words of a rank that has waited in vain") {
  CHECK(tells_timeout(
      {"a", "RuntimeError: [unbound_buffer.cc:81] Timed out waiting 3000ms for recv"}));
  CHECK(tells_timeout({"torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /k"}));
  CHECK(tells_timeout({"RuntimeError: Socket Timeout"}));
  CHECK(
      tells_timeout({"[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3"}));
  CHECK_FALSE(tells_timeout({"ValueError: no data", ""}));
  CHECK_FALSE(tells_timeout({}));
}
