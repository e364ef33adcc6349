#pragma once

#include <Python.h>

namespace dlaunch::torch_backend {

/// This thread is without Python's lock as long as this lives, whether it had it or not: for what
/// waits for other ranks.
class WithoutPythonLock {
 public:
  WithoutPythonLock()
      : saved_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {
  }
  WithoutPythonLock(const WithoutPythonLock&) = delete;
  WithoutPythonLock& operator=(const WithoutPythonLock&) = delete;
  ~WithoutPythonLock() {
    if (saved_ != nullptr) PyEval_RestoreThread(saved_);
  }

 private:
  PyThreadState* const saved_;
};

}  // namespace dlaunch::torch_backend
