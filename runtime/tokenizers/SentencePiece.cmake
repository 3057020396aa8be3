# SentencePiece 0.2.0 (Apache 2.0), static, from its PyPI source distribution, pinned by hash. It includes its own
# protobuf-lite. Targets: sentencepiece (encoding, decoding) and sentencepiece_train (vocabularies).
# -DXFC_SENTENCEPIECE_ARCHIVE=sentencepiece-0.2.0.tar.gz uses an existing archive, and
# -DXFC_SENTENCEPIECE_BUILD=<another build folder> libraries that are already built: sanitizers need not instrument
# third-party code.
include_guard(GLOBAL)

set(sp_hash a52c19171daaf2e697dc6cbe67684e0fa341b1248966f6aebb541de654d15843)
set_property(GLOBAL PROPERTY XFC_SENTENCEPIECE_SHA256 ${sp_hash})

set(XFC_SENTENCEPIECE_BUILD "" CACHE PATH "a build folder whose SentencePiece is taken in place of building it again")
if(XFC_SENTENCEPIECE_BUILD)
  foreach(target sentencepiece sentencepiece_train)
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${XFC_SENTENCEPIECE_BUILD}/lib/lib${target}.a
      INTERFACE_INCLUDE_DIRECTORIES ${XFC_SENTENCEPIECE_BUILD}/third_party/sentencepiece-0.2.0/sentencepiece/src)
  endforeach()
  target_link_libraries(sentencepiece INTERFACE Threads::Threads)
  target_link_libraries(sentencepiece_train INTERFACE sentencepiece)
  return()
endif()

set(XFC_SENTENCEPIECE_ARCHIVE "" CACHE FILEPATH "sentencepiece-0.2.0.tar.gz, if it is not to be downloaded")
set(sp_folder ${CMAKE_BINARY_DIR}/third_party)
set(sp_root ${sp_folder}/sentencepiece-0.2.0/sentencepiece)

