#include <Python.h>
// It has to come first.
#include "packaging/python-torch/extension/call_site.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::torch_backend {
namespace {

/// Frames above are not looked through.
constexpr int frames_max = 32;
/// The program has a limited number of lines that call; one that makes code all the time does not.
constexpr std::size_t places_max = 10000;

// Both under Python's lock, and left where they are: they live as long as the process.
std::vector<std::string>& skipped() {
  static auto* const folders = new std::vector<std::string>;
  return *folders;
}
std::map<std::pair<std::string, int>, std::string, std::less<>>& places() {
  static auto* const known = new std::map<std::pair<std::string, int>, std::string, std::less<>>;
  return *known;
}

/// A new reference to the frame that called.
PyFrameObject* back_of(PyFrameObject* frame) {
  PyFrameObject* const back = PyFrame_GetBack(frame);
  Py_DECREF(frame);
  return back;
}

CallSite kept(std::string_view file, int line) {
  auto& known = places();
  auto found = known.find(std::pair(std::string(file), line));
  if (found == known.end()) {
    if (known.size() >= places_max) return {"", 0, ""};
    found = known.emplace(std::pair(std::string(file), line), std::string()).first;
  }
  return {found->first.first.c_str(), line, ""};
}

CallSite look() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame != nullptr) Py_INCREF(frame);
  CallSite place{"", 0, ""};
  for (int depth = 0; frame != nullptr && depth < frames_max; ++depth, frame = back_of(frame)) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const char* const text = PyUnicode_AsUTF8(code->co_filename);
    const std::string_view file = text != nullptr ? text : "";
    const bool is_programs = !file.empty() && std::none_of(skipped().begin(), skipped().end(),
                                                           [&](const std::string& folder) {
                                                             return file.starts_with(folder);
                                                           });
    if (is_programs) place = kept(file, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    if (is_programs) break;
  }
  Py_XDECREF(frame);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return place;
}

}  // namespace

CallSite place_of_program() {
  // A thread that Python does not know has no frames.
  if (Py_IsInitialized() == 0 || PyGILState_GetThisThreadState() == nullptr) return {"", 0, ""};
  const PyGILState_STATE state = PyGILState_Ensure();
  const CallSite place = look();
  PyGILState_Release(state);
  return place;
}

void skip_code_in(std::string folder) { skipped().push_back(std::move(folder)); }

}  // namespace dlaunch::torch_backend
