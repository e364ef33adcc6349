#include "collectives/algorithms/select/table_text.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

/// Any file that DLAUNCH_TABLE names gives a table or a sentence, and a table that is written is
/// read as the same.

namespace {

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "table_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch::algorithms;
  const std::string text(data, data + size);
  const auto read = parse_table(text);
  if (const auto* complaint = std::get_if<std::string>(&read)) {
    insist(!complaint->empty() && complaint->size() < 300, "a complaint that is no sentence");
    insist(complaint->find('\n') == complaint->npos, "a complaint of several lines");
    return 0;
  }
  const Table& table = std::get<Table>(read);
  std::vector<TableEntry> entries;
  for (const Row& row : table.rows()) {
    if (!row.name.empty()) entries.push_back({std::string(row.name), row.most, ""});
  }
  const auto again = parse_table(table_text({}, entries));
  insist(std::holds_alternative<Table>(again), "what was written is not read");
  insist(std::get<Table>(again).digest() == table.digest(), "what was written is read as another");
  return 0;
}
