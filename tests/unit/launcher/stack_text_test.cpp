#include "launcher/hang/stack_text.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch::launcher;

TEST_CASE("gdb's stacks begin with their first thread, and end before what else it says") {
  const std::string printed =
      "[New LWP 12]\n"
      "[Thread debugging using libthread_db enabled]\n"
      "0x00007f in pause () from /lib/libc.so.6\n"
      "\n"
      "Thread 1 (Thread 0x7f (LWP 11) \"train\"):\n"
      "#0  0x00007f in pause () from /lib/libc.so.6\n"
      "warning: no file\n"
      "#1  main () at train.cpp:50\n"
      "\n"
      "Thread 2 (Thread 0x7e (LWP 12) \"train\"):\n"
      "#0  0x00007f in poll () from /lib/libc.so.6\n"
      "[Inferior 1 (process 11) detached]\n";
  const auto stack = stack_of_gdb(printed);
  REQUIRE(stack);
  CHECK(*stack ==
        "Thread 1 (Thread 0x7f (LWP 11) \"train\"):\n"
        "#0  0x00007f in pause () from /lib/libc.so.6\n"
        "#1  main () at train.cpp:50\n"
        "\n"
        "Thread 2 (Thread 0x7e (LWP 12) \"train\"):\n"
        "#0  0x00007f in poll () from /lib/libc.so.6\n");
  CHECK_FALSE(stack_of_gdb("ptrace: Operation not permitted.\n"));
  CHECK(last_line("Could not attach.\nptrace: Operation not permitted.\n\n") ==
        "ptrace: Operation not permitted.");
  CHECK(last_line("").empty());
}

TEST_CASE("py-spy's stacks begin with their first thread, too") {
  const auto stack = stack_of_py_spy(
      "Process 11: python3 train.py\n"
      "Python v3.11.2 (/usr/bin/python3.11)\n"
      "\n"
      "Thread 11 (idle): \"MainThread\"\n"
      "    step (train.py:7)\n");
  REQUIRE(stack);
  CHECK(*stack == "Thread 11 (idle): \"MainThread\"\n    step (train.py:7)\n");
}
