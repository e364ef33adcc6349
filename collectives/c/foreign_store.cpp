#include "collectives/c/c_api.hpp"

#include <cstdlib>
#include <optional>

/// A store of the program's own behind our interface.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Bytes;
using dlaunch::BytesView;
using dlaunch::Clock;
using dlaunch::Errc;
using dlaunch::Error;

constexpr std::size_t ops_size_first = 72;   // When they were published.
constexpr std::size_t info_size_first = 88;  // dl_world_info's, too.
constexpr dl_status last_known = DL_UNAUTHENTICATED;
static_assert(sizeof(dl_store_ops) >= ops_size_first);

/// Memory that a callback of the program's handed out, freed when it was copied.
class Handed {
 public:
  Handed() = default;
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  ~Handed() { dl_bytes_free(&bytes_); }
  dl_bytes* get() { return &bytes_; }
  std::optional<Bytes> value() const {
    if (bytes_.data == nullptr) return std::nullopt;
    const auto* data = static_cast<const std::byte*>(bytes_.data);
    return Bytes(data, data + bytes_.size);
  }

 private:
  dl_bytes bytes_{nullptr, 0};
};

class ForeignStore final : public dlaunch::Store {
 public:
  ForeignStore(const dl_store_ops& ops, void* self) : ops_(ops), self_(self) {}
  /// Only a store that made it into a world is released.
  void own() { owned_ = true; }
  ~ForeignStore() override {
    if (owned_ && ops_.release != nullptr) ops_.release(self_);
  }

  void set(std::string_view key, BytesView value) override {
    const std::string text(key);
    check("set", text, ops_.set(self_, text.c_str(), value.data(), value.size()));
  }
  std::optional<Bytes> get(std::string_view key) override {
    const std::string text(key);
    Handed value;
    check("get", text, ops_.get(self_, text.c_str(), value.get()));
    return value.value();
  }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    const std::string text(key);
    Handed value;
    check("wait", text, ops_.wait(self_, text.c_str(), ms_until(deadline), value.get()));
    if (auto bytes = value.value()) return std::move(*bytes);
    throw Error(Errc::misuse, "the program's store gave no value for '" + text +
                                  "' although its wait returned DL_OK");
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    const std::string text(key);
    std::int64_t sum = 0;
    check("add", text, ops_.add(self_, text.c_str(), delta, &sum));
    return sum;
  }
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override {
    const std::string text(key);
    int stored = 0;
    // Absent is a null pointer, so an empty value must not be one.
    const void* current = expected ? expected->data() : nullptr;
    if (expected && current == nullptr) current = "";
    check("compare_set", text,
          ops_.compare_set(self_, text.c_str(), current, expected ? expected->size() : 0,
                           desired.data(), desired.size(), &stored));
    return stored != 0;
  }
  bool erase(std::string_view key) override {
    const std::string text(key);
    int existed = 0;
    check("erase", text, ops_.erase(self_, text.c_str(), &existed));
    return existed != 0;
  }

 private:
  void check(const char* call, const std::string& key, dl_status status) const {
    if (status == DL_OK) return;
    const char* why = ops_.last_message != nullptr ? ops_.last_message(self_) : nullptr;
    const bool known = status > DL_OK && status <= last_known;
    throw Error(known ? static_cast<Errc>(status) : Errc::internal,
                std::string("the program's store failed to ") + call + " '" + key +
                    "': " + (why != nullptr && why[0] != '\0' ? why : dl_status_text(status)));
  }
  static std::int64_t ms_until(Clock::time_point deadline) {
    if (deadline == Clock::time_point::max()) return INT64_MAX;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return std::max<std::int64_t>(left.count(), 0);
  }

  const dl_store_ops ops_;
  void* const self_;
  bool owned_ = false;
};

dlaunch::WorldInfo info_of(const dl_world_info* info) {
  const auto given = known_part(&place(info, "info"), info_size_first, "dl_world_info");
  require(given.size >= 1 && given.rank >= 0 && given.rank < given.size,
          "rank " + std::to_string(given.rank) + " of " + std::to_string(given.size) +
              " is none: ranks are 0 to size - 1");
  const auto text = [](const char* value) { return std::string(value != nullptr ? value : ""); };
  dlaunch::WorldInfo made;
  made.rank = given.rank;
  made.size = given.size;
  const bool placed = given.local_size > 0;
  made.local_rank = placed ? given.local_rank : 0;
  made.local_size = placed ? given.local_size : 1;
  made.node_rank = placed ? given.node_rank : given.rank;
  made.node_count = placed ? std::max(given.node_count, 1) : given.size;
  made.epoch = given.epoch;
  made.attempt = given.attempt;
  made.job = text(given.job);
  made.hostname = text(given.hostname);
  made.master_addr = text(given.master_addr);
  made.master_port = text(given.master_port);
  made.init_method = text(given.init_method);
  return made;
}

}  // namespace

dl_status dl_world_from_store(const dl_world_info* info, const dl_store_ops* ops, void* self,
                              dl_world** world) {
  return guarded([&] {
    auto& made = place(world, "world");
    const auto given = known_part(&place(ops, "ops"), ops_size_first, "dl_store_ops");
    require(given.set != nullptr && given.get != nullptr && given.wait != nullptr &&
                given.add != nullptr && given.compare_set != nullptr && given.erase != nullptr,
            "a dl_store_ops has set, get, wait, add, compare_set and erase");
    const auto store = std::make_shared<ForeignStore>(given, self);
    made = new dl_world(dlaunch::World(info_of(info), store));
    store->own();
  });
}
