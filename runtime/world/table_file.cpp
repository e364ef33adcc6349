#include "runtime/world/table_file.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <variant>

#include <sys/stat.h>

namespace dlaunch {
namespace {

constexpr const char* table_key = "table";
/// The first byte of the store's value: it holds a table, or why there is none.
constexpr char has_table = '+', has_reason = '!';

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct Unreadable {
  std::string why;
};

std::variant<std::string, Unreadable> read_table(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return Unreadable{errno_text(errno)};
  struct stat status {};
  // A pipe might never end, or have no writer.
  if (::fstat(::fileno(file.get()), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Unreadable{"it is not a file"};
  }
  std::string text(table_bytes_max + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return Unreadable{errno_text(errno)};
  if (text.size() > table_bytes_max) return Unreadable{"it is longer than 64 KiB"};
  return text;
}

}  // namespace

void publish_table(Store& store, const std::string& path) {
  const auto read = read_table(path);
  std::string value;
  if (const auto* text = std::get_if<std::string>(&read)) {
    value = has_table + in_quotes(path) + " of rank 0\n" + *text;
  } else {
    value = has_reason + std::string(table_variable) + ": rank 0 cannot read " + in_quotes(path) +
            ": " + std::get<Unreadable>(read).why;
  }
  store.set(table_key, as_bytes(value));
}

std::optional<TableFile> find_table(Store& store) {
  const auto found = store.get(table_key);
  if (!found) return std::nullopt;
  const std::string_view value = as_text(*found);
  const auto end = value.find('\n');
  if (value.starts_with(has_table) && end != value.npos) {
    return TableFile{std::string(value.substr(1, end - 1)), std::string(value.substr(end + 1))};
  }
  if (value.starts_with(has_reason)) throw Error(Errc::misuse, std::string(value.substr(1)));
  throw Error(Errc::internal,
              "the store holds something else than a table under 'table': use one version of "
              "dlaunch for all ranks, and no key of that name");
}

void compare_table(Store& store, int rank, const std::string& path) {
  const std::string here = std::string(table_variable) + " names " + in_quotes(path) +
                           " for rank " + std::to_string(rank);
  const auto first = find_table(store);
  if (!first) {
    throw Error(Errc::mismatch, here +
                                    ", but nothing for rank 0, whose table all ranks go by: set it "
                                    "for all ranks, or for none");
  }
  const auto mine = read_table(path);
  const auto* text = std::get_if<std::string>(&mine);
  if (text == nullptr || *text == first->text) return;
  throw Error(Errc::mismatch, here + ", in which there is something else than in " + first->origin +
                                  ": all ranks go by one table");
}

}  // namespace dlaunch
