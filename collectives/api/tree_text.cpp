#include <dlaunch/tree.hpp>

#include <charconv>
#include <cmath>
#include <limits>
#include <ostream>

#include <nlohmann/json.hpp>

/// Structured values as JSON text with their tensors beside it; dlaunch/c/tree.h says how.
namespace dlaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* too_deep = "the value is deeper than 64 levels";
static_assert(Tree::depth_max == 64);

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw Error(Errc::misuse, otherwise);
}

// ---- From a tree to text. ----

std::string hex_of(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    hex += {digits[byte >> 4U], digits[byte & 15U]};
  }
  return hex;
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

class Writer {
 public:
  Json json(const Tree& tree) {
    return std::visit([this](const auto& value) { return item(value); }, tree.value());
  }

 private:
  Json item(std::monostate) { return nullptr; }
  Json item(bool value) { return value; }
  Json item(std::int64_t value) { return value; }
  Json item(double value) {
    if (std::isfinite(value)) return value;
    return {{"$real", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
  }
  Json item(const std::string& text) {
    if (is_utf8(text)) return text;
    return {{"$bytes", hex_of(text)}};
  }
  Json item(const Tensor& tensor) {
    return {{"$tensor", tensors_++}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}};
  }
  Json item(const Tree::List& list) { return items(list); }
  Json item(const Tree::Tuple& tuple) {
    Json json = Json::object();
    json["$tuple"] = items(tuple.items);
    return json;
  }
  Json item(const Tree::Dict& dict) {
    Json json = Json::object();
    for (const auto& [key, value] : dict) {
      require(is_utf8(key), "the dictionary key with the bytes " + hex_of(key) + " is no UTF-8");
      json[key.starts_with('$') ? "$" + key : key] = this->json(value);
    }
    return json;
  }
  Json items(const std::vector<Tree>& all) {
    Json json = Json::array();
    for (const Tree& each : all) json.push_back(this->json(each));
    return json;
  }

  std::size_t tensors_ = 0;
};

/// The tensors in the order in which Writer numbers them.
void collect(const Tree& tree, std::vector<const Tensor*>& tensors) {
  if (const auto* tensor = std::get_if<Tensor>(&tree.value())) tensors.push_back(tensor);
  const auto each = [&](const std::vector<Tree>& items) {
    for (const Tree& item : items) collect(item, tensors);
  };
  if (const auto* list = std::get_if<Tree::List>(&tree.value())) each(*list);
  if (const auto* tuple = std::get_if<Tree::Tuple>(&tree.value())) each(tuple->items);
  if (const auto* dict = std::get_if<Tree::Dict>(&tree.value())) {
    for (const auto& [key, value] : *dict) collect(value, tensors);
  }
}

// ---- From text to a tree. ----

std::string text_of_hex(const std::string& hex) {
  std::string text;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2) {
    unsigned byte = 0;
    const char* end = hex.data() + at + 2;
    if (std::from_chars(hex.data() + at, end, byte, 16).ptr != end) break;
    text += static_cast<char>(byte);
  }
  require(text.size() * 2 == hex.size(), "\"$bytes\" takes pairs of hexadecimal digits");
  return text;
}

class Reader {
 public:
  explicit Reader(const std::function<Tensor(std::uint64_t)>& tensor) : tensor_(tensor) {}

  Tree tree(const Json& json, int depth = 0) const {
    require(depth <= Tree::depth_max, too_deep);
    switch (json.type()) {
      case Json::value_t::null:
        return {};
      case Json::value_t::boolean:
        return json.get<bool>();
      case Json::value_t::number_integer:
        return json.get<std::int64_t>();
      case Json::value_t::number_unsigned:
        return integer(json.get<std::uint64_t>());
      case Json::value_t::number_float:
        return json.get<double>();
      case Json::value_t::string:
        return json.get<std::string>();
      case Json::value_t::array:
        return Tree::List(items(json, depth));
      case Json::value_t::object:
        return object(json, depth);
      case Json::value_t::binary:
      case Json::value_t::discarded:
        break;
    }
    throw Error(Errc::misuse, "the text has a value of a kind that JSON does not have");
  }

 private:
  static Tree integer(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return static_cast<double>(value);  // The parser does the same with longer numbers.
    }
    return static_cast<std::int64_t>(value);
  }
  std::vector<Tree> items(const Json& json, int depth) const {
    std::vector<Tree> all;
    for (const Json& each : json) all.push_back(tree(each, depth + 1));
    return all;
  }
  Tree object(const Json& json, int depth) const {
    if (!json.empty()) {
      const std::string& first = json.begin().key();
      if (first.starts_with('$') && !first.starts_with("$$")) {
        require(first == "$tensor" || json.size() == 1,
                "a dictionary that begins with '" + first + "' has no other key");
        return special(first, json.begin().value(), depth);
      }
    }
    Tree::Dict dict;
    for (const auto& [key, value] : json.items()) {
      require(!key.starts_with('$') || key.starts_with("$$"),
              "the key '" + key + "' begins with a dollar sign; a dictionary's own gets another");
      dict.emplace_back(key.starts_with('$') ? key.substr(1) : key, tree(value, depth + 1));
    }
    return dict;
  }
  Tree special(const std::string& key, const Json& value, int depth) const {
    if (key == "$tuple" && value.is_array()) return Tree::Tuple{items(value, depth)};
    if (key == "$tensor" && value.is_number_unsigned()) return tensor_(value.get<std::uint64_t>());
    if (key == "$bytes" && value.is_string()) return text_of_hex(value.get<std::string>());
    if (key == "$real" && value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (key == "$real" && value == "inf") return std::numeric_limits<double>::infinity();
    if (key == "$real" && value == "-inf") return -std::numeric_limits<double>::infinity();
    throw Error(Errc::misuse,
                "{\"" + key + "\": " + value.dump(-1, ' ', true) +
                    "} means nothing; {\"$tensor\": number}, {\"$tuple\": list}, {\"$bytes\": "
                    "hexadecimal text} and {\"$real\": \"nan\", \"inf\" or \"-inf\"} do");
  }

  const std::function<Tensor(std::uint64_t)>& tensor_;
};

/// Deeper text is refused while it is read, before memory is spent on it.
Json parsed(std::string_view text) {
  const auto limit = [](int depth, Json::parse_event_t, const Json&) {
    // A tuple takes two levels of text for one level of the value.
    require(depth <= 2 * Tree::depth_max + 2, too_deep);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const Json::exception& error) {
    throw Error(Errc::misuse, std::string("the text is no JSON: ") + error.what());
  }
}

}  // namespace

std::string Tree::text(int indent) const { return Writer().json(*this).dump(indent); }

std::vector<const Tensor*> Tree::tensors() const {
  std::vector<const Tensor*> all;
  collect(*this, all);
  return all;
}

Tree Tree::parse(std::string_view text, std::span<const Tensor> tensors) {
  return parse(text, [&](std::uint64_t index) {
    require(index < tensors.size(), "the text asks for tensor " + std::to_string(index) + ", " +
                                        std::to_string(tensors.size()) + " were given");
    return tensors[index];
  });
}

Tree Tree::parse(std::string_view text, const std::function<Tensor(std::uint64_t)>& tensor) {
  return Reader(tensor).tree(parsed(text));
}

std::ostream& operator<<(std::ostream& out, const Tree& tree) { return out << tree.text(); }

}  // namespace dlaunch
