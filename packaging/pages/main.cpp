#include "packaging/pages/places.hpp"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.empty()) throw std::runtime_error("cannot read " + path.string());
  return text;
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

void write_all(const fs::path& source, const fs::path& output) {
  for (const char* name : {"dlaunch.1", "libdlaunch.3", "dlaunchd.conf.5", "dlaunchd.8",
                           "dlaunch.bash", "_dlaunch", "dlaunch.fish", "dlaunchd.fish"}) {
    const std::string text = read_file(source / "packaging/pages" / (std::string(name) + ".in"));
    write_file(output / name, dlaunch::pages::fill_places(text, [&](const std::string& path) {
                 return read_file(source / path);
               }));
  }
}

}  // namespace

/// dlaunch-pages SOURCE_DIR OUTPUT_DIR: writes the manual pages and completions of all programs.
int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: dlaunch-pages SOURCE_DIR OUTPUT_DIR");
  write_all(argv[1], argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "dlaunch-pages: %s\n", error.what());
  return 1;
}
