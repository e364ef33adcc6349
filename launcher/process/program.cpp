#include "launcher/process/program.hpp"

#include "launcher/plan/environment.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <utility>

#include <elf.h>
#include <fcntl.h>
#include <paths.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

/// The number of interpreters that are scripts themselves; the kernel follows no more.
constexpr int interpreters_max = 5;

int check_program(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno == ENOTDIR ? ENOENT : errno;
  if (S_ISDIR(info.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
}

/// A shell's answer to such a problem, as a sentence with the cure.
StartProblem program_problem(const std::string& program, int error) {
  const std::string quoted = in_quotes(program);
  switch (error) {
    case ENOENT:
      return {exit_code::not_found, program.find('/') == std::string::npos
                                        ? "there is no program " + quoted + " in PATH"
                                        : "there is no file " + quoted};
    case ENOTDIR:
      return {exit_code::not_found, "there is no file " + quoted};
    case ELOOP:
    case ENAMETOOLONG:
      return {exit_code::not_found, "there is no file " + quoted + ": " + errno_text(error)};
    case EACCES:
      return {exit_code::cannot_execute,
              quoted +
                  " cannot be executed: it is a directory, or has no execute permission "
                  "(chmod +x)"};
    case ENOMEM:
    case EAGAIN:
      return {exit_code::internal, "cannot start " + quoted + ": " + errno_text(error) +
                                       " (see ulimit -u and the cgroup's pids.max)"};
    default:
      return {exit_code::cannot_execute, "cannot execute " + quoted + ": " + errno_text(error)};
  }
}

/// A machine's name, such as "AArch64", if it is a common one; else its number in ELF.
std::string machine_name(unsigned number) {
  switch (number) {
    case EM_386:
      return "x86";
    case EM_X86_64:
      return "x86-64";
    case EM_ARM:
      return "ARM";
    case EM_AARCH64:
      return "AArch64";
    case EM_PPC64:
      return "PowerPC 64";
    case EM_S390:
      return "S/390";
    case EM_RISCV:
      return "RISC-V";
    default:
      return "ELF machine " + std::to_string(number);
  }
}

/// A script's first line may have these; a terminal's colours begin with the last of them.
bool is_text(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7f) ||
         std::string_view("\t\n\r\f\x1b").find(c) != std::string_view::npos;
}

/// The machine that the head of an ELF file names.
std::string machine_of(std::string_view head) {
  const std::size_t at = offsetof(Elf64_Ehdr, e_machine);
  if (head.size() < at + 2) return "unknown";
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(head[i]); };
  const bool big_endian = byte(EI_DATA) == ELFDATA2MSB;
  const unsigned low = byte(big_endian ? at + 1 : at), high = byte(big_endian ? at : at + 1);
  return machine_name(high << 8 | low);
}

/// As much of a file as the kernel looks at; nullopt where it cannot be read.
std::optional<std::string> head_of(const std::string& path) {
  constexpr std::size_t looked_at = 256;
  std::string head(looked_at, '\0');
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const auto size = file ? ::read(file.get(), head.data(), head.size()) : -1;
  if (size < 0) return std::nullopt;
  head.resize(static_cast<std::size_t>(size));
  return head;
}

/// "/usr/bin/env" of "#! /usr/bin/env python3"; empty for none.
std::string interpreter_of(std::string_view head) {
  constexpr std::string_view blanks = " \t";
  head = head.substr(2, head.find('\n') - 2);
  head.remove_prefix(std::min(head.find_first_not_of(blanks), head.size()));
  return std::string(head.substr(0, head.find_first_of(std::string_view(" \t\0", 3))));
}

