#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secrets.hpp"
#include "tests/support/skipped.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace dlaunch;
namespace fs = std::filesystem;

namespace {

std::string hex(BytesView bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
    text += digits.data();
  }
  return text;
}

/// The error's text; empty when there was none.
std::string refusal(const std::function<void()>& act, Errc code = Errc::misuse) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.errc() == code);
    return error.what();
  }
  return "";
}
bool says(const std::string& sentence, const std::string& part) {
  CAPTURE(sentence);
  return sentence.find(part) != std::string::npos;
}

constexpr const char* good_hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
constexpr const char* good_base64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

Secret parse(std::string_view text) { return Secret::parse(as_bytes(text), "the test"); }

/// A folder that is gone with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "dlaunch-secret-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& content, ::mode_t mode) {
    const std::string path = (path_ / name).string();
    std::ofstream(path) << content;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    return path;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("keys are derived as RFC 5869 says") {
  const Bytes ikm(22, std::byte{0x0b});
  CHECK(hex(derive_key(ikm, "").bytes()) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST_CASE("a master key is the same however it is written, and each job has a key of its own") {
  Bytes raw;
  for (int i = 0; i < 32; ++i) raw.push_back(static_cast<std::byte>(i));
  const std::string wanted = "e9805540e7cf54bc45655ead76dbf01f60ccaaf5c58e37198cf965ef9c207a06";
  CHECK(hex(parse(good_hex).job_key("train").bytes()) == wanted);
  CHECK(hex(parse(std::string(good_hex) + "\n").job_key("train").bytes()) == wanted);
  CHECK(hex(parse(good_base64).job_key("train").bytes()) == wanted);
  CHECK(hex(Secret::parse(raw, "the test").job_key("train").bytes()) == wanted);
  CHECK(hex(parse(good_hex).job_key("train2").bytes()) != wanted);
  CHECK_FALSE(parse(good_hex).only_job());
  const Key job = parse(good_hex).job_key("train");
  CHECK(hex(derive_data_key(job, 3, 7).bytes()) ==
        "99a5ad3f06c222fc732843fca0dfbe908fd5e7e0f2a9f6503df986c01c14cff8");
  CHECK(hex(derive_data_key(job, 3, 8).bytes()) != hex(derive_data_key(job, 3, 7).bytes()));
  CHECK(hex(derive_data_key(job, 4, 7).bytes()) != hex(derive_data_key(job, 3, 7).bytes()));
}

TEST_CASE("an HMAC is the standard's, and one bit makes another") {
  const Key key = parse(good_hex).job_key("train");
  Mac mac = mac_of(key, as_bytes("hello"));
  CHECK(hex(mac) == "eecf545ce5cef47cccbd001a99bfa20480e22da6983ec858ac43102ca8c24089");
  CHECK(same_mac(mac, mac_of(key, as_bytes("hello"))));
  mac.back() ^= std::byte{1};
  CHECK_FALSE(same_mac(mac, mac_of(key, as_bytes("hello"))));
}

TEST_CASE("one job's key goes out as text and comes back, and opens no other job") {
  const Key key = parse(good_hex).job_key("a:b c");
  const std::string text = job_key_text("a:b c", key);
  CHECK(text.starts_with("dlk1:a:b c:"));
  const Secret back = parse(text + "\n");
  CHECK(back.only_job() == "a:b c");
  CHECK(hex(back.job_key("a:b c").bytes()) == hex(key.bytes()));
  CHECK(says(refusal([&] { back.job_key("other"); }), "the key of the job 'a:b c' alone"));
}

TEST_CASE("a key that goes leaves nothing behind") {
  alignas(Key) std::array<std::byte, sizeof(Key)> place{};
  auto* key = new (place.data()) Key(parse(good_hex).job_key("train"));
  CHECK(std::ranges::equal(key->bytes(), BytesView(place).first(Key::size)));
  key->~Key();
  CHECK(place == std::array<std::byte, sizeof(Key)>{});
}

TEST_CASE("what is no key is refused, with the reason and without quoting it") {
  CHECK(says(refusal([] { parse(""); }), "it is empty"));
  CHECK(says(refusal([] { parse("\n\n"); }), "it is empty"));
  CHECK(says(refusal([] { parse("0123456789abcdef"); }), "64 bits, and 128 is the least"));
  CHECK(says(refusal([] { parse("c2hvcnQ="); }), "40 bits"));
  CHECK(says(refusal([] { parse(std::string(64, '0')); }), "all its bytes are the same"));
  CHECK(says(refusal([] { parse(std::string(16, '\1')); }), "it has 16 bytes"));
  const std::string phrase = "correct horse battery staple, which is easy to guess";
  const std::string why = refusal([&] { parse(phrase); });
  CHECK(says(why, "neither hexadecimal nor base64"));
  CHECK(says(why, "openssl rand -hex 32"));
  CHECK(why.find("horse") == std::string::npos);
  const std::string key = "00112233445566778899aabbccddeeff";
  CHECK(says(refusal([&] { parse("\xef\xbb\xbf" + key); }), "begins with a byte order mark"));
  CHECK(says(refusal([&] { parse(" " + key); }), "it has a blank"));
  CHECK(says(refusal([&] { parse(key + " " + key); }), "it has a blank"));
  CHECK(says(refusal([&] { parse(" ABEiM0RVZneImaq7zN3u/w=="); }), "it has a blank"));
  CHECK(says(refusal([] { parse("easy to guess it is"); }), "neither hexadecimal nor base64"));
  CHECK(says(refusal([] { parse("dlk1:train"); }), "but is none"));
  CHECK(says(refusal([] { parse("dlk1:train:AAAA"); }), "was it cut?"));
}

TEST_CASE("a file may have a second secret, whose place the first takes") {
  const std::string fresh(64, 'a'), old = "00112233445566778899aabbccddeeff";
  const std::string first = "0" + fresh.substr(1);
  const auto parsed = [](const std::string& text) { return parse_secrets(as_bytes(text), "F"); };
  const auto key = [](const Secret& secret) { return hex(secret.job_key("j").bytes()); };
  const auto both = parsed(first + "\n\n" + old + "\n");
  REQUIRE(both.size() == 2);
  CHECK(key(both[0]) == key(parsed(first).front()));
  CHECK(key(both[1]) == key(parsed(old + "\r\n").front()));
  CHECK(parsed(first + "\n").size() == 1);
  // Bytes that are not text are one secret, whatever they are.
  CHECK(parsed(std::string("\1\n\2\n\3\n", 6) + first).size() == 1);
  CHECK(refusal([&] { parsed(first + "\n" + old + "\n" + first); }) ==
        "the secret in F cannot be used: it has 3 lines, and 2 is the most: a secret, and the one "
        "whose place it takes");
  CHECK(
      refusal([&] { parsed(first + "\nabc"); }).starts_with("the secret in F, line 2, cannot be"));
  CHECK(refusal([&] { parsed("\n"); }).find("it is empty") != std::string::npos);
}

TEST_CASE("a secret file has to belong to us alone") {
  Folder folder;
  const std::string wanted = hex(parse(good_hex).job_key("j").bytes());
  const auto read = [&](const std::string& path) {
    return hex(read_secret_file(path).job_key("j").bytes());
  };
  CHECK(read(folder.write("good", std::string(good_hex) + "\n", 0600)) == wanted);
  CHECK(read(folder.write("read-only", good_hex, 0400)) == wanted);
  for (const ::mode_t mode : {0640u, 0604u, 0620u, 0602u, 0644u}) {
    const std::string path = folder.write("open", good_hex, mode);
    const std::string why = refusal([&] { read_secret_file(path); });
    CHECK(says(why, "chmod 600 " + path));
  }
  CHECK(says(refusal([&] { read_secret_file((folder.path() / "none").string()); }), "No such"));
  CHECK(says(refusal([&] { read_secret_file(folder.path().string()); }), "not a regular file"));
  const std::string fifo = (folder.path() / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(says(refusal([&] { read_secret_file(fifo); }), "not a regular file"));
  const std::string big = folder.write("big", std::string(5000, 'a'), 0600);
  CHECK(says(refusal([&] { read_secret_file(big); }), "longer than 4096 bytes"));
  if (::geteuid() == 0) {
    const std::string other = folder.write("other", good_hex, 0600);
    REQUIRE(::chown(other.c_str(), 1234, 1234) == 0);
    CHECK(says(refusal([&] { read_secret_file(other); }), "another user, uid 1234"));
  } else {
    testing::skipped("root is needed to give a file to another user");
  }
}

TEST_CASE("a credential is read from systemd's folder, whose access systemd decides") {
  Folder folder;
  folder.write("dlaunch", good_hex, 0440);
  const std::string directory = folder.path().string();
  CHECK(hex(read_secret_credential("dlaunch", directory.c_str()).job_key("j").bytes()) ==
        hex(parse(good_hex).job_key("j").bytes()));
  CHECK(says(refusal([] { read_secret_credential("dlaunch", nullptr); }), "LoadCredential="));
  for (const char* name : {"../dlaunch", "", ".."}) {
    CHECK(says(refusal([&] { read_secret_credential(name, directory.c_str()); }), "no name"));
  }
}

TEST_CASE("an inherited descriptor is read to its end, within a deadline, and closed") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  unique_fd writing(ends[1]);
  REQUIRE(::write(ends[1], good_hex, 64) == 64);
  const auto soon = [] { return Clock::now() + std::chrono::seconds(20); };
  writing.reset();
  CHECK(hex(read_secret_descriptor(ends[0], soon()).job_key("j").bytes()) ==
        hex(parse(good_hex).job_key("j").bytes()));
  CHECK(::fcntl(ends[0], F_GETFD) == -1);

  REQUIRE(::pipe(ends.data()) == 0);
  writing = unique_fd(ends[1]);
  const int silent = ends[0];
  CHECK(says(refusal([&] { read_secret_descriptor(silent, Clock::now()); }, Errc::timeout),
             "its other end stays open"));
  CHECK(says(refusal([&] { read_secret_descriptor(1, soon()); }), "one of the standard ones"));
  CHECK(says(refusal([&] { read_secret_descriptor(silent, soon()); }), "Bad file descriptor"));
}