if(NOT EXISTS ${sp_folder}/unpacked-${sp_hash})
  file(MAKE_DIRECTORY ${sp_folder})
  set(sp_archive ${XFC_SENTENCEPIECE_ARCHIVE})
  if(NOT sp_archive)
    message(STATUS "Downloading the sources of SentencePiece 0.2.0 (2.6 MB) with pip")
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    file(WRITE ${sp_folder}/requirements.txt "sentencepiece==0.2.0 --hash=sha256:${sp_hash}\n")
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --disable-pip-version-check --no-deps
              --no-binary sentencepiece --require-hashes -r ${sp_folder}/requirements.txt -d ${sp_folder}
      RESULT_VARIABLE sp_status ERROR_VARIABLE sp_message)
    set(sp_archive ${sp_folder}/sentencepiece-0.2.0.tar.gz)
    if(NOT sp_status EQUAL 0 OR NOT EXISTS ${sp_archive})
      message(FATAL_ERROR "SentencePiece's sources could not be downloaded. Check that pip reaches its package index, "
        "or fetch sentencepiece-0.2.0.tar.gz (PyPI's source distribution) elsewhere and configure with "
        "-DXFC_SENTENCEPIECE_ARCHIVE=<that file>. pip said:\n${sp_message}")
    endif()
  endif()
  file(SHA256 ${sp_archive} sp_found)
  if(NOT sp_found STREQUAL sp_hash)
    message(FATAL_ERROR "${sp_archive} is not SentencePiece 0.2.0's source distribution: SHA-256 is ${sp_found}, "
      "expected ${sp_hash}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${sp_archive} DESTINATION ${sp_folder})
  file(WRITE ${sp_root}/config.h "#define VERSION \"0.2.0\"\n#define PACKAGE \"sentencepiece\"\n#define PACKAGE_STRING \"sentencepiece\"\n")
  file(TOUCH ${sp_folder}/unpacked-${sp_hash})
endif()

# Replaces a text of a file by one that the file does not contain before.
function(sp_patch file old new)
  file(READ ${file} text)
  string(FIND "${text}" "${new}" patched)
  if(patched EQUAL -1)
    string(FIND "${text}" "${old}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "${file} is not that of SentencePiece 0.2.0: the line to be patched is not there")
    endif()
    string(REPLACE "${old}" "${new}" text "${text}")
    file(WRITE ${file} "${text}")
  endif()
endfunction()
# Darts' commonPrefixSearch() returns the number of matches, which may exceed the room for results: bound the loops over
# the results by the room.
sp_patch(${sp_root}/src/normalizer.cc "k < num_nodes; ++k" "k < num_nodes && k < kMaxTrieResultsSize; ++k")
sp_patch(${sp_root}/src/normalizer.cc "i < num_nodes; ++i" "i < num_nodes && i < kResultSize; ++i")
# A list counts its new element before it allocates it. If memory is out, the list's destructor deletes that element too:
# let it find null there.
sp_patch(${sp_root}/third_party/protobuf-lite/google/protobuf/repeated_field.h
  "  ++rep_->allocated_size;\n  typename TypeHandler::Type* result ="
  "  rep_->elements[rep_->allocated_size++] = nullptr;\n  typename TypeHandler::Type* result =")

file(GLOB sp_protobuf ${sp_root}/third_party/protobuf-lite/*.cc)
list(TRANSFORM sp_protobuf REPLACE ".*/" "")
list(REMOVE_ITEM sp_protobuf io_win32.cc)
list(TRANSFORM sp_protobuf PREPEND ${sp_root}/third_party/protobuf-lite/)
set(sp_sources bpe_model char_model error filesystem model_factory model_interface normalizer sentencepiece_processor
  unigram_model util word_model builtin_pb/sentencepiece.pb builtin_pb/sentencepiece_model.pb)
set(sp_train_sources builder unicode_script trainer_factory trainer_interface unigram_model_trainer word_model_trainer
  char_model_trainer bpe_model_trainer sentencepiece_trainer pretokenizer_for_training)
list(TRANSFORM sp_sources REPLACE "(.+)" "${sp_root}/src/\\1.cc")
list(TRANSFORM sp_train_sources REPLACE "(.+)" "${sp_root}/src/\\1.cc")
list(APPEND sp_sources ${sp_root}/third_party/absl/flags/flag.cc)

add_library(sentencepiece STATIC ${sp_sources} ${sp_protobuf})
add_library(sentencepiece_train STATIC ${sp_train_sources})
if(XFC_UNITY) # as xfc_together does: most of the time goes to headers
  set_target_properties(sentencepiece sentencepiece_train PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${sp_sources} PROPERTIES UNITY_GROUP sentencepiece)
  set_source_files_properties(${sp_protobuf} PROPERTIES UNITY_GROUP protobuf)
  set_source_files_properties(${sp_train_sources} PROPERTIES UNITY_GROUP train)
  # Some files of protobuf-lite leave its macros defined, which the next one's header refuses.
  set_target_properties(sentencepiece PROPERTIES UNITY_BUILD_CODE_AFTER_INCLUDE
    "#ifdef PROTOBUF_NAMESPACE\n#include <google/protobuf/port_undef.inc>\n#endif")
endif()
target_link_libraries(sentencepiece PUBLIC Threads::Threads)
target_link_libraries(sentencepiece_train PUBLIC sentencepiece)
set_target_properties(sentencepiece_train PROPERTIES EXCLUDE_FROM_ALL ${XFC_FUZZING}) # no fuzz target makes vocabularies
foreach(target sentencepiece sentencepiece_train)
  target_include_directories(${target} SYSTEM PUBLIC ${sp_root}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${sp_root} ${sp_root}/third_party ${sp_root}/src/builtin_pb
    ${sp_root}/third_party/protobuf-lite)
  target_compile_definitions(${target} PRIVATE HAVE_PTHREAD=1 _USE_INTERNAL_STRING_VIEW)
  # Third-party code: ignore its warnings. Separate sections let the linker drop what an executable does not call.
  target_compile_options(${target} PRIVATE -O2 -w -ffunction-sections -fdata-sections ${XFC_HARDENING}
                         $<$<BOOL:${XFC_FUZZING}>:-fno-sanitize=undefined>)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17)
endforeach()
