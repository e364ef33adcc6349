#include "collectives/communicator/structure.hpp"

#include "collectives/reduce/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <variant>
#include <vector>

namespace dlaunch::structure {
namespace {

using Many = std::vector<const Tree*>;  ///< One place in the values of all ranks.

/// The length of a text that is shown in a sentence.
constexpr std::size_t shown_text_bytes_max = 40;

/// The part of a value that counts when structures are compared.
std::string shape_of(const Tree& tree) {
  if (const auto* tensor = std::get_if<Tensor>(&tree.value())) {
    std::string text = std::string("a tensor of ") + to_string(tensor->dtype) + " [";
    for (std::size_t i = 0; i < tensor->shape.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(tensor->shape[i]);
    }
    return text + "]";
  }
  if (std::holds_alternative<Tree::List>(tree.value()) ||
      std::holds_alternative<Tree::Tuple>(tree.value())) {
    return std::string("a ") + tree.kind() + " of " + std::to_string(tree.size()) + " items";
  }
  if (const auto* dict = std::get_if<Tree::Dict>(&tree.value())) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : *dict) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    std::string text = "a dict of {";
    for (const std::string& key : keys) text += (text.back() == '{' ? "" : ", ") + key;
    return text + "}";
  }
  return std::string("a value of the kind ") + tree.kind();
}

std::string path_text(const std::string& path) {
  return path.empty() ? "at its top" : "at '" + path + "'";
}

/// Calls `visit` for each item of the values, with the items of the other ranks at the same place.
void for_each_item(const Many& many,
                   const std::function<void(const std::string& step, const Many&)>& visit) {
  if (const auto* dict = std::get_if<Tree::Dict>(&many[0]->value())) {
    for (const auto& [key, value] : *dict) {
      Many items;
      for (const Tree* each : many) items.push_back(&(*each)[key]);
      visit("." + key, items);
    }
    return;
  }
  for (std::size_t i = 0; i < many[0]->size(); ++i) {
    Many items;
    for (const Tree* each : many) items.push_back(&(*each)[i]);
    visit("[" + std::to_string(i) + "]", items);
  }
}

/// `compare(many, path)` of the place and then of those in it, until one gives a difference.
std::optional<Difference> first_of(
    const Many& many, const std::string& path,
    const std::function<std::optional<Difference>(const Many&, const std::string&)>& compare) {
  std::optional<Difference> found = compare(many, path);
  if (found) return found;
  for_each_item(many, [&](const std::string& step, const Many& items) {
    if (!found) found = first_of(items, path + step, compare);
  });
  return found;
}

Many all_of(std::span<const Tree> values) {
  Many many;
  for (const Tree& value : values) many.push_back(&value);
  return many;
}

/// The same container with each place replaced by what `leaf` makes of it.
Tree map(const Many& many, const std::string& path,
         const std::function<Tree(const Many&, const std::string&)>& leaf) {
  const auto items = [&] {
    std::vector<Tree> mapped;
    for_each_item(many, [&](const std::string& step, const Many& each) {
      mapped.push_back(map(each, path + step, leaf));
    });
    return mapped;
  };
  if (std::holds_alternative<Tree::List>(many[0]->value())) return Tree(Tree::List(items()));
  if (std::holds_alternative<Tree::Tuple>(many[0]->value())) return Tree(Tree::Tuple{items()});
  if (const auto* dict = std::get_if<Tree::Dict>(&many[0]->value())) {
    Tree::Dict mapped;
    auto values = items();
    for (std::size_t i = 0; i < values.size(); ++i) {
      mapped.emplace_back((*dict)[i].first, std::move(values[i]));
    }
    return Tree(std::move(mapped));
  }
  return leaf(many, path);
}

/// A number or boolean as a tensor of one element; a tensor stays as it is.
std::optional<Tensor> as_tensor(const Tree& tree) {
  const auto single = [](const auto& value) { return Tensor(ConstTensorView(value)); };
  if (const auto* tensor = std::get_if<Tensor>(&tree.value())) return *tensor;
  if (const auto* value = std::get_if<bool>(&tree.value())) return single(*value);
  if (const auto* value = std::get_if<std::int64_t>(&tree.value())) return single(*value);
  if (const auto* value = std::get_if<double>(&tree.value())) return single(*value);
  return std::nullopt;
}

