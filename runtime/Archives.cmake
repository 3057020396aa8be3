# Static libraries of the system. Generated executables link them, so the archives go next to those of the runtime and of
# SentencePiece.
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
