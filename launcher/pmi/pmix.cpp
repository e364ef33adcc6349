#include "launcher/pmi/pmix.hpp"

#include "runtime/base/os/own_library.hpp"

#include <dlaunch/error.hpp>

namespace dlaunch::launcher {

Pmix& load_pmix(PmixListener& listener) {
  std::string why;
#ifdef DLAUNCH_STATIC
  PmixEntry* const entry = nullptr;
  why = "this dlaunch is a static program, which loads no libraries";
#else
  auto* const entry =
      reinterpret_cast<PmixEntry*>(own_library("libdlaunch_pmix.so.0", "dlaunch_pmix", why));
#endif
  Pmix* const found = entry != nullptr ? entry(DLAUNCH_VERSION, &listener, &why) : nullptr;
  if (found != nullptr) return *found;
  throw Error(Errc::unsupported, "Open MPI needs PMIx (package libpmix2), and " + why);
}

}  // namespace dlaunch::launcher