/// The loader that an executable for this machine names; empty where it names none.
std::string loader_of(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file || ::pread(file.get(), &header, sizeof header, 0) != sizeof header) return {};
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const auto at = static_cast<off_t>(header.e_phoff) + i * static_cast<off_t>(sizeof part);
    if (::pread(file.get(), &part, sizeof part, at) != sizeof part) return {};
    if (part.p_type != PT_INTERP) continue;
    std::string name(std::min<std::size_t>(part.p_filesz, PATH_MAX), '\0');
    const auto size =
        ::pread(file.get(), name.data(), name.size(), static_cast<off_t>(part.p_offset));
    if (size <= 0) return {};
    return name.c_str();
  }
  return {};
}

/// The kernel may have been taught to execute other files (binfmt_misc); which, we do not know.
bool knows_other_formats() {
  std::error_code error;
  for (fs::directory_iterator at("/proc/sys/fs/binfmt_misc", error), end; !error && at != end;
       at.increment(error)) {
    const auto name = at->path().filename();
    if (name != "register" && name != "status") return true;
  }
  return false;
}

/// Whether the executable is for our own machine, as far as its head tells.
bool is_for_this_machine(std::string_view head) {
  const auto own = head_of("/proc/self/exe");
  const std::size_t machine = offsetof(Elf64_Ehdr, e_machine);
  if (head.size() < sizeof(Elf64_Ehdr) || !own || own->size() < machine + 2) return false;
  return head.substr(0, EI_DATA + 1) == std::string_view(*own).substr(0, EI_DATA + 1) &&
         head.substr(machine, 2) == std::string_view(*own).substr(machine, 2);
}

/// Many 64-bit kernels execute 32-bit programs of their family.
bool may_be_for_32_bits(std::string_view head) {
  return head.size() >= sizeof(Elf32_Ehdr) && head[EI_CLASS] == ELFCLASS32;
}

/// The error that exec would give; 0 also where nothing can be said.
int expected_exec_error(const std::string& path, const std::string& directory, int depth = 0) {
  if (depth > interpreters_max) return ELOOP;
  if (const int error = check_program(path)) return error;
  const auto head = head_of(path);
  if (!head) return 0;
  if (head->starts_with("#!")) {
    const std::string interpreter = interpreter_of(*head);
    if (interpreter.empty()) return ENOEXEC;
    return expected_exec_error(path_in(directory, interpreter), directory, depth + 1);
  }
  if (!head->starts_with(ELFMAG)) return knows_other_formats() ? 0 : ENOEXEC;
  if (!is_for_this_machine(*head)) {
    return may_be_for_32_bits(*head) || knows_other_formats() ? 0 : ENOEXEC;
  }
  const std::string loader = (*head)[EI_CLASS] == ELFCLASS64 ? loader_of(path) : "";
  return loader.empty() || ::access(path_in(directory, loader).c_str(), F_OK) == 0 ? 0 : ENOENT;
}

}  // namespace

std::string path_in(const std::string& directory, const std::string& path) {
  return directory.empty() || path.starts_with('/') ? path : directory + "/" + path;
}

ProgramPath find_program(const std::string& name, const std::string& search_path,
                         const std::string& directory) {
  if (name.find('/') != std::string::npos) {
    std::string path = path_in(directory, name);
    const int error = check_program(path);
    return {std::move(path), error};
  }
  int error = ENOENT;
  std::string_view rest = search_path;
  while (!name.empty()) {
    const auto colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    std::string candidate = path_in(directory, folder.empty() ? name : folder + "/" + name);
    const int problem = check_program(candidate);
    if (problem == 0) return {std::move(candidate), 0};
    // As in execvp, a later folder may have a file that works.
    if (problem == EACCES) error = EACCES;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return {name, error};
}

std::optional<StartProblem> directory_problem(const std::string& directory) {
  if (directory.empty()) return std::nullopt;
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0 && errno != EACCES) {
    return StartProblem{exit_code::not_found,
                        "--cwd: there is no directory " + in_quotes(directory)};
  }
  if (!S_ISDIR(info.st_mode) && info.st_mode != 0) {
    return StartProblem{exit_code::not_found,
                        "--cwd: " + in_quotes(directory) + " is no directory"};
  }
  if (::access(directory.c_str(), X_OK) == 0) return std::nullopt;
  return StartProblem{exit_code::cannot_execute, "--cwd: the directory " + in_quotes(directory) +
                                                     " cannot be entered: " + errno_text(errno)};
}

