# The system's static zlib and libzstd: targets xfc_zlib and xfc_zstd.
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/../Archives.cmake)

xfc_archive(xfc_zlib libz.a zlib.h zlib1g-dev)
xfc_archive(xfc_zstd libzstd.a zstd.h libzstd-dev)

# Their versions, for the list of components.
file(STRINGS ${xfc_zlib_headers}/zlib.h line REGEX "define ZLIB_VERSION ")
string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" XFC_ZLIB_VERSION "${line}")
set(numbers)
foreach(part MAJOR MINOR RELEASE)
  file(STRINGS ${xfc_zstd_headers}/zstd.h line REGEX "define ZSTD_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" number "${line}")
  list(APPEND numbers ${number})
endforeach()
list(JOIN numbers . XFC_ZSTD_VERSION)
set_property(GLOBAL PROPERTY XFC_ZLIB_VERSION ${XFC_ZLIB_VERSION})
set_property(GLOBAL PROPERTY XFC_ZSTD_VERSION ${XFC_ZSTD_VERSION})
