#include "collectives/bench/sizes.hpp"

#include <charconv>

namespace dlaunch::bench {

namespace {

constexpr std::size_t factor_standard = 4;
constexpr std::size_t factor_max = 1024;

Read<std::vector<std::size_t>> read_range(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3) {
    return Complaint{in_quotes(text) + " is not a range such as 4:64M, 4:64M:x2 or 1M:4M:+1M"};
  }
  const auto from = read_size(parts[0]);
  const auto to = read_size(parts[1]);
  for (const auto* end : {&from, &to}) {
    if (const auto* complaint = std::get_if<Complaint>(end)) return *complaint;
  }
  const std::size_t first = std::get<std::size_t>(from);
  const std::size_t last = std::get<std::size_t>(to);
  if (first > last) return Complaint{in_quotes(text) + " ends below its beginning"};

  std::size_t factor = factor_standard;
  std::size_t step = 0;
  if (parts.size() == 3 && parts[2].starts_with('+')) {
    const auto read = read_size(parts[2].substr(1));
    if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
    step = std::get<std::size_t>(read);
  } else if (parts.size() == 3) {
    if (!parts[2].starts_with('x')) {
      return Complaint{in_quotes(parts[2]) +
                       " is neither a factor such as x2 nor a step such as +1M"};
    }
    const auto read = read_integer(parts[2].substr(1), 2, static_cast<long>(factor_max));
    if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
    factor = static_cast<std::size_t>(std::get<long>(read));
  }
  std::vector<std::size_t> sizes;
  for (std::size_t size = first; size <= last; size = step > 0 ? size + step : size * factor) {
    if (sizes.size() == sizes_max) {
      return Complaint{in_quotes(text) + " makes more than " + std::to_string(sizes_max) +
                       " sizes"};
    }
    sizes.push_back(size);
  }
  return sizes;
}

Read<std::vector<std::size_t>> read_item(std::string_view text) {
  if (text.find(':') != text.npos) return read_range(text);
  const auto read = read_size(text);
  if (const auto* complaint = std::get_if<Complaint>(&read)) return *complaint;
  return std::vector{std::get<std::size_t>(read)};
}

}  // namespace

Read<std::size_t> read_size(std::string_view text) {
  const Complaint complaint{in_quotes(text) +
                            " is not a size such as 4, 64K, 1M or 2G, from 1 to " +
                            size_text(size_bytes_max)};
  std::string_view digits = text;
  std::size_t unit = 1;
  if (!digits.empty()) {
    const auto letter = std::string_view("KMGkmg").find(digits.back());
    if (letter != std::string_view::npos) {
      unit = std::size_t{1} << (10 * (letter % 3 + 1));
      digits.remove_suffix(1);
    }
  }
  std::size_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = read.ec == std::errc{} && read.ptr == digits.data() + digits.size();
  if (!whole || number == 0 || number > size_bytes_max / unit) return complaint;
  return number * unit;
}

Read<std::vector<std::size_t>> read_sizes(std::string_view text) {
  std::vector<std::size_t> sizes;
  if (text.empty()) return std::get<Complaint>(read_size(text));
  for (const auto item : split(text, ',')) {
    auto read = read_item(item);
    if (auto* complaint = std::get_if<Complaint>(&read)) return std::move(*complaint);
    const auto& more = std::get<0>(read);
    sizes.insert(sizes.end(), more.begin(), more.end());
    if (sizes.size() > sizes_max) {
      return Complaint{"more than " + std::to_string(sizes_max) + " sizes"};
    }
  }
  return sizes;
}

std::string size_text(std::size_t bytes) {
  constexpr const char* units[] = {" GiB", " MiB", " KiB"};
  for (int unit = 0; unit < 3; ++unit) {
    const std::size_t one = std::size_t{1} << (10 * (3 - unit));
    if (bytes >= one && bytes % one == 0) return std::to_string(bytes / one) + units[unit];
  }
  return std::to_string(bytes);
}

}  // namespace dlaunch::bench
