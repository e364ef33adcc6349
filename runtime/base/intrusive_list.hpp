#pragma once

namespace dlaunch {

/// An item's place in a list. A copy of the item is in no list.
template <class T>
struct ListPlace {
  ListPlace() = default;
  ListPlace(const ListPlace&) noexcept {}
  ListPlace& operator=(const ListPlace&) noexcept { return *this; }

  T* before = nullptr;
  T* after = nullptr;
  bool is_taken = false;  ///< The item is in a list.
};

/// A list of items in the order in which they were added. Each item stays with its owner, so adding
/// one and removing any costs a few instructions and no memory. Not thread-safe.
template <class T, ListPlace<T> T::*place>
class IntrusiveList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  T* first() const noexcept { return first_; }
  T* last() const noexcept { return last_; }
  static T* after(const T& item) noexcept { return (item.*place).after; }

  /// An item that is in no list.
  void push_back(T& item) noexcept {
    ListPlace<T>& at = item.*place;
    at.before = last_;
    at.after = nullptr;
    at.is_taken = true;
    (last_ != nullptr ? (last_->*place).after : first_) = &item;
    last_ = &item;
  }
  /// An item that is in this list.
  void remove(T& item) noexcept {
    ListPlace<T>& at = item.*place;
    (at.before != nullptr ? (at.before->*place).after : first_) = at.after;
    (at.after != nullptr ? (at.after->*place).before : last_) = at.before;
    at.is_taken = false;
  }
  /// The first item, removed; null if there is none.
  T* pop_front() noexcept {
    T* const item = first_;
    if (item != nullptr) remove(*item);
    return item;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace dlaunch
