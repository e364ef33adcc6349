#include "launcher/request/brief_help.hpp"

#include "launcher/request/subcommand_words.hpp"

#include <cstddef>

namespace dlaunch::launcher {

std::string brief_help() {
  std::string text =
      "Usage: dlaunch [options] [--] program [args...]\n"
      "       dlaunch SUBCOMMAND [options]\n"
      "\n"
      "Starts a program several times and lets the processes find each other.\n"
      "A program named *.py runs under $PYTHON_EXEC or python3.\n"
      "\n"
      "  dlaunch --nproc-per-node 4 train.py       four workers on this machine\n"
      "  dlaunch --nproc-per-node gpu train.py     one for each of its GPUs\n"
      "  dlaunch --nnodes 2 --nproc-per-node 4 --rdzv-endpoint head:29400 train.py\n"
      "                                            the same line on two machines\n"
      "  dlaunch --hosts a:4,b:4 train.py          four on each of two, over ssh\n"
      "  dlaunch --max-restarts 3 train.py         start again after a failure\n"
      "  dlaunch --log-dir logs --tee 3 train.py   keep what the workers write\n"
      "  dlaunch --dry-run train.py                what would run, and why\n"
      "\n"
      "Subcommands, each with a --help of its own:\n";
  constexpr std::size_t what_column = 10;
  for (const auto& [name, what] : subcommand_words()) {
    std::string line = "  " + std::string(name);
    line.resize(what_column, ' ');
    text.append(line).append(what).append("\n");
  }
  return text;
}

}  // namespace dlaunch::launcher