Tree stack_leaf(const Many& many, const std::string& /*path*/) {
  auto first = as_tensor(*many[0]);
  if (!first) {
    Tree::List list;
    for (const Tree* each : many) list.push_back(*each);
    return Tree(std::move(list));
  }
  Tensor stacked = std::move(*first);
  stacked.shape.insert(stacked.shape.begin(), static_cast<std::int64_t>(many.size()));
  for (const Tree* each : std::span(many).subspan(1)) {
    const Tensor next = *as_tensor(*each);
    stacked.data.insert(stacked.data.end(), next.data.begin(), next.data.end());
  }
  return Tree(std::move(stacked));
}

/// Undoes as_tensor: gives the element its own kind again.
Tree like(const Tree& original, Tensor folded) {
  if (std::holds_alternative<bool>(original.value())) return Tree(folded.values<bool>()[0]);
  if (std::holds_alternative<std::int64_t>(original.value())) {
    return Tree(folded.values<std::int64_t>()[0]);
  }
  if (std::holds_alternative<double>(original.value())) return Tree(folded.values<double>()[0]);
  return Tree(std::move(folded));
}

}  // namespace

std::optional<Difference> find_difference(std::span<const Tree> values) {
  return first_of(all_of(values), "",
                  [](const Many& many, const std::string& path) -> std::optional<Difference> {
                    const std::string first = shape_of(*many[0]);
                    for (std::size_t rank = 1; rank < many.size(); ++rank) {
                      const std::string other = shape_of(*many[rank]);
                      if (other == first) continue;
                      return Difference{static_cast<int>(rank), first, other,
                                        "their values differ in structure " + path_text(path)};
                    }
                    return std::nullopt;
                  });
}

std::optional<Difference> find_unlike_leaf(std::span<const Tree> values) {
  return first_of(all_of(values), "",
                  [](const Many& many, const std::string& path) -> std::optional<Difference> {
                    const auto text = [](const Tree& leaf) {
                      return "'" + leaf.as<std::string>().substr(0, shown_text_bytes_max) + "'";
                    };
                    if (!std::holds_alternative<std::string>(many[0]->value())) return std::nullopt;
                    for (std::size_t rank = 1; rank < many.size(); ++rank) {
                      if (*many[rank] == *many[0]) continue;
                      return Difference{static_cast<int>(rank), text(*many[0]), text(*many[rank]),
                                        "their values differ " + path_text(path) +
                                            ", where they are text and cannot be reduced"};
                    }
                    return std::nullopt;
                  });
}

Tree stack(std::span<const Tree> values) { return map(all_of(values), "", stack_leaf); }

Tree fold(std::span<const Tree> values, const Reduction& reduction, bool truncate_mean,
          const std::string& label) {
  return map(all_of(values), "", [&](const Many& many, const std::string& path) {
    std::vector<Tensor> tensors;
    for (const Tree* each : many) {
      if (auto tensor = as_tensor(*each)) tensors.push_back(std::move(*tensor));
    }
    if (tensors.empty()) return *many[0];
    if (const auto reason = Reducer::objection(reduction, tensors[0].dtype, truncate_mean)) {
      throw Error(Errc::misuse, label + ", " + path_text(path) + ": " + *reason);
    }
    std::vector<const std::byte*> inputs;
    for (const Tensor& tensor : tensors) inputs.push_back(tensor.data.data());
    Tensor result(tensors[0].dtype, tensors[0].shape);
    if (const auto remainder = Reducer::remainder(reduction, result.data.size())) {
      throw Error(Errc::misuse, label + ", " + path_text(path) + ": " + *remainder);
    }
    const Reducer reducer(reduction, result.dtype, truncate_mean);
    reducer(inputs, result.data.data(), result.data.size() / reducer.element_bytes());
    return like(*many[0], std::move(result));
  });
}

}  // namespace dlaunch::structure
