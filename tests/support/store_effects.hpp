#pragma once

#include "runtime/store/core/key_values.hpp"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <variant>

/// The store's effects as tests write them: "1.2 found value", "-" for nothing, "_" for an empty
/// value.
namespace dlaunch::test {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

inline std::string shown(BytesView value) {
  return value.empty() ? std::string("_") : std::string(as_text(value));
}
inline std::string shown(const std::optional<BytesView>& value) {
  return value ? shown(*value) : "-";
}

inline std::string shown_blobs(const store::Gathered& gathered) {
  std::string text = "gathered";
  for (std::size_t at = 0; at < gathered.block->size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, gathered.block->data() + at, sizeof size);
    text += " " + shown(BytesView(*gathered.block).subspan(at + sizeof size, size));
    at += sizeof size + size;
  }
  return text;
}

inline std::string shown(const store::Effect& effect) {
  static const std::map<KeyChange::Kind, std::string> kinds = {
      {KeyChange::Kind::created, "created"},
      {KeyChange::Kind::updated, "updated"},
      {KeyChange::Kind::deleted, "deleted"}};
  const std::string what =
      std::visit(Overloaded{
                     [](const store::Done&) { return std::string("done"); },
                     [](const store::Number& a) { return "number " + std::to_string(a.value); },
                     [](const store::Found& a) { return "found " + shown(a.value); },
                     [](const store::Absent&) { return std::string("absent"); },
                     [](const store::FoundMany& a) {
                       std::string text = "values";
                       for (const auto& value : a.values) text += " " + shown(value);
                       return text;
                     },
                     [](const store::KeyList& a) {
                       std::string text = "keys";
                       for (const auto& key : a.keys) text += " " + key;
                       return text;
                     },
                     [](const store::KeyPage& a) {
                       std::string text = a.more ? "keys-and-more" : "keys";
                       for (const auto key : a.keys) text += " " + std::string(key);
                       return text;
                     },
                     [](const store::Compared& a) {
                       return (a.stored ? "stored " : "kept ") + shown(a.current);
                     },
                     [](const store::Popped& a) {
                       return "popped " + std::to_string(a.length_before) + " " +
                              (a.value ? shown(BytesView(*a.value)) : "-");
                     },
                     [](const store::Gathered& a) { return shown_blobs(a); },
                     [](const store::Changed& a) {
                       return kinds.at(a.kind) + " " + std::string(a.key) + " " + shown(a.before) +
                              " " + shown(a.after);
                     },
                     [](const store::TimedOut& a) {
                       std::string text = "timed-out";
                       for (const auto& key : a.keys) text += " " + key;
                       for (const int contributor : a.contributors)
                         text += " " + std::to_string(contributor);
                       return text;
                     },
                     [](const store::Refused& a) {
                       return (a.code == Errc::peer_lost ? "lost " : "refused ") + a.reason;
                     },
                 },
                 effect.answer);
  return std::to_string(effect.to.client) + "." + std::to_string(effect.to.request) + " " + what;
}

}  // namespace dlaunch::test
