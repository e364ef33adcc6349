#include "launcher/pmi/offer.hpp"

#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <span>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace dlaunch::launcher {
namespace {

/// The longest script that is read. Of an executable only a few pages are touched.
constexpr std::size_t script_bytes_max = 1u << 20;

/// Empty if the file cannot be read: starting it will fail, too, and say why.
pmi::Speech speech_at(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    return {};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) return {};
  std::span<const char> bytes(static_cast<const char*>(memory), size);
  if (!pmi::needed_libraries(bytes)) bytes = bytes.first(std::min(size, script_bytes_max));
  const pmi::Speech speech = pmi::speech_of_file(bytes);
  ::munmap(memory, size);
  return speech;
}

}  // namespace

pmi::Speech mpi_offer(const JobSpec& spec, const Part& part, const std::string& file) {
  switch (spec.mpi) {
    case MpiAsked::pmi:
      return {.pmi = true, .pmix = false, .why = "--mpi pmi"};
    case MpiAsked::pmix:
      return {.pmi = false, .pmix = true, .why = "--mpi pmix"};
    case MpiAsked::none:
      return {};
    case MpiAsked::automatic:
      break;
  }
  if (spec.bench) return {};
  if (part.module) return pmi::speech_of_module(part.program.front());
  return file.empty() ? pmi::Speech{} : speech_at(file);
}

}  // namespace dlaunch::launcher
