// dlaunch stack: where the ranks of a live job are, by gdb, by py-spy and by the kernel.
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "tests/process/job.hpp"
#include "tests/process/status_folder.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::process_test;

namespace {

using Strings = std::vector<std::string>;

/// A folder of programs, which is all of PATH for those who ask.
struct Tools {
  testing::TemporaryFolder own;
  std::string path = own.path().string();

  void add(const std::string& name, const std::string& script) const {
    const std::string file = path + "/" + name;
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
};

struct Shown {
  int code = 0;
  std::string out, err;
};

Shown stack(const Folder& folder, const Tools& tools, Strings arguments = {}) {
  arguments.insert(arguments.begin(), "stack");
  auto environment = folder.environment();
  environment["PATH"] = tools.path;
  Job asking(std::move(arguments), environment);
  Shown shown;
  shown.code = asking.wait().code;
  shown.out = asking.out();
  shown.err = asking.err();
  return shown;
}

std::string times(int number, const std::string& text) {
  std::string all;
  for (int i = 0; i < number; ++i) all += text;
  return all;
}

bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("the kernel tells where ranks are, and what to install is said") {
  const Folder folder;
  const Tools none;
  const std::string token = unique_token();
  Job job({"--rdzv-id", "demo", "--nproc-per-node", "3", victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 3));
  const auto all = stack(folder, none);
  CHECK(all.code == 0);
  CHECK(count(all.out, ", victim), by the kernel (gdb is not installed):\nThread ") == 3);
  CHECK(all.err == "dlaunch stack: install gdb to see the program's own frames\n");
  CHECK(count(stack(folder, none, {"demo", "--rank", "0,2-7"}).out, "rank ") == 2);
  const auto other = stack(folder, none, {"--rank", "5-6"});
  CHECK(other.code == 69);
  CHECK(other.err == "dlaunch stack: ranks 5-6 are not here; ranks 0-2 are\n");
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
  CHECK(stack(folder, none, {"demo"}).code == 69);
}

TEST_CASE("gdb is asked, has a limit, and may be denied") {
  const Folder folder;
  const Tools tools;
  const std::string token = unique_token();
  // A shell's only child is the program.
  Job job({"--nproc-per-node", "2", "sh", "-c", victim() + " tree " + token + "; exit $?"},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  tools.add("gdb",
            "for i in 1 2 3 4 5 6 7 8 9 10; do [ $i = 1 ] && echo 'Thread 1 (of a double):'; "
            "echo \"#$i f ()\"; done; echo '[Inferior 1 (process 1) detached]'");
  const auto shown = stack(folder, tools, {"--rank", "1"});
  CHECK(has(shown.out, ", victim), by gdb:\nThread 1 (of a double):\n#1 f ()\n"));
  CHECK(shown.out.ends_with("#10 f ()\n"));
  CHECK(shown.err.empty());
  const auto brief = stack(folder, tools, {"--short"});
  CHECK(brief.out.starts_with("ranks 0-1 are in f\n\nranks 0-1 (pids "));
  CHECK(brief.out.ends_with(", victim), by gdb:\n" + times(8, "    f\n") +
                            "    ... 2 more frames\n"));

  tools.add("gdb", "echo 'ptrace: Operation not permitted.'; exit 1");
  const auto denied = stack(folder, tools);
  CHECK(has(denied.out, ", by the kernel (gdb: ptrace: Operation not permitted.):\nThread "));
  CHECK(has(denied.err, "dlaunch stack: processes may not be looked into here; as root they may"));

  tools.add("gdb", "while :; do :; done");
  const auto slow = stack(folder, tools, {"--timeout", "100ms"});
  CHECK(count(slow.out, ", by the kernel (gdb did not end within 100 ms):\nThread ") == 2);
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a Python is shown by py-spy, where that is installed") {
  const Folder folder;
  const Tools tools;
  const std::string token = unique_token();
  // Its name is all that is asked for.
  const std::string python = tools.path + "/python3.99";
  std::filesystem::copy_file(victim(), python);
  Job job({"--rdzv-id", "snake", python, "tree", token}, folder.environment());
  REQUIRE(job.saw("READY"));
  const auto without = stack(folder, tools, {"snake"});
  CHECK(has(without.out, "python3.99), by the kernel (py-spy is not installed; gdb is not "));
  CHECK(has(without.err, "dlaunch stack: install py-spy to see Python's own frames"));
  tools.add("py-spy", "echo \"Process $3\"; echo; echo \"Thread $3 (idle)\"; echo \"    $1 $2\"");
  const auto shown = stack(folder, tools);
  CHECK(has(shown.out, ", python3.99), by py-spy:\nThread "));
  CHECK(shown.out.ends_with(" (idle)\n    dump --pid\n"));
  CHECK(shown.err.empty());
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("the rank that differs comes first, then the keys that ranks wait for") {
  const Folder folder;
  const Tools tools;
  const std::string token = unique_token();
  // PyTorch's request to wait for the key "default_pg/0//cpu//0/1".
  const std::string wait =
      R"(exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; printf '\5\1\0\0\0\0\0\0\0\26\0\0\0\0\0\0\0)"
      R"(default_pg/0//cpu//0/1' >&3; echo READY; exec head -c 1 <&3)";
  Job job({"--rdzv-id", "keys", "--nproc-per-node", "3", "bash", "-c",
           "if [ $RANK = 1 ]; then echo READY; exec tail -f /dev/null; else " + wait +
               "; fi; : " + token},
          folder.environment());
  REQUIRE(job.saw("READY", 3));
  tools.add("gdb",
            "for w; do :; done; read c < /proc/$w/comm; echo 'Thread 1 (of a double):'; case $c in "
            "tail) echo '#0 inotify ()';; *) echo '#0 c10d::TCPStore::doWait ()';; esac");
  std::string out;
  // The store may not have read it yet.
  for (int i = 0; i < 100 && !has(out, ", by ranks 0,2 for "); ++i) {
    out = stack(folder, tools, {"--short"}).out;
  }
  INFO(out);
  CHECK(out.starts_with(
      "rank 1 is in inotify; ranks 0,2 wait in c10d::TCPStore::doWait\n\nrank 1 (pid "));
  CHECK(has(out,
            "keys that are awaited in PyTorch's store:\n  'default_pg/0//cpu//0/1', by ranks "
            "0,2 for "));
  CHECK(has(out, ": rank 1 sets it when it joins (gloo)\n"));
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("NCCL's RAS is asked where it listens") {
  const Folder folder;
  const Tools none;
  const std::string token = unique_token();
  const unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string address = local_address(listener.get()).to_string();
  std::string asked;
  // NCCL answers to a line, and closes the connection.
  const auto answer = [&](const std::string& text) {
    return std::jthread([&, text] {
      const unique_fd fd(::accept(listener.get(), nullptr, nullptr));
      std::array<char, 64> line{};
      const auto size = ::recv(fd.get(), line.data(), line.size(), 0);
      asked.assign(line.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
      static_cast<void>(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL));
    });
  };
  Job job({"--rdzv-id", "ras", "--env", "NCCL_RAS_ADDR=" + address, victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY"));
  {
    const auto server = answer("NCCL version 2.28.3\n\nJob summary\n  \x1b[31mRed\n");
    const auto shown = stack(folder, none, {"ras"});
    CHECK(has(shown.out, "\nNCCL's RAS at " + address +
                             " says:\n  NCCL version 2.28.3\n  Job summary\n    ?[31mRed\n"));
  }
  CHECK(asked == "verbose status\n");
  {
    const auto server = answer("");
    CHECK(has(stack(folder, none, {"--short"}).out, "  (it says nothing)\n"));
  }
  // The queue of the socket takes it, and nobody reads.
  CHECK(has(stack(folder, none, {"--timeout", "300ms"}).out, "  (it does not answer in time)\n"));
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a flight recorder with a pipe is asked for a dump") {
  const Folder folder;
  const Tools none;
  const std::string token = unique_token(), stem = folder.path + "/trace_";
  REQUIRE(::mkfifo((stem + "0.pipe").c_str(), 0600) == 0);
  const unique_fd pipe(::open((stem + "0.pipe").c_str(), O_RDWR | O_CLOEXEC));
  Job job({"--rdzv-id", "fr", "--nproc-per-node", "2", "--env", "TORCH_FR_BUFFER_SIZE=20", "--env",
           "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + stem, "--env", "TORCH_FR_DUMP_TEMP_FILE=" + stem,
           victim(), "tree", token},
          folder.environment());
  REQUIRE(job.saw("READY", 2));
  std::ofstream(stem + "1") << "\x80\x02}q, a pickle";
  {
    const std::jthread recorder(
        [&] {
          char asked = 0;
          if (::read(pipe.get(), &asked, 1) != 1) return;
          std::ofstream(stem + "0")
              << R"({"entries":[{"profiling_name":"nccl:all_reduce","collective_seq_id":7,)"
              << R"("process_group":["0","default_pg"],"state":"started"}]})";
        });
    const auto shown = stack(folder, none, {"--short"});
    INFO(shown.out);
    CHECK(has(shown.out, "PyTorch's flight recorder was dumped (torchfrtrace reads it):\n"));
    CHECK(has(shown.out, "  rank 0: " + stem + "0, "));
    CHECK(has(shown.out, " ago; its last open call: all_reduce #7 of default_pg, started\n"));
    CHECK(has(shown.out, "  rank 1: " + stem + "1, "));
  }
  job.send(SIGTERM);
  job.wait();
  CHECK(all_gone(token));
}

TEST_CASE("a real gdb shows the function that a rank waits in") {
  if (::access("/usr/bin/gdb", X_OK) != 0) {
    MESSAGE("skipped: there is no gdb");
    return;
  }
  const Folder folder;
  const std::string token = unique_token();
  Job job({"--rdzv-id", "real", victim(), "tree", token}, folder.environment());
  REQUIRE(job.saw("READY"));
  Job asking({"stack", "real", "--timeout", "1m"}, folder.environment());
  CHECK(asking.wait().code == 0);
  INFO(asking.out());
  CHECK((has(asking.out(), "pause ()") || has(asking.out(), "not permitted")));
  // It goes on.
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}
