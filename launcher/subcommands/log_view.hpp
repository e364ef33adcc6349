#pragma once

#include "launcher/output/output_lines.hpp"
#include "launcher/subcommands/log_files.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Shows log files on stdout as the console shows what ranks write: whole lines, each with its
/// rank. Not thread-safe.
class LogView {
 public:
  struct Manner {
    bool terminal = false;  ///< stdout is one that can take a row back.
    bool colours = false;   ///< Each rank's prefix has a colour.
  };
  explicit LogView(Manner manner);

  /// The files to be shown from here on; those shown before end. Returns a line for each that
  /// cannot be opened, once.
  std::string show(const std::vector<LogFile>& files);
  /// Writes what has been added to the files. Returns 0, or the code with which to exit where
  /// stdout cannot be written.
  int catch_up();
  /// The same, and also the files' last lines if they have no end.
  int end();

 private:
  struct Open {
    unique_fd fd;  ///< Empty where it could not be opened.
    std::size_t number = 0;
  };

  void read(const Open& file);
  int write_pieces();

  const Manner manner_;
  OutputLines lines_;
  std::map<std::string, Open> open_;  ///< By path.
  std::vector<std::string> order_;    ///< The paths, as they were given.
  std::vector<char> buffer_;
  Pieces pieces_;
  int code_ = 0;
};

}  // namespace dlaunch::launcher
