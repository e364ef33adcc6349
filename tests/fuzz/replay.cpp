#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

/// Runs a fuzz target without a fuzzer, so that every build does it: first all files of a corpus,
/// then as many seeded mutations of them as are asked for; "50000x20" are twenty times as many with
/// DLAUNCH_TEST_FULL. A finding ends the process, after the input has been written beside it; it
/// belongs into the corpus then.
///
///     <target>_replay CORPUS [MUTATIONS [SEED]]

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
constexpr std::size_t input_bytes_max = 64u << 10;
constexpr auto last_input = "last_input.bin";

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  Input next() {
    Input input = any();
    for (auto steps = 1 + below(4); steps > 0; --steps) mutate(input);
    if (input.size() > input_bytes_max) input.resize(input_bytes_max);
    return input;
  }

 private:
  const Input& any() { return corpus_[below(corpus_.size())]; }
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
  static Input::iterator at(Input& input, std::size_t index) {
    return input.begin() + static_cast<std::ptrdiff_t>(index);
  }

  void mutate(Input& input) {
    const auto place = below(input.size());
    switch (below(7)) {
      case 0:  // one bit
        if (!input.empty()) input[place] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:  // one byte
        if (!input.empty()) input[place] = byte();
        break;
      case 2:  // bytes that lengths do not expect
        for (std::size_t i = place; i < input.size() && i < place + 8; ++i) {
          input[i] = below(2) == 0 ? 0x00 : 0xFF;
        }
        break;
      case 3:  // cut off
        input.resize(place);
        break;
      case 4:  // a piece missing
        input.erase(at(input, place), at(input, std::min(input.size(), place + below(16))));
        break;
      case 5: {  // something inserted
        const Input inserted(below(16), byte());
        input.insert(at(input, place), inserted.begin(), inserted.end());
        break;
      }
      case 6: {  // another's end behind this one's beginning
        const Input& other = any();
        input.resize(place);
        const auto from = static_cast<std::ptrdiff_t>(below(other.size()));
        input.insert(input.end(), other.begin() + from, other.end());
        break;
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

void run(const Input& input, bool keep) {
  if (keep) {
    std::ofstream out(last_input, std::ios::binary);
    for (const auto byte : input) out.put(static_cast<char>(byte));
  }
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [MUTATIONS [SEED]]\n", argv[0]);
    return 64;
  }
  const auto corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s has no files\n", argv[1]);
    return 1;
  }
  char* behind = nullptr;
  auto mutations = argc > 2 ? std::strtoull(argv[2], &behind, 10) : 0;
  if (behind != nullptr && *behind == 'x' && std::getenv("DLAUNCH_TEST_FULL") != nullptr) {
    mutations *= std::strtoull(behind + 1, nullptr, 10);
  }
  const auto seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  // With a seed given a finding is looked for again, and now its input is kept.
  const bool keep = argc > 3;

  for (const auto& input : corpus) run(input, keep);
  Mutator mutator(corpus, seed);
  for (std::uint64_t i = 0; i < mutations; ++i) run(mutator.next(), keep);
  std::printf("%zu files and %llu mutations of them, seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
  return 0;
}
