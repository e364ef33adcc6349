#include "launcher/pmi/core/program.hpp"

#include <array>
#include <bit>
#include <cstring>

#include <elf.h>
#include <link.h>

namespace dlaunch::launcher::pmi {
namespace {

constexpr std::string_view mpi4py = "mpi4py";

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Entry = ElfW(Dyn);

/// Nullopt where the file ends too soon.
template <class T>
std::optional<T> read_at(std::span<const char> file, std::size_t at) {
  if (at > file.size() || file.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

/// The text that ends with a zero; empty where none does.
std::string text_at(std::span<const char> file, std::size_t at) {
  if (at >= file.size()) return {};
  const std::size_t length = ::strnlen(file.data() + at, file.size() - at);
  return at + length < file.size() ? std::string(file.data() + at, length) : std::string();
}

std::vector<Segment> segments_of(std::span<const char> file, const Header& header) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_at<Segment>(file, header.e_phoff + i * sizeof(Segment));
    if (!segment) break;
    segments.push_back(*segment);
  }
  return segments;
}

/// The place in the file of what lies at an address in memory.
std::optional<std::size_t> place_of(const std::vector<Segment>& segments, std::size_t address) {
  for (const Segment& segment : segments) {
    const bool holds = segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
                       address - segment.p_vaddr < segment.p_filesz;
    if (holds) return address - segment.p_vaddr + segment.p_offset;
  }
  return std::nullopt;
}

/// How a library's name begins, and what it speaks; a version in it has to match as a whole.
struct Library {
  std::string_view begin;
  bool pmi = false;
  bool pmix = false;
};
/// The known libraries, of which the first match counts. MPICH, MVAPICH and Intel MPI share an ABI
/// and its number; Open MPI has others. The MPI standard's own ABI does not tell whose library it
/// is.
constexpr auto libraries = std::to_array<Library>({
    {"libmpi.so.12", true, false},
    {"libmpich.so", true, false},
    {"libmpichcxx.so", true, false},
    {"libmpichfort.so", true, false},
    {"libmpicxx.so.12", true, false},
    {"libmpifort.so.12", true, false},
    {"libpmi.so", true, false},
    {"libpmi2.so", true, false},
    {"libmpi_abi.so", true, true},
    {"libmpi.so", false, true},
    {"libmpi_mpifh.so", false, true},
    {"libmpi_usempi", false, true},
    {"libmpi_cxx.so", false, true},
    {"liboshmem.so", false, true},
    {"libpmix.so", false, true},
});

}  // namespace

std::optional<std::vector<std::string>> needed_libraries(std::span<const char> file) {
  constexpr auto width = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr auto order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  const auto header = read_at<Header>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != width || header->e_ident[EI_DATA] != order) {
    return std::nullopt;
  }
  const auto segments = segments_of(file, *header);
  std::vector<std::size_t> names;
  std::optional<std::size_t> strings;
  for (const Segment& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::size_t at = 0; at + sizeof(Entry) <= segment.p_filesz; at += sizeof(Entry)) {
      const auto entry = read_at<Entry>(file, segment.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_STRTAB) strings = place_of(segments, entry->d_un.d_ptr);
    }
  }
  std::vector<std::string> found;
  for (const std::size_t name : names) {
    if (strings) found.push_back(text_at(file, *strings + name));
  }
  return found;
}

Speech speech_of_library(std::string_view library) {
  library.remove_prefix(library.rfind('/') + 1);
  for (const Library& known : libraries) {
    if (!library.starts_with(known.begin)) continue;
    return {known.pmi, known.pmix, "it is linked with " + std::string(library)};
  }
  return {};
}

Speech speech_of_file(std::span<const char> file) {
  if (const auto needed = needed_libraries(file)) {
    for (const auto& library : *needed) {
      const Speech speech = speech_of_library(library);
      if (speech.pmi || speech.pmix) return speech;
    }
    return {};
  }
  const bool names = std::string_view(file.data(), file.size()).find(mpi4py) != std::string::npos;
  return names ? Speech{true, true, "it names " + std::string(mpi4py)} : Speech{};
}

std::optional<std::string> script_of_python(std::span<const std::string> line) {
  std::string_view program = line.front();
  program.remove_prefix(program.rfind('/') + 1);
  if (!program.starts_with("python")) return std::nullopt;
  // Options and their values may stand before the script; they do not end so.
  for (const auto& word : line.subspan(1)) {
    if (word.ends_with(".py")) return word;
  }
  return std::nullopt;
}

Speech speech_of_module(std::string_view module) {
  const bool is_it = module.substr(0, module.find('.')) == mpi4py;
  return is_it ? Speech{true, true, "it is " + std::string(mpi4py)} : Speech{};
}

}  // namespace dlaunch::launcher::pmi
