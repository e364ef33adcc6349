#include "packaging/python-torch/extension/backend.hpp"
#include "packaging/python-torch/extension/call_site.hpp"
#include "packaging/python-torch/extension/errors.hpp"
#include "packaging/python-torch/extension/leaving.hpp"
#include "packaging/python-torch/extension/meeting.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cstring>

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

// A module for one minor version of torch, and one of Python.
namespace {

namespace py = pybind11;
using dlaunch::torch_backend::DlaunchBackend;
using dlaunch::torch_backend::Place;
using Milliseconds = std::chrono::milliseconds;

/// A C++ interface is that of one version.
void check_version() {
  if (std::strcmp(dlaunch::version(), DLAUNCH_TORCH_VERSION) == 0) return;
  throw py::import_error("dlaunch-torch " DLAUNCH_TORCH_VERSION
                         " was built against that version of dlaunch, and the libdlaunch that is "
                         "loaded is " +
                         std::string(dlaunch::version()) +
                         "; install dlaunch==" DLAUNCH_TORCH_VERSION
                         ", or a dlaunch-torch of the library's version");
}

}  // namespace

PYBIND11_MODULE(DLAUNCH_TORCH_MODULE, module) {
  check_version();
  module.attr("version") = DLAUNCH_TORCH_VERSION;
  module.def("skip_code_in", &dlaunch::torch_backend::skip_code_in);
  py::class_<DlaunchBackend, c10d::Backend, c10::intrusive_ptr<DlaunchBackend>>(module,
                                                                                "DlaunchBackend")
      .def_static(
          "meet",
          [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool is_whole_job,
             Milliseconds timeout) {
            return DlaunchBackend::meet(
                store,
                {.rank = rank, .size = size, .is_whole_job = is_whole_job, .timeout = timeout});
          },
          py::call_guard<py::gil_scoped_release>())
      .def("of_members", &DlaunchBackend::of_members, py::call_guard<py::gil_scoped_release>())
      .def("find_lost", &DlaunchBackend::find_lost, py::call_guard<py::gil_scoped_release>())
      // As Python finds them at gloo's and NCCL's.
      .def_property_readonly("options", &DlaunchBackend::getBackendOptions)
#ifdef DLAUNCH_TORCH_HAS_ERROR_TYPE
      .def("get_error", &DlaunchBackend::getError)
#endif
      .def("_set_default_timeout", &DlaunchBackend::setTimeout);
  module.def("leave_at_exit", &dlaunch::torch_backend::leave_at_exit);
}
