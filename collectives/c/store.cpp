#include "collectives/c/c_api.hpp"

#include <cstdlib>
#include <new>
#include <optional>
#include <span>

/// The key-value store.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Bytes;
using dlaunch::BytesView;
using dlaunch::Clock;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::JobStore;
using dlaunch::Store;

Clock::time_point deadline_of(std::int64_t timeout_ms) {
  require(timeout_ms >= 0, "timeout_ms is not negative");
  const auto now = Clock::now();
  const auto timeout = duration_of(timeout_ms);
  return timeout >= Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

std::vector<std::string> texts_of(const char* const* keys, std::size_t count) {
  require(keys != nullptr || count == 0,
          "'keys' is a null pointer for " + std::to_string(count) + " keys");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.emplace_back(text_of(keys[i], "keys[i]"));
  return texts;
}

/// An absent value has no data.
dl_bytes copied_if_any(const std::optional<Bytes>& value) {
  return value ? copied(*value) : dl_bytes{nullptr, 0};
}

/// Makes copies; frees them again if not all can be made.
class Copies {
 public:
  void add(dl_bytes copy) { made_.emplace_back(copy); }
  ~Copies() {
    for (dl_bytes& copy : made_) dl_bytes_free(&copy);
  }
  void hand_out(dl_bytes* to) {
    for (dl_bytes& copy : made_) *to++ = std::exchange(copy, {nullptr, 0});
  }

 private:
  std::vector<dl_bytes> made_;
};

/// All keys in one piece of memory: first the pointers, then the text they point to.
char** copied_list(const std::vector<std::string>& keys) {
  std::size_t size = (keys.size() + 1) * sizeof(char*);
  for (const std::string& key : keys) size += key.size() + 1;
  auto* list = static_cast<char**>(std::malloc(size));
  if (list == nullptr) throw std::bad_alloc();
  auto* text = reinterpret_cast<char*>(list + keys.size() + 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    list[i] = text;
    std::memcpy(text, keys[i].c_str(), keys[i].size() + 1);
    text += keys[i].size() + 1;
  }
  list[keys.size()] = nullptr;
  return list;
}

/// Calls on the store itself.
template <class Body>
dl_status on_store(dl_store* store, Body&& body, const char* call = __builtin_FUNCTION()) {
  return guarded_on(
      store, [&] { body(*store->store); }, call);
}

/// The same for calls that only dlaunch's own store has; `what` names the missing feature.
template <class Body>
dl_status on_job_store(dl_store* store, const char* what, Body&& body,
                       const char* call = __builtin_FUNCTION()) {
  return guarded_on(
      store,
      [&] {
        auto* const ours = dynamic_cast<JobStore*>(store->store.get());
        if (ours == nullptr) {
          throw Error(Errc::unsupported,
                      std::string("a store of the program's own has no ") + what);
        }
        body(*ours);
      },
      call);
}

}  // namespace

void dl_store_free(dl_store* store) { delete store; }

dl_status dl_store_set(dl_store* store, const char* key, const void* value, size_t bytes) {
  return on_store(store,
                  [&](Store& s) { s.set(text_of(key, "key"), bytes_of(value, bytes, "value")); });
}

dl_status dl_store_set_leased(dl_store* store, const char* key, const void* value, size_t bytes,
                              int64_t lease_ms) {
  return on_job_store(store, "leases", [&](JobStore& s) {
    s.set_leased(text_of(key, "key"), bytes_of(value, bytes, "value"), duration_of(lease_ms));
  });
}

dl_status dl_store_get(dl_store* store, const char* key, dl_bytes* value) {
  return on_store(store, [&](Store& s) {
    auto& result = place(value, "value");
    result = copied_if_any(s.get(text_of(key, "key")));
  });
}

dl_status dl_store_wait(dl_store* store, const char* key, int64_t timeout_ms, dl_bytes* value) {
  return on_store(store, [&](Store& s) {
    auto& result = place(value, "value");
    result = copied(s.wait(text_of(key, "key"), deadline_of(timeout_ms)));
  });
}

dl_status dl_store_wait_all(dl_store* store, const char* const* keys, size_t count,
                            int64_t timeout_ms) {
  return on_store(store,
                  [&](Store& s) { wait_all(s, texts_of(keys, count), deadline_of(timeout_ms)); });
}

dl_status dl_store_add(dl_store* store, const char* key, int64_t delta, int64_t* sum) {
  return on_store(store, [&](Store& s) {
    const std::int64_t now = s.add(text_of(key, "key"), delta);
    if (sum != nullptr) *sum = now;
  });
}

dl_status dl_store_compare_set(dl_store* store, const char* key, const void* expected,
                               size_t expected_bytes, const void* desired, size_t desired_bytes,
                               int* stored) {
  return on_store(store, [&](Store& s) {
    auto& result = place(stored, "stored");
    std::optional<BytesView> current;
    if (expected != nullptr || expected_bytes > 0) {
      current = bytes_of(expected, expected_bytes, "expected");
    }
    const auto next = bytes_of(desired, desired_bytes, "desired");
    result = s.compare_set(text_of(key, "key"), current, next) ? 1 : 0;
  });
}

