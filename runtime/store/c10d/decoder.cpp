#include "runtime/store/c10d/decoder.hpp"

#include "runtime/base/bytes.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::c10d {

namespace {

/// Larger vectors are freed, not kept for the life of the connection.
constexpr std::size_t texts_kept = 1024;

Decoder::Result incomplete(std::size_t needed) { return {Decoder::Status::incomplete, needed}; }

constexpr Decoder::Result invalid{Decoder::Status::invalid, 0};
constexpr Decoder::Result complete{Decoder::Status::complete, 0};

}  // namespace

std::optional<Dialect> detect(BytesView first_bytes) {
  const auto size = std::min(first_bytes.size(), hello.size());
  if (!std::equal(hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(size),
                  first_bytes.begin())) {
    return Dialect::a;
  }
  if (size < hello.size()) return std::nullopt;
  return Dialect::c;
}

const Decoder::Shape* Decoder::shape_of(Dialect dialect, std::byte code) {
  using enum Field;
  // Indexed by the operation's code on the wire.
  static constexpr Shape shapes_a[] = {
      {Op::set, {key, value}}, {Op::compare_set, {key, value, desired}},
      {Op::get, {key}},        {Op::add, {key, i64}},
      {Op::check, {keys}},     {Op::wait, {keys}},
      {Op::count, {}},         {Op::watch, {key}},
      {Op::erase, {key}},
  };
  static constexpr Shape shapes_c[] = {
      {Op::validate, {u32}},      {Op::set, {key, value}}, {Op::compare_set, {key, value, desired}},
      {Op::get, {key}},           {Op::add, {key, i64}},   {Op::check, {keys}},
      {Op::wait, {keys}},         {Op::count, {}},         {Op::erase, {key}},
      {Op::append, {key, value}}, {Op::multi_get, {keys}}, {Op::multi_set, {pairs}},
      {Op::cancel_wait, {}},      {Op::ping, {u32}},       {Op::push, {key, value}},
      {Op::pop, {key}},           {Op::queue_size, {key}}, {Op::list, {}},
      {Op::barrier, {key, i64}},
  };
  const auto shapes =
      dialect == Dialect::a ? std::span<const Shape>(shapes_a) : std::span<const Shape>(shapes_c);
  const auto index = std::to_integer<std::size_t>(code);
  return index < shapes.size() ? &shapes[index] : nullptr;
}

Decoder::Result Decoder::next(BytesView unread, Request& request) {
  if (shape_ == nullptr) {
    if (unread.empty()) return incomplete(1);
    shape_ = shape_of(dialect_, unread.front());
    if (shape_ == nullptr) {
      return object(Objection::To::operation, std::to_integer<std::uint64_t>(unread.front()));
    }
    field_ = 0;
    position_ = 1;
    number_ = 0;
    texts_.clear();
    if (texts_.capacity() > texts_kept) {
      texts_.shrink_to_fit();
      keys_ = {};
      values_ = {};
    }
  }
  while (field_ < shape_->fields.size() && shape_->fields[field_] != Field::none) {
    const auto result = read_field(shape_->fields[field_], unread);
    if (result.status != Status::complete) return result;
    ++field_;
  }
  expose(unread, request);
  shape_ = nullptr;
  return {Status::complete, position_};
}

Decoder::Result Decoder::read_field(Field field, BytesView unread) {
  switch (field) {
    case Field::none:
      break;
    case Field::key:
      return read_text(unread, false);
    case Field::value:
    case Field::desired:
      return read_text(unread, true);
    case Field::i64: {
      const auto result = read_number(unread, number_);
      if (result.status == Status::complete) position_ += sizeof number_;
      return result;
    }
    case Field::u32: {
      std::uint32_t number = 0;
      const auto result = read_number(unread, number);
      if (result.status == Status::complete) position_ += sizeof number;
      number_ = number;
      return result;
    }
    case Field::keys:
      return read_list(unread, false);
    case Field::pairs:
      return read_list(unread, true);
  }
  return complete;
}

template <class T>
Decoder::Result Decoder::read_number(BytesView unread, T& value) const {
  if (unread.size() - position_ < sizeof value) return incomplete(position_ + sizeof value);
  std::memcpy(&value, unread.data() + position_, sizeof value);
  return complete;
}

Decoder::Result Decoder::object(Objection::To to, std::uint64_t size) {
  objection_ = {to, size, {}};
  return invalid;
}

/// A value belongs to the last key that was read, or, outside of lists, to the first.
Decoder::Result Decoder::read_text(BytesView unread, bool is_value) {
  std::uint64_t size = 0;
  const auto result = read_number(unread, size);
  if (result.status != Status::complete) return result;
  const auto begin = position_ + sizeof size;
  if (size > (is_value ? value_bytes_max : key_bytes_max)) {
    object(is_value ? Objection::To::value : Objection::To::key, size);
    if (is_value && !texts_.empty()) {
      const Slice& key = left_ ? texts_.back() : texts_.front();
      objection_.key = as_text(unread.subspan(key.at, key.size));
    }
    return invalid;
  }
  if (begin + size > request_bytes_max) return object(Objection::To::request, begin + size);
  if (unread.size() < begin + size) return incomplete(begin + size);
  texts_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size)});
  position_ = begin + size;
  return complete;
}

Decoder::Result Decoder::read_list(BytesView unread, bool pairs) {
  if (!left_) {
    std::uint64_t count = 0;
    const auto result = read_number(unread, count);
    if (result.status != Status::complete) return result;
    if (count > keys_per_request_max) return object(Objection::To::keys, count);
    position_ += sizeof count;
    left_ = pairs ? 2 * count : count;
  }
  while (*left_ > 0) {
    const bool is_value = pairs && *left_ % 2 == 1;
    const auto result = read_text(unread, is_value);
    if (result.status != Status::complete) return result;
    --*left_;
  }
  left_.reset();
  return complete;
}

void Decoder::expose(BytesView unread, Request& request) {
  const auto bytes = [&](std::size_t text) {
    return unread.subspan(texts_[text].at, texts_[text].size);
  };
  request = {};
  request.op = shape_->op;
  request.number = number_;
  std::size_t text = 0;
  for (const auto field : shape_->fields) {
    switch (field) {
      case Field::none:
      case Field::i64:
      case Field::u32:
        break;
      case Field::key:
        request.key = as_text(bytes(text++));
        break;
      case Field::value:
        request.value = bytes(text++);
        break;
      case Field::desired:
        request.desired = bytes(text++);
        break;
      case Field::keys:
        keys_.clear();
        while (text < texts_.size()) keys_.push_back(as_text(bytes(text++)));
        request.keys = keys_;
        break;
      case Field::pairs:
        keys_.clear();
        values_.clear();
        for (; text < texts_.size(); text += 2) {
          keys_.push_back(as_text(bytes(text)));
          values_.push_back(bytes(text + 1));
        }
        request.keys = keys_;
        request.values = values_;
        break;
    }
  }
}

}  // namespace dlaunch::c10d
