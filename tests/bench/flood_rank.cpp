// Writes lines of 100 bytes to stdout, one by one: flood_rank LINES FILE. Adds to FILE a line with
// the processor time that it took, in seconds, user and system.
#include <array>
#include <cstdio>
#include <cstdlib>

#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  std::array<char, 100> line;
  line.fill('x');
  line.back() = '\n';
  for (long left = std::atol(argv[1]); left > 0; --left) {
    if (::write(STDOUT_FILENO, line.data(), line.size()) != ssize_t{line.size()}) return 1;
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::FILE* file = std::fopen(argv[2], "a");
  if (file == nullptr) return 1;
  std::fprintf(file, "%ld.%06ld %ld.%06ld\n", static_cast<long>(used.ru_utime.tv_sec),
               static_cast<long>(used.ru_utime.tv_usec), static_cast<long>(used.ru_stime.tv_sec),
               static_cast<long>(used.ru_stime.tv_usec));
  return std::fclose(file) == 0 ? 0 : 1;
}
