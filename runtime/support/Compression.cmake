# The system's static zlib and libzstd: targets xfc_zlib and xfc_zstd. Generated executables link them, so the archives
# go next to those of the runtime and of SentencePiece.
include_guard(GLOBAL)

function(xfc_archive target archive header package)
  find_library(${target}_archive ${archive})
  find_path(${target}_headers ${header})
  if(NOT ${target}_archive OR NOT ${target}_headers)
    message(FATAL_ERROR "${archive} or ${header} was not found; install it (Debian: apt-get install ${package}), or name them "
      "by -D${target}_archive=FILE -D${target}_headers=FOLDER")
  endif()
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_archive}
    INTERFACE_INCLUDE_DIRECTORIES ${${target}_headers})
  configure_file(${${target}_archive} ${CMAKE_BINARY_DIR}/lib/${archive} COPYONLY)
  if(XFC_BUILD_COMPILER)
    install(FILES ${CMAKE_BINARY_DIR}/lib/${archive} DESTINATION lib/xfc)
  endif()
endfunction()
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
