#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Finds out from a program's file which MPI it uses. Pure.
namespace dlaunch::launcher::pmi {

/// The protocols that a program can speak with its launcher.
struct Speech {
  bool pmi = false;
  bool pmix = false;
  std::string why = {};  ///< "it is linked with libmpi.so.40"; empty where neither is known.

  bool operator==(const Speech&) const = default;
};

/// The libraries that an executable names, in its order; nullopt where it is none for this kind of
/// processor's word size and byte order. Those of its libraries are not among them.
std::optional<std::vector<std::string>> needed_libraries(std::span<const char> file);

/// Judges by a library's name, "libmpi.so.12" or a path that ends so.
Speech speech_of_library(std::string_view library);
/// Judges by an executable's libraries, or by a script's text that names mpi4py.
Speech speech_of_file(std::span<const char> file);
/// The script that a line `python3 -u SCRIPT ...` names; nullopt where it is another line.
std::optional<std::string> script_of_python(std::span<const std::string> line);
/// Judges by a Python module's name.
Speech speech_of_module(std::string_view module);

}  // namespace dlaunch::launcher::pmi
