# What packages contain in place of the compiler that the build makes (.ci/package.sh): xfc with LLVM, MLIR and lld
# inside, which needs nothing of the machine, not even the C library; and beside the runtime what it links into
# executables. Only packages install this, as the component `static`.
find_library(XFC_LLD_ARCHIVE liblldELF.a HINTS ${LLVM_LIBRARY_DIR})
if(NOT XFC_LLD_ARCHIVE)
  return() # only packages need it
endif()
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a ${LLVM_LIBRARY_DIR}/liblldCommon.a)

# lld can compile bitcode, for every target of LLVM and with Polly. We have none to compile, and these functions leave out
# the others.
set(code "void _Z18getPollyPluginInfov(void) { __builtin_trap(); }\n")
foreach(target ${LLVM_TARGETS_TO_BUILD})
  if(NOT target MATCHES "^(X86|NVPTX)$")
    foreach(part Target TargetInfo TargetMC AsmParser AsmPrinter)
      string(APPEND code "void LLVMInitialize${target}${part}(void) {}\n")
    endforeach()
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/targets.c CONTENT "${code}" @ONLY)

set(parts XFCCommands XFCVocab XFCPipeline XFCTarget XFCCPU XFCCPUProducts XFCCPUBuilder XFCGPU XFCKernels XFCPlain XFCMachineCode XFCCodegen XFCSchedule XFCPlan XFCAnalysis
  XFCTransforms XFCImport XFCDescription XFCForeign XFCLink XFCDialect xfc_runtime sentencepiece_train sentencepiece utf8proc xfc_zlib xfc_zstd)
list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
xfc_library(XFCContainedLinker lld.cpp)
target_link_libraries(XFCContainedLinker PRIVATE XFCLink)
set_target_properties(XFCContainedLinker PROPERTIES EXCLUDE_FROM_ALL TRUE)
add_executable(xfc-static EXCLUDE_FROM_ALL $<TARGET_OBJECTS:xfc> $<TARGET_OBJECTS:XFCContainedLinker> ${CMAKE_CURRENT_BINARY_DIR}/targets.c)
set_target_properties(xfc-static PROPERTIES OUTPUT_NAME xfc RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/package)
# Of ld.lld, the order of archives does not matter, which depend on each other in circles.
target_link_options(xfc-static PRIVATE -static-pie -fuse-ld=lld -B${LLVM_TOOLS_BINARY_DIR} -Wl,--gc-sections)
target_link_libraries(xfc-static PRIVATE ${files} ${XFC_LLD_ARCHIVE} ${archives})
add_dependencies(xfc-static ${parts} xfc_capi)
install(TARGETS xfc-static DESTINATION bin COMPONENT static EXCLUDE_FROM_ALL)

# The C library's interface and GCC's libraries, under the names that linkers look for. The scripts of libc and libm name
# files by their places on this machine; those in packages name what is beside them.
foreach(file Scrt1.o crti.o crtn.o crtbeginS.o crtendS.o libc.so.6 libm.so.6 libc_nonshared.a ld-linux-x86-64.so.2 libgcc.a libgcc_eh.a libstdc++.a)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${file} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${found}" found)
  install(FILES ${found} DESTINATION lib/xfc RENAME ${file} COMPONENT static EXCLUDE_FROM_ALL)
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/libc.so "GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( ld-linux-x86-64.so.2 ) )\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/libm.so "GROUP ( libm.so.6 )\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libc.so ${CMAKE_CURRENT_BINARY_DIR}/libm.so DESTINATION lib/xfc COMPONENT static EXCLUDE_FROM_ALL)

# The licences of all that is in packages: of SentencePiece's source, and of Debian's packages, if the rest is from them.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/copyright DESTINATION share/doc/xfc COMPONENT static EXCLUDE_FROM_ALL)
set(source ${CMAKE_BINARY_DIR}/third_party/sentencepiece-0.2.0/sentencepiece)
install(FILES ${source}/LICENSE DESTINATION share/doc/xfc/licenses RENAME sentencepiece COMPONENT static EXCLUDE_FROM_ALL)
foreach(part darts_clone esaxx protobuf-lite)
  install(FILES ${source}/third_party/${part}/LICENSE DESTINATION share/doc/xfc/licenses RENAME ${part} COMPONENT static EXCLUDE_FROM_ALL)
endforeach()
foreach(package llvm-22-dev libc6-dev libgcc-12-dev libutf8proc-dev zlib1g-dev libzstd-dev libevent-dev nlohmann-json3-dev libcli11-dev)
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION share/doc/xfc/licenses RENAME ${package} COMPONENT static EXCLUDE_FROM_ALL)
  endif()
endforeach()
foreach(text Apache-2.0 LGPL-2.1 GPL-3)
  if(EXISTS /usr/share/common-licenses/${text})
    install(FILES /usr/share/common-licenses/${text} DESTINATION share/doc/xfc/licenses COMPONENT static EXCLUDE_FROM_ALL)
  endif()
endforeach()
