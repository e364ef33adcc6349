#pragma once

#include <functional>

#include <boost/version.hpp>
#if BOOST_VERSION >= 108100
#include <boost/unordered/unordered_flat_map.hpp>
#else
#include <unordered_map>
#endif

namespace dlaunch {

/// A hash table whose elements may move when it changes. Before Boost 1.81 (Ubuntu 22.04, RHEL 9,
/// openSUSE Leap 15) it is the standard library's, which is slower.
#if BOOST_VERSION >= 108100
template <class Key, class T, class Hash = boost::hash<Key>, class Equal = std::equal_to<Key>>
using FlatMap = boost::unordered_flat_map<Key, T, Hash, Equal>;
#else
template <class Key, class T, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
using FlatMap = std::unordered_map<Key, T, Hash, Equal>;
#endif

}  // namespace dlaunch
