#include "tests/nccl_double/meeting.hpp"

#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace dlaunch::nccl_double {

using namespace nccl;

namespace {

/// As NCCL before 2.29.7: a lone rank's elements that are multiplied are dealt with in parts whose
/// length is rounded down, and the last of them may be left out.
std::size_t reached_of(const Meeting& meeting, std::size_t count, std::size_t element_bytes) {
  const Operation& how = meeting.come.front().second;
  if (meeting.come.size() > 1 || (how.op < 100 && how.op != nccl_avg)) return count;
  const std::size_t parts = std::clamp<std::size_t>((count * element_bytes + 16383) / 16384, 1, 32);
  const std::size_t pack = 16 / element_bytes;
  return std::min(count, parts * ((count / parts + pack - 1) / pack * pack));
}

template <class Element, class Sum>
void fold(const Meeting& meeting, std::size_t offset, std::size_t count, const Operation& how,
          void* out) {
  count = reached_of(meeting, count, sizeof(Element));
  std::vector<Element> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum{};
    bool first = true;
    for (const auto& [rank, operation] : meeting.come) {
      auto element = static_cast<Sum>(static_cast<const Element*>(operation.in)[offset + i]);
      if (how.op >= 100) element = static_cast<Sum>(element * static_cast<Sum>(how.factor));
      if (first) {
        sum = element;
      } else if (how.op == nccl_prod) {
        sum = static_cast<Sum>(sum * element);
      } else if (how.op == nccl_min) {
        sum = std::min(sum, element);
      } else if (how.op == nccl_max) {
        sum = std::max(sum, element);
      } else {
        sum = static_cast<Sum>(sum + element);
      }
      first = false;
    }
    if (how.op == nccl_avg) sum = static_cast<Sum>(sum / static_cast<Sum>(meeting.come.size()));
    result[i] = static_cast<Element>(sum);
  }
  if (count > 0) std::memcpy(out, result.data(), count * sizeof(Element));
}

/// By NcclDType.
constexpr std::array<std::size_t, 10> element_bytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

}  // namespace

std::size_t bytes_of(NcclDType dtype) { return element_bytes.at(static_cast<std::size_t>(dtype)); }

namespace {

void fold_any(const Meeting& meeting, std::size_t offset, std::size_t count, void* out) {
  const Operation& how = meeting.come.front().second;
  switch (how.dtype) {
    case nccl_i8:
      return fold<std::int8_t, std::int8_t>(meeting, offset, count, how, out);
    case nccl_u8:
      return fold<std::uint8_t, std::uint8_t>(meeting, offset, count, how, out);
    case nccl_i32:
      return fold<std::int32_t, std::int32_t>(meeting, offset, count, how, out);
    case nccl_u32:
      return fold<std::uint32_t, std::uint32_t>(meeting, offset, count, how, out);
    case nccl_i64:
      return fold<std::int64_t, std::int64_t>(meeting, offset, count, how, out);
    case nccl_u64:
      return fold<std::uint64_t, std::uint64_t>(meeting, offset, count, how, out);
    case nccl_f16:
      return fold<float16, float>(meeting, offset, count, how, out);
    case nccl_bf16:
      return fold<bfloat16, float>(meeting, offset, count, how, out);
    case nccl_f32:
      return fold<float, float>(meeting, offset, count, how, out);
    case nccl_f64:
      return fold<double, double>(meeting, offset, count, how, out);
  }
}

/// What is not written keeps its bytes.
std::vector<char> bytes_of_out(const Operation& operation, std::size_t bytes) {
  const auto* out = static_cast<const char*>(operation.out);
  return {out, out + bytes};
}

}  // namespace

void finish(Meeting& meeting) {
  auto& come = meeting.come;
  std::sort(come.begin(), come.end(), [](auto& a, auto& b) { return a.first < b.first; });
  const Operation how = come.front().second;
  const std::size_t bytes = how.count * bytes_of(how.dtype);
  std::vector<std::vector<char>> results(come.size());
  for (std::size_t r = 0; r < come.size(); ++r) {
    auto& result = results[r];
    const bool is_root = come[r].first == how.peer;
    if (how.what == What::all_reduce || (how.what == What::reduce && is_root)) {
      result = bytes_of_out(come[r].second, bytes);
      fold_any(meeting, 0, how.count, result.data());
    } else if (how.what == What::reduce_scatter) {
      result = bytes_of_out(come[r].second, bytes);
      fold_any(meeting, r * how.count, how.count, result.data());
    } else if (how.what == What::broadcast) {
      const auto* from =
          static_cast<const char*>(come[static_cast<std::size_t>(how.peer)].second.in);
      result.assign(from, from + bytes);
    } else if (how.what == What::all_gather) {
      for (const auto& [rank, operation] : come) {
        const auto* from = static_cast<const char*>(operation.in);
        result.insert(result.end(), from, from + bytes);
      }
    }
  }
  for (std::size_t r = 0; r < come.size(); ++r) {
    if (!results[r].empty()) std::memcpy(come[r].second.out, results[r].data(), results[r].size());
  }
  meeting.done = true;
}

}  // namespace dlaunch::nccl_double