dl_status dl_store_append(dl_store* store, const char* key, const void* tail, size_t bytes,
                          size_t* size) {
  return on_store(store, [&](Store& s) {
    const std::size_t now = append(s, text_of(key, "key"), bytes_of(tail, bytes, "tail"));
    if (size != nullptr) *size = now;
  });
}

dl_status dl_store_erase(dl_store* store, const char* key, int* existed) {
  return on_store(store, [&](Store& s) {
    const bool did = s.erase(text_of(key, "key"));
    if (existed != nullptr) *existed = did ? 1 : 0;
  });
}

dl_status dl_store_list(dl_store* store, const char* prefix, char*** keys, size_t* count) {
  return on_job_store(store, "list", [&](JobStore& s) {
    auto& list = place(keys, "keys");
    auto& size = place(count, "count");
    const auto found = s.list(text_of(prefix, "prefix"));
    list = copied_list(found);
    size = found.size();
  });
}

dl_status dl_store_multi_get(dl_store* store, const char* const* keys, size_t count,
                             dl_bytes* values) {
  return on_store(store, [&](Store& s) {
    require(values != nullptr || count == 0, "'values' is a null pointer");
    Copies copies;
    for (const auto& value : multi_get(s, texts_of(keys, count))) copies.add(copied_if_any(value));
    copies.hand_out(values);
  });
}

dl_status dl_store_multi_set(dl_store* store, const char* const* keys, const dl_bytes* values,
                             size_t count) {
  return on_store(store, [&](Store& s) {
    require(values != nullptr || count == 0, "'values' is a null pointer");
    std::vector<Bytes> all;
    for (const dl_bytes& value : std::span(values, count)) {
      const BytesView bytes = bytes_of(value.data, value.size, "values[i].data");
      all.emplace_back(bytes.begin(), bytes.end());
    }
    multi_set(s, texts_of(keys, count), all);
  });
}

dl_status dl_store_push(dl_store* store, const char* queue, const void* value, size_t bytes) {
  return on_job_store(store, "queues", [&](JobStore& s) {
    s.push(text_of(queue, "queue"), bytes_of(value, bytes, "value"));
  });
}

dl_status dl_store_pop(dl_store* store, const char* queue, int64_t timeout_ms, dl_bytes* value) {
  return on_job_store(store, "queues", [&](JobStore& s) {
    auto& result = place(value, "value");
    result = copied(s.pop(text_of(queue, "queue"), deadline_of(timeout_ms)));
  });
}

dl_status dl_store_try_pop(dl_store* store, const char* queue, dl_bytes* value) {
  return on_job_store(store, "queues", [&](JobStore& s) {
    auto& result = place(value, "value");
    result = copied_if_any(s.try_pop(text_of(queue, "queue")));
  });
}

dl_status dl_store_queue_size(dl_store* store, const char* queue, size_t* size) {
  return on_job_store(store, "queues", [&](JobStore& s) {
    auto& result = place(size, "size");
    result = s.queue_size(text_of(queue, "queue"));
  });
}

dl_status dl_store_watch(dl_store* store, const char* key, int64_t timeout_ms, dl_change* change,
                         dl_bytes* value) {
  using Kind = dlaunch::KeyChange::Kind;
  static_assert(DL_CREATED == static_cast<int>(Kind::created) &&
                DL_UPDATED == static_cast<int>(Kind::updated) &&
                DL_DELETED == static_cast<int>(Kind::deleted));
  return on_job_store(store, "watch", [&](JobStore& s) {
    auto& kind = place(change, "change");
    auto& result = place(value, "value");
    const auto seen = s.watch(text_of(key, "key"), deadline_of(timeout_ms));
    result = copied_if_any(seen.value);
    kind = static_cast<dl_change>(seen.kind);
  });
}

dl_status dl_store_barrier(dl_store* store, const char* name, int contributor, int count,
                           int64_t timeout_ms) {
  return on_store(store, [&](Store& s) {
    barrier(s, text_of(name, "name"), contributor, count, deadline_of(timeout_ms));
  });
}

dl_status dl_store_all_gather(dl_store* store, const char* name, int contributor, int count,
                              const void* blob, size_t bytes, int64_t timeout_ms, dl_bytes* blobs) {
  return on_store(store, [&](Store& s) {
    require(blobs != nullptr, "'blobs' is a null pointer");
    Copies copies;
    for (const Bytes& each : all_gather(s, text_of(name, "name"), contributor, count,
                                        bytes_of(blob, bytes, "blob"), deadline_of(timeout_ms))) {
      copies.add(copied(each));
    }
    copies.hand_out(blobs);
  });
}
