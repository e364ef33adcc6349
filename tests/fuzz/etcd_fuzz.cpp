#include "rendezvous/state/etcd/batch.hpp"
#include "rendezvous/state/etcd/requests.hpp"
#include "rendezvous/state/etcd/rows.hpp"
#include "runtime/base/bytes.hpp"
#include "runtime/base/text_hash.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// Any bytes as what etcd answers and holds. The first byte says as which of four: base64, the
/// transactions of a batch, an answer of the gateway's, or rows. What is read is written the same
/// again; what is not is refused by name; a state that was read takes changes.

namespace {

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::rendezvous::etcd;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "etcd_fuzz: %s\n", what);
  std::abort();
}

void as_base64(std::string_view text) {
  std::string bytes;
  try {
    bytes = from_base64(text);
  } catch (const Failure&) {
    return;
  }
  const std::string again = to_base64(bytes);
  if (again.size() > text.size() || from_base64(again) != bytes) fail("bytes become others");
}

void as_transactions(std::string_view bytes) {
  const auto transactions = from_bytes(bytes);
  if (!transactions) return;
  if (to_bytes(*transactions) != bytes) fail("transactions are written differently");
  for (const auto& operations : *transactions) {
    for (const auto& each : operations) {
      if (each.kind == Operation::Kind::erase_all && end_of(each.key) <= each.key) {
        fail("nothing lies behind a key");
      }
    }
  }
}

/// Two bytes of the HTTP status, then the body.
void as_answer(std::string_view text) {
  ByteReader in(as_bytes(text));
  const auto status = in.integer<std::uint16_t>();
  if (!in.ok()) return;
  try {
    const Json answer = answer_in(status, text.substr(sizeof status));
    (void)is_true(answer, "succeeded");
    for (const Json& range :
         {kvs_of(answer), kvs_of_response(answer, 0), kvs_of_response(answer, 1)}) {
      for (const Json& kv : range) {
        (void)bytes_in(kv, "key");
        (void)bytes_in(kv, "value");
        (void)number_in(kv, "create_revision");
      }
    }
    for (const char* field : {"ID", "TTL", "revision"}) (void)number_in(answer, field);
  } catch (const Failure& failure) {
    if (std::string_view(failure.what()).size() > 4096) fail("a sentence without end");
  }
}

/// Each as its key and its value, with their lengths in two bytes before them. A value whose length
/// has the highest bit set gets the sum that it should have.
void as_rows(std::string_view text) {
  constexpr unsigned summed = 0x8000;
  ByteReader in(as_bytes(text));
  Rows rows("there");
  try {
    while (in.ok() && !in.complete()) {
      const auto key_size = in.integer<std::uint16_t>();
      const auto value_size = in.integer<std::uint16_t>();
      const std::string key(as_text(in.raw(key_size)));
      std::string value(as_text(in.raw(value_size & ~summed)));
      if (!in.ok()) return;
      if ((value_size & summed) != 0) {
        constexpr std::size_t numbers = 8;  // Which piece, of how many.
        const auto row =
            std::string_view(key).substr(0, key.size() - std::min(key.size(), numbers));
        Bytes sum;
        ByteWriter(sum).integer(text_hash(value, text_hash(row)));
        value += as_text(sum);
      }
      rows.found(key, value);
    }
    const StateContents contents = rows.contents();
    Batch batch;
    for (const auto& [name, space] : contents.spaces) {
      if (space.number >= contents.next_space) fail("a number that is given again");
      for (const auto& [queue, value] : space.contents.entries) {
        rows.apply(change::Popped{space.number, queue}, batch);
        rows.apply(change::Pushed{space.number, queue, value}, batch);
      }
      rows.apply(change::SpaceDropped{space.number}, batch);
    }
    for (const auto& job : contents.jobs) rows.apply(change::JobForgotten{job.job}, batch);
    const auto transactions = batch.transactions();
    if (from_bytes(to_bytes(transactions)) != transactions) fail("a batch is read differently");
  } catch (const Error& error) {
    if (error.errc() != Errc::refused) fail("damage that is not refused");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      as_base64(rest);
      break;
    case 1:
      as_transactions(rest);
      break;
    case 2:
      as_answer(rest);
      break;
    default:
      as_rows(rest);
  }
  return 0;
}
