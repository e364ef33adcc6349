# Writes OUTPUT, a source in which the files ASSETS are: cmake -D OUTPUT=... -D "ASSETS=a;b" -P embed.cmake
set(types ".html=text/html" ".css=text/css" ".js=text/javascript")
set(rows "")
foreach(file IN LISTS ASSETS)
  file(READ ${file} text)
  get_filename_component(name ${file} NAME)
  get_filename_component(ending ${file} LAST_EXT)
  foreach(pair IN LISTS types)
    if(pair MATCHES "^\\${ending}=(.*)$")
      set(type "${CMAKE_MATCH_1}; charset=utf-8")
    endif()
  endforeach()
  if(name STREQUAL "index.html")
    set(name "")
  endif()
  string(APPEND rows "    {\"/${name}\", \"${type}\", R\"~~~(${text})~~~\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
#include "rendezvous/daemon/page_assets.hpp"

namespace dlaunch::rendezvous {

std::span<const PageAsset> page_assets() {
  static constexpr PageAsset assets[] = {
@rows@  };
  return assets;
}

}  // namespace dlaunch::rendezvous
]=])