std::optional<StartProblem> report_problem(std::string_view flag, const std::string& path) {
  const auto problem = [&](int error) {
    return StartProblem{exit_code::unreachable, std::string(flag) + " " + clipped(path) +
                                                    ": cannot be written: " + errno_text(error)};
  };
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return problem(EISDIR);
    return ::access(path.c_str(), W_OK) == 0 ? std::nullopt : std::optional(problem(errno));
  }
  if (errno != ENOENT) return problem(errno);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0
             ? std::nullopt
             : std::optional(problem(errno));
}

ProgramFound find_program(const ProgramPlan& program) {
  if (auto problem = directory_problem(program.directory)) return {{}, std::move(problem)};
  const auto search_path = lookup(program.environment, "PATH").value_or(_PATH_DEFPATH);
  auto found = find_program(program.argv.front(), std::string(search_path), program.directory);
  if (found.error != 0) return {{}, program_problem(found.path, found.error)};
  if (!program.script) return {std::move(found.path), std::nullopt};
  // A missing script is told here, once, and not by every interpreter.
  const std::string script = path_in(program.directory, *program.script);
  if (::access(script.c_str(), R_OK) == 0) return {std::move(found.path), std::nullopt};
  const std::string why = errno == ENOENT ? "there is no file " : "cannot read ";
  return {{}, StartProblem{exit_code::not_found, why + in_quotes(script)}};
}

StartProblem exec_problem(const std::string& program, const std::string& path, int error) {
  if (error == ENOENT && ::access(path.c_str(), F_OK) == 0) {
    return {
        exit_code::not_found,
        in_quotes(program) + " cannot be executed: the interpreter or loader it names is missing"};
  }
  return program_problem(program, error);
}

std::optional<StartProblem> no_script(const std::string& program, const std::string& path) {
  const std::string head = head_of(path).value_or("");
  const std::string cannot = in_quotes(program) + " cannot be executed: ";
  if (head.starts_with(ELFMAG)) {
    return StartProblem{
        exit_code::cannot_execute,
        cannot + "it is a program for another machine (" + machine_of(head) + ") or kernel"};
  }
  if (head.starts_with("#!")) {
    return StartProblem{exit_code::cannot_execute,
                        cannot + "the interpreter it names is no program for this machine"};
  }
  const bool readable = head.find('\0') == std::string::npos &&
                        std::ranges::all_of(head.substr(0, head.find('\n')), is_text);
  if (readable) return std::nullopt;
  return StartProblem{exit_code::cannot_execute,
                      cannot + "it is neither a program for this machine nor a script"};
}

Prospect look_ahead(const ProgramPlan& program) {
  auto found = find_program(program);
  if (found.problem) return {{}, std::move(found.problem)};
  const std::string& name = program.argv.front();
  Prospect prospect{found.path, std::nullopt};
  const int error = expected_exec_error(found.path, program.directory);
  if (error == ENOEXEC) {
    prospect.problem = no_script(name, found.path);
    // Text without "#!", which a shell reads.
    prospect.files += ", which " _PATH_BSHELL " reads";
  } else if (error != 0) {
    prospect.problem = exec_problem(name, found.path, error);
  } else if (program.script) {
    prospect.files += ", which reads " + path_in(program.directory, *program.script);
  } else if (const auto head = head_of(found.path); head && head->starts_with("#!")) {
    prospect.files += ", which " + interpreter_of(*head) + " reads";
  }
  if (prospect.problem) prospect.files.clear();
  return prospect;
}

}  // namespace dlaunch::launcher
