#include "launcher/hang/rank_process.hpp"

#include "runtime/base/os/identity.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t words_max = 4096;
constexpr std::size_t maps_max = 65536;
constexpr int lines_max = 100'000;
constexpr std::size_t word_bytes_max = 64u << 10;

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// The words of a file in which each ends with a zero byte.
std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; words.size() < words_max && std::getline(file, word, '\0');) {
    if (word.size() <= word_bytes_max) words.push_back(word);
  }
  return words;
}

std::string line_of(const fs::path& path, int number) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < number; ++i) {
    if (!std::getline(file, line)) return "";
  }
  const auto begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return "";
  line.erase(0, begin);
  while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
  const bool plain = std::ranges::all_of(
      line, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  return plain ? line : "";
}

}  // namespace

RankVariables variables_of(pid_t pid) {
  constexpr std::array<std::string_view, 4> wanted = {"TORCH_", "NCCL_",
                                                      "HOME=", "XDG_CACHE_HOME="};
  RankVariables variables;
  for (const auto& word : words_of(proc(pid, "environ"))) {
    const auto equals = word.find('=');
    const bool is_wanted =
        std::ranges::any_of(wanted, [&](auto name) { return word.starts_with(name); });
    if (is_wanted && equals != word.npos) {
      variables.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  return variables;
}

bool has_nccl(pid_t pid) {
  std::ifstream maps(proc(pid, "maps"));
  std::string line;
  for (std::size_t i = 0; i < maps_max && std::getline(maps, line); ++i) {
    if (line.find("/libnccl.so") != line.npos) return true;
  }
  return false;
}

Clock::time_point begin_of(pid_t pid) {
  const auto start = start_time_of(pid);
  timespec now{};
  if (!start || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return Clock::time_point::min();
  const auto tick = std::chrono::nanoseconds(std::chrono::seconds(1)) / ::sysconf(_SC_CLK_TCK);
  const auto age = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) -
                   static_cast<std::int64_t>(*start) * tick;
  return Clock::now() - age;
}

std::string source_line(const std::string& place) {
  const auto colon = place.rfind(':');
  if (colon == place.npos) return "";
  int number = 0;
  const char* const end = place.data() + place.size();
  const auto read = std::from_chars(place.data() + colon + 1, end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 1 || number > lines_max) return "";
  const fs::path file = place.substr(0, colon);
  return file.is_absolute() ? line_of(file, number) : "";
}

}  // namespace dlaunch::launcher
